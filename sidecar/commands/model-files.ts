import { mkdtemp, rm } from 'node:fs/promises';
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

function scratchDir(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'ra-sidecar-'));
}
