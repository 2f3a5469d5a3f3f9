import { lstat, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Config, ModelConfig } from '../config.js';
import { embeddedModel, existingEmbeddedModel } from '../engine-client/embedded-model.js';
import { modelsDir } from '../hosting.js';

/** What the configuration calls the model that the first start makes. */
export const EMBEDDED = 'embedded';

/** The path of a configured model's file; undefined: the embedded one, and no start has made it yet. */
export async function existingFile(
  { file }: ModelConfig,
  { dataDir }: Pick<Config, 'dataDir'>,
): Promise<string | undefined> {
  return file === EMBEDDED ? await existingEmbeddedModel(modelsDir(dataDir)) : file;
}

/**
 * Runs `work` with the configured models, each with its file's path. An embedded model that no start has made yet is made
 * for the time being in a folder of its own, since these commands are not to write into the data folder.
 */
export async function withFiles<T>(
  config: Pick<Config, 'models' | 'dataDir'>,
  work: (models: readonly ModelConfig[]) => Promise<T>,
): Promise<T> {
  let scratch: string | undefined;
  try {
    const models: ModelConfig[] = [];
    for (const model of config.models) {
      const file = (await existingFile(model, config)) ?? (await embeddedModel((scratch ??= await scratchDir())));
      models.push({ ...model, file });
    }
    return await work(models);
  } finally {
    if (scratch !== undefined) await rm(scratch, { recursive: true, force: true });
  }
}

/** How the folders begin that {@link withFiles} makes, and those of downloads (engine/inspect/fetch.ts). */
const SCRATCH = 'ra-sidecar-model-';
const ADDING = '.adding-';

/** A folder that nothing was written into for so long is nobody's, ms: downloads that stall are given up after a minute. */
const LEFT_MS = 24 * 60 * 60 * 1000;

function scratchDir(): Promise<string> {
  return mkdtemp(join(tmpdir(), SCRATCH));
}

/** Removes what commands that were killed left: downloads in `dir`, and models made for the time being. Rejects nothing. */
export async function removeLeftovers(dir: string): Promise<void> {
  await removeOld(dir, ADDING);
  await removeOld(tmpdir(), SCRATCH);
}

async function removeOld(parent: string, prefix: string): Promise<void> {
  const entries = await readdir(parent, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    if (!entry.isDirectory() || !entry.name.startsWith(prefix)) continue;
    const folder = join(parent, entry.name);
    // What is another user's stays.
    if (Date.now() - (await lastWritten(folder)) > LEFT_MS)
      await rm(folder, { recursive: true }).catch(() => undefined);
  }
}

/** The youngest time of a folder and what lies in it, ms; a file grows without a word to its folder. */
async function lastWritten(folder: string): Promise<number> {
  const names = await readdir(folder).catch(() => []);
  const times = [folder, ...names.map((name) => join(folder, name))].map((path) =>
    lstat(path).then(
      ({ mtimeMs }) => mtimeMs,
      () => 0,
    ),
  );
  return Math.max(...(await Promise.all(times)));
}
