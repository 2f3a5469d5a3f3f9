/**
 * Hashes files of weights, each once: all engines of a host load by the same hash. In a thread of its own, since gigabytes are
 * read. Known hashes are kept by the file's key, so that a file that changed is hashed again.
 */
import { Worker } from 'node:worker_threads';
import { fileURLToPath } from 'node:url';
import { fileKey, sizeIn, type HashedFile } from '../../engine/protocol/file-key.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import { systemClock, type Clock } from '../lib/clock.js';

const HASHER = fileURLToPath(new URL('./weight-hasher.js', import.meta.url));

/** Files whose hashes are kept; past it the one that came first is dropped, and hashed again when it is needed. */
const MOST_FILES = 256;

/** Files that are hashed at once, each on a core of its own; others wait. */
const MOST_AT_ONCE = 2;

/** Bytes that are hashed in a millisecond, until it has been measured. */
const FIRST_RATE = 400_000;

/** From then on a hash tells how fast they are, ms: a short one is mostly the start of its thread. */
const MEASURABLE_MS = 1000;

/** Returns the SHA-256 of a file, hex. Rejects if it cannot be read. */
export type HashFile = (file: string) => Promise<string>;

export class WeightFiles {
  readonly #hash: HashFile;
  readonly #clock: Clock;
  readonly #known = new Map<string, Promise<HashedFile | undefined>>();
  /** Files that are hashed or wait for that, with when their hash is expected, by the clock. */
  readonly #hashing = new Map<string, number>();
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  #rate = FIRST_RATE;

  /** `hash`: tests pass their own. */
  constructor(hash: HashFile = hashInThread, clock: Clock = systemClock) {
    this.#hash = hash;
    this.#clock = clock;
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

  /** The estimated time until this file is hashed, ms; 0: it is not being hashed. */
  msLeft(file: string): number {
    const at = this.#hashing.get(file);
    return at === undefined ? 0 : Math.max(0, at - this.#clock.now());
  }

  async #read(file: string, key: string): Promise<HashedFile | undefined> {
    const version = await this.#inTurn(file, sizeIn(key)).catch(() => undefined);
    if (version !== undefined && fileKey(file) === key) return { key, version };
    this.#known.delete(key);
    return undefined;
  }

  async #inTurn(file: string, bytes: number): Promise<string> {
    // As if one were read after another, as from one disk.
    const free = Math.max(this.#clock.now(), ...this.#hashing.values());
    this.#hashing.set(file, free + bytes / this.#rate);
    if (this.#running < MOST_AT_ONCE) this.#running += 1;
    else await new Promise<void>((turn) => this.#waiting.push(turn));
    const from = this.#clock.now();
    try {
      const version = await this.#hash(file);
      const took = this.#clock.now() - from;
      if (took >= MEASURABLE_MS) this.#rate = bytes / took;
      return version;
    } finally {
      this.#hashing.delete(file);
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
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
