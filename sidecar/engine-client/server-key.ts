import { readFile } from 'node:fs/promises';
import { serverKey } from '../../engine/protocol/server-key.js';

/** The key of an external server, as its engine process reads it; undefined if the file has none. Rejects if it cannot be read. */
export async function readServerKey(file: string): Promise<string | undefined> {
  return serverKey(await readFile(file, 'utf8'));
}
