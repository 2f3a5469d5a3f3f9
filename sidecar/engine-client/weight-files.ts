/**
 * Hashes files of weights, each once: all engines of a host load by the same hash. In a thread of its own, since gigabytes are
 * read. Known hashes are kept by the file's key, so that a file that changed is hashed again.
 */
import { Worker } from 'node:worker_threads';
import { fileURLToPath } from 'node:url';
import { fileKey, type HashedFile } from '../../engine/protocol/file-key.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';

const HASHER = fileURLToPath(new URL('./weight-hasher.js', import.meta.url));

/** Files whose hashes are kept; past it the one that came first is dropped, and hashed again when it is needed. */
const MOST_FILES = 256;

/** Returns the SHA-256 of a file, hex. Rejects if it cannot be read. */
export type HashFile = (file: string) => Promise<string>;

export class WeightFiles {
  readonly #hash: HashFile;
  readonly #known = new Map<string, Promise<HashedFile | undefined>>();

  /** `hash`: tests pass their own. */
  constructor(hash: HashFile = hashInThread) {
    this.#hash = hash;
  }

  /**
   * The file as it is now. Undefined: it cannot be read, or it changed while it was read. Never rejects; calls for one file at
   * the same time share one reading.
   */
  async of(file: string): Promise<HashedFile | undefined> {
    const key = fileKey(file);
    if (key === undefined) return undefined;
    let known = this.#known.get(key);
    if (known === undefined) {
      known = this.#read(file, key);
      this.#known.set(key, known);
      for (const first of this.#known.keys()) {
        if (this.#known.size <= MOST_FILES) break;
        this.#known.delete(first);
      }
    }
    return await known;
  }

  async #read(file: string, key: string): Promise<HashedFile | undefined> {
    const version = await this.#hash(file).catch(() => undefined);
    if (version !== undefined && fileKey(file) === key) return { key, version };
    this.#known.delete(key);
    return undefined;
  }
}

function hashInThread(file: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(HASHER, { workerData: file });
    worker.once('message', (version: string) => resolve(version));
    worker.once('error', reject);
    // After a message this does nothing.
    worker.once('exit', () => reject(new Error('the file could not be hashed')));
  });
}

/**
 * The file that one model's engines load, asked for before each fork: the present file if its weights are those that
 * were loaded first, else the first file's key and hash, so that the engine refuses the present file. Otherwise a
 * replica that is started again could serve other weights than the rest.
 */
export function sameWeights(
  files: Pick<WeightFiles, 'of'>,
): (setup: Pick<EngineSetup, 'file' | 'weights'>) => Promise<HashedFile | undefined> {
  let first: HashedFile | undefined;
  return async ({ file, weights }) => {
    const now = await files.of(file);
    const expected = weights ?? first;
    if (expected === undefined) return (first ??= now);
    return now?.version === expected.version ? now : expected;
  };
}
