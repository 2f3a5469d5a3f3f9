import { lstat, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ModelConfig } from '../config/config.js';
import { EMBEDDED_MODEL } from '../engine-client/embedded-model.js';

/** What the configuration calls the model that comes with the sidecar. */
export const EMBEDDED = 'embedded';

/** The model with the path of its file. */
export function withFile(model: ModelConfig): ModelConfig {
  return model.file === EMBEDDED ? { ...model, file: EMBEDDED_MODEL } : model;
}

/** How the folders of downloads begin (engine/llama/inspect/fetch.ts). */
const ADDING = '.adding-';

/** A folder that nothing was written into for so long is nobody's, ms: downloads that stall are given up after a minute. */
const LEFT_MS = 24 * 60 * 60 * 1000;

/** Removes what downloads that were killed left in `dir`. Rejects nothing. */
export async function removeLeftovers(dir: string): Promise<void> {
  await removeOld(dir, ADDING);
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
