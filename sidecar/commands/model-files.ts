import { lstat, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ModelConfig } from '../config/config.js';
import { EMBEDDED_MODEL } from '../engine-client/weight-files.js';

/** The name of the bundled model in the configuration. */
const EMBEDDED = 'embedded';

/** The model with the path of its file. */
export function withFile(model: ModelConfig): ModelConfig {
  return model.file === EMBEDDED ? { ...model, file: EMBEDDED_MODEL } : model;
}

/** Whether an external server has its weights. */
export function isExternal({ engine }: Pick<ModelConfig, 'engine'>): boolean {
  return engine.kind !== 'llama.cpp';
}

/** Prefix of the folders of downloads (engine/llama/inspect/fetch.ts). */
const ADDING = '.adding-';

/** A folder without writes for this long is abandoned, ms: downloads that stall are ended after a minute. */
const LEFT_MS = 24 * 60 * 60 * 1000;

/** Removes what killed downloads left in `dir`. Never rejects. */
export async function removeLeftovers(dir: string): Promise<void> {
  await removeOld(dir, ADDING);
}

async function removeOld(parent: string, prefix: string): Promise<void> {
  const entries = await readdir(parent, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    if (!entry.isDirectory() || !entry.name.startsWith(prefix)) continue;
    const folder = join(parent, entry.name);
    // Folders of other users stay.
    if (Date.now() - (await lastWritten(folder)) > LEFT_MS)
      await rm(folder, { recursive: true }).catch(() => undefined);
  }
}

/** The latest time of a folder and its files, ms; a growing file does not change the time of its folder. */
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
