import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { fileKey, partsOf, type HashedFile } from '../protocol/file-key.js';
import { LoadFailure } from './load-failure.js';

/** Bytes that are read at a time. */
const CHUNK = 1 << 20;

/**
 * The version of the weights in a model's files: `known`, if they are still those that were hashed, else their SHA-256. Rejects with a
 * {@link LoadFailure} if it is another one.
 */
export async function weightVersionOf(file: string, known: HashedFile | undefined): Promise<string> {
  if (known !== undefined) {
    checkUnchanged(file, known);
    return known.version;
  }
  const hash = createHash('sha256');
  for (const part of partsOf(file))
    for await (const chunk of createReadStream(part, { highWaterMark: CHUNK })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

/** Throws a {@link LoadFailure} if the file is not the one that was hashed. Called after the load too, which reads it by its path. */
export function checkUnchanged(file: string, known: HashedFile | undefined): void {
  if (known === undefined || fileKey(file) === known.key) return;
  throw new LoadFailure(
    'the file is not the one that was loaded before: it was replaced or written to (`ra-sidecar models reload` loads a new one)',
    true,
  );
}
