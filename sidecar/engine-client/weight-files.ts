/**
 * Hashes files of weights, each once: all engines of a host load by the same hash. Known hashes are kept by the file's key, so that a
 * file that changed is hashed again. This process itself touches no such file: one on a network share may not answer.
 */
import { sizeIn, type HashedFile } from '../../engine/protocol/file-key.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import { systemClock, withTimeout, type Clock } from '../lib/clock.js';
import { readWeights, type WeightReader } from './weight-reader.js';

/** Files whose hashes are kept; past it the one that came first is dropped, and hashed again when it is needed. */
const MOST_FILES = 256;

/** Files that are hashed at once, each on a core of its own; others wait. */
const MOST_AT_ONCE = 2;

/** With more threads than this in reads that do not end, a path is tried again only when its own thread has ended. */
const MOST_STUCK = 4;

/** Bytes that are hashed in a millisecond, until it has been measured. */
const FIRST_RATE = 400_000;

/** Hashes that take at least this long show how fast files are read, ms: a short one is mostly the start of its thread. */
const MEASURABLE_MS = 1000;

export type Hashed =
  | { readonly kind: 'hashed'; readonly file: HashedFile }
  /** `why`: one line that follows the file's name. */
  | { readonly kind: 'unread'; readonly why: string };

/** Of a file that was written to, or that another one replaced at its path. */
const CHANGED = unread('changed while it was read');

export class WeightFiles {
  readonly #read: (file: string) => WeightReader;
  readonly #clock: Clock;
  readonly #silenceMs: number;
  /** By the file's key. */
  readonly #known = new Map<string, Promise<Hashed>>();
  /** By path: what is being read, or could not be a short time ago while its thread has not ended. */
  readonly #reading = new Map<string, Promise<Hashed>>();
  /** Files that are hashed or wait for that, with when their hash is expected, by the clock. */
  readonly #hashing = new Map<string, number>();
  #running = 0;
  /** Threads whose file could not be read, and that have not ended. */
  #stuck = 0;
  readonly #waiting: (() => void)[] = [];
  #rate = FIRST_RATE;

  /** `silenceMs`: a file of which nothing can be read for so long is given up. `read`: tests pass their own. */
  constructor(silenceMs: number, clock: Clock = systemClock, read?: (file: string) => WeightReader) {
    this.#read = read ?? ((file) => readWeights(file, clock, silenceMs));
    this.#clock = clock;
    this.#silenceMs = silenceMs;
  }

  /** The file as it is now. Never rejects; calls for one file at the same time share one reading. */
  of(file: string): Promise<Hashed> {
    const reading = this.#reading.get(file);
    if (reading === undefined) return this.#begin(file);
    // It may have begun with the file that was at this path before.
    return reading.then((hashed) => (hashed === CHANGED ? (this.#reading.get(file) ?? this.#begin(file)) : hashed));
  }

  /** The estimated time until this file is hashed, ms; 0: it is not being hashed. */
  msLeft(file: string): number {
    const at = this.#hashing.get(file);
    return at === undefined ? 0 : Math.max(0, at - this.#clock.now());
  }

  #begin(file: string): Promise<Hashed> {
    let reader: WeightReader;
    try {
      reader = this.#read(file);
    } catch (error) {
      // The operating system creates no further thread.
      return Promise.resolve(unreadable(error));
    }
    const hashed = this.#hashed(file, reader);
    this.#reading.set(file, hashed);
    void hashed.then(async (end) => {
      if (end.kind === 'unread' && end !== CHANGED) await this.#untilRetry(reader.ended);
      this.#reading.delete(file);
    });
    return hashed;
  }

  /**
   * Settles when the thread of a file that could not be read has ended, or when its path may be tried again: a read that does not
   * end is not joined by others, but the path may lead to another file system by then.
   */
  async #untilRetry(thread: Promise<void>): Promise<void> {
    this.#stuck += 1;
    const ended = thread.then(() => void (this.#stuck -= 1));
    if (this.#stuck > MOST_STUCK) await ended;
    else await withTimeout(this.#clock, this.#silenceMs, ended);
  }

  async #hashed(file: string, reader: WeightReader): Promise<Hashed> {
    try {
      const key = await reader.found;
      return key === undefined ? unread('cannot be read') : await this.#hashOf(file, key, reader);
    } catch (error) {
      return unreadable(error);
    } finally {
      reader.close();
    }
  }

  #hashOf(file: string, key: string, reader: WeightReader): Promise<Hashed> {
    const before = this.#known.get(key);
    if (before !== undefined) return before;
    const hashed = this.#inTurn(file, key, reader);
    this.#known.set(key, hashed);
    const forget = (): unknown => this.#known.delete(key);
    hashed.then(({ kind }) => kind === 'unread' && forget(), forget);
    for (const first of this.#known.keys()) {
      if (this.#known.size <= MOST_FILES) break;
      this.#known.delete(first);
    }
    return hashed;
  }

  async #inTurn(file: string, key: string, reader: WeightReader): Promise<Hashed> {
    const bytes = sizeIn(key);
    // As if one were read after another, as from one disk.
    const free = Math.max(this.#clock.now(), ...this.#hashing.values());
    this.#hashing.set(file, free + bytes / this.#rate);
    if (this.#running < MOST_AT_ONCE) this.#running += 1;
    else await new Promise<void>((turn) => this.#waiting.push(turn));
    const from = this.#clock.now();
    try {
      const { version, key: then } = await reader.content();
      const took = this.#clock.now() - from;
      if (took >= MEASURABLE_MS) this.#rate = bytes / took;
      return then === key ? { kind: 'hashed', file: { key, version } } : CHANGED;
    } finally {
      this.#hashing.delete(file);
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
  }
}

function unread(why: string): Hashed {
  return { kind: 'unread', why };
}

function unreadable(error: unknown): Hashed {
  return unread(`cannot be read: ${(error as Error).message}`);
}

/**
 * The file that one model's engines load, asked for before each fork: the present file if its weights are those that
 * were loaded first, else the first file's key and hash, so that the engine refuses the present file. Otherwise a
 * replica that is started again could serve other weights than the rest. `unreadable`: called with one line for the operator.
 */
export function sameWeights(
  files: Pick<WeightFiles, 'of'>,
  unreadable: (why: string) => void,
): (setup: Pick<EngineSetup, 'file' | 'weights'>) => Promise<HashedFile | undefined> {
  let first: HashedFile | undefined;
  return async ({ file, weights }) => {
    const hashed = await files.of(file);
    if (hashed.kind === 'unread') unreadable(`${file} ${hashed.why}`);
    const now = hashed.kind === 'hashed' ? hashed.file : undefined;
    const expected = weights ?? first;
    if (expected === undefined) return (first ??= now);
    return now?.version === expected.version ? now : expected;
  };
}
