/** The check of `ra-sidecar doctor` for a model that an external server computes. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { templateOf } from '../app/model-template.js';
import type { ModelConfig } from '../config/config.js';
import { readServerKey } from '../engine-client/server-key.js';
import type { Check } from './check.js';
import { withFile } from './model-files.js';

/** Whether the server is up is seen when the sidecar starts, which waits for it. The files of this host are checked. */
export async function externalCheck(model: ModelConfig): Promise<Check> {
  const { id, engine } = model;
  const what = `model ${id}`;
  const problem = await problemOf(model);
  if (problem !== undefined) return { what, level: 'fail', says: problem };
  const where = [engine.url ?? engine.socket ?? ''].flat().join(', ');
  const says = `computed elsewhere, by ${engine.kind} at ${where}, which is not checked here; its files can be read`;
  return { what, level: 'ok', says };
}

async function problemOf(model: ModelConfig): Promise<string | undefined> {
  const { file } = withFile(model);
  const { secretFile } = model.engine;
  try {
    templateOf(model);
    await access(file, constants.R_OK);
    if (secretFile === undefined || (await readServerKey(secretFile)) !== undefined) return undefined;
    return `${secretFile} has no key in its first line`;
  } catch (error) {
    const { code, path } = error as NodeJS.ErrnoException;
    return path === undefined ? (error as Error).message : `${path} cannot be read (${code ?? 'unknown'})`;
  }
}
