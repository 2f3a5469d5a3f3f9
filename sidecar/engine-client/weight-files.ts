/**
 * Hashes files of weights, each once: all engines of a host load by the same hash. Known hashes are kept by the file's key, so that a file
 * that changed is hashed again; in a file, so that the next start knows them too. Each file is read in a thread of its own, since gigabytes
 * are read, perhaps from a network share that does not answer: a read cannot be interrupted, and the thread is then left to itself. The end
 * of the process waits for such a thread.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { changedWithin, sizeIn, type HashedFile } from '../../engine/protocol/file-key.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import { systemClock, withTimeout, type Clock } from '../lib/clock.js';
import { replaceFile } from '../lib/replace-file.js';

/** Path of the bundled model, the seedling (`embedded`). Beside the sources, not in dist/. Read-only; engines map it. */
export const EMBEDDED_MODEL = fileURLToPath(new URL('../../../engine/assets/seedling.gguf', import.meta.url));

/** The module of the thread that reads a file. */
const HASHER = fileURLToPath(new URL('./weight-hasher.js', import.meta.url));

/** Files whose hashes are kept; past it the one that came first is dropped, and hashed again when it is needed. */
const MOST_FILES = 256;

/** Files that are hashed at once, each on a core of its own; others wait. */
const MOST_AT_ONCE = 2;

/** With more threads than this in reads that do not end, a path is tried again only when its own thread has ended. */
const MOST_STUCK = 4;

/** Bytes that are hashed in a millisecond, until it has been measured. */
const FIRST_RATE = 400_000;

/**
 * A hash is kept for the next start if the file was unchanged for this many ms before it was read: file systems have coarse clocks, so a
 * change right after another may leave its times as they were.
 */
const SETTLED_MS = 2000;

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
  /** Where hashes are kept; undefined if they are kept nowhere. */
  readonly #keptIn: string | undefined;
  /** What that file has, or is about to. */
  readonly #kept: Map<string, string>;
  #keeping = Promise.resolve();
  #running = 0;
  /** Threads whose file could not be read, and that have not ended. */
  #stuck = 0;
  readonly #waiting: (() => void)[] = [];
  #rate = FIRST_RATE;

  /**
   * `silenceMs`: a file is given up when nothing could be read of it for this long. `keptIn`: the file in which hashes are kept, read now.
   * `read`: tests pass their own.
   */
  constructor(silenceMs: number, clock: Clock = systemClock, read?: (file: string) => WeightReader, keptIn?: string) {
    this.#keptIn = keptIn;
    this.#kept = keptIn === undefined ? new Map<string, string>() : keptHashes(keptIn);
    for (const [key, version] of this.#kept)
      this.#known.set(key, Promise.resolve({ kind: 'hashed', file: { key, version } }));
    this.#read = read ?? ((file) => readWeights(file, clock, silenceMs));
    this.#clock = clock;
    this.#silenceMs = silenceMs;
  }

  /**
   * The file as it is now. Never rejects; calls for one file at the same time share one reading. `key`: the file's identity a moment ago,
   * if another process has determined it; a file that is known by it is not read.
   */
  of(file: string, key?: string): Promise<Hashed> {
    const known = key === undefined ? undefined : this.#known.get(key);
    if (known !== undefined) return known;
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
   * Settles when the thread of a file that could not be read has ended, or when the path may be tried again. Other callers do not wait for
   * a read that does not end, since the path may lead to another file system by then.
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

  /** For the next start. A failure costs that start the time to hash the file again, and nothing else. */
  #keep(key: string, version: string): void {
    const file = this.#keptIn;
    if (file === undefined || changedWithin(key, SETTLED_MS)) return;
    this.#kept.set(key, version);
    for (const first of this.#kept.keys()) {
      if (this.#kept.size <= MOST_FILES) break;
      this.#kept.delete(first);
    }
    const write = async (): Promise<void> => {
      const text = JSON.stringify({ hashes: Object.fromEntries(this.#kept) });
      await replaceFile(file, (draft) => draft.writeFile(text));
    };
    this.#keeping = this.#keeping.then(write).catch(() => undefined);
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
      if (then !== key) return CHANGED;
      this.#keep(key, version);
      return { kind: 'hashed', file: { key, version } };
    } finally {
      this.#hashing.delete(file);
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
  }
}

/** The hashes by key that the file has; none if it cannot be read or is not one of ours: they are found again. */
function keptHashes(file: string): Map<string, string> {
  try {
    const { hashes } = JSON.parse(readFileSync(file, 'utf8')) as { readonly hashes: Readonly<Record<string, unknown>> };
    const valid = Object.entries(hashes).filter((entry): entry is [string, string] =>
      /^[0-9a-f]{64}$/.test(String(entry[1])),
    );
    return new Map(valid.slice(-MOST_FILES));
  } catch {
    return new Map();
  }
}

function unread(why: string): Hashed {
  return { kind: 'unread', why };
}

function unreadable(error: unknown): Hashed {
  return unread(`cannot be read: ${(error as Error).message}`);
}

/**
 * The file that one model's engines load, asked for while each loads it: the present file if its weights are those that
 * were loaded first, else the first file's key and hash, so that the engine refuses the present file. Otherwise a
 * replica that is started again could serve other weights than the rest. `unreadable`: called with one line for the operator.
 */
export function sameWeights(
  files: Pick<WeightFiles, 'of'>,
  unreadable: (why: string) => void,
): (setup: Pick<EngineSetup, 'file' | 'weights'>, key?: string) => Promise<HashedFile | undefined> {
  let first: HashedFile | undefined;
  return async ({ file, weights }, key) => {
    const hashed = await files.of(file, key);
    if (hashed.kind === 'unread') unreadable(`${file} ${hashed.why}`);
    const now = hashed.kind === 'hashed' ? hashed.file : undefined;
    const expected = weights ?? first;
    if (expected === undefined) return (first ??= now);
    return now?.version === expected.version ? now : expected;
  };
}

/** What the thread reports. `key`: of fileKey. */
export type FromHasher =
  | { readonly kind: 'found'; readonly key: string | undefined }
  /** Something was read. */
  | { readonly kind: 'read' }
  | { readonly kind: 'hashed'; readonly version: string; readonly key: string | undefined };

export interface Content {
  /** SHA-256, hex. */
  readonly version: string;
  /** The file's key once all of it was read. */
  readonly key: string | undefined;
}

/** One file that is read. Its owner closes it. */
export interface WeightReader {
  /** The file's key; undefined if there is no such file. Rejects with one line if nothing is known for too long. */
  readonly found: Promise<string | undefined>;
  /** Settles when the thread has ended, long after `close` if it cannot be interrupted. */
  readonly ended: Promise<void>;
  /** Reads all of it. Rejects with one line if it cannot be read, or if nothing could be read for too long. Call it once. */
  content(): Promise<Content>;
  close(): void;
}

/** `silenceMs`: without a byte for so long it is given up. `entry`: another thread, for tests. */
export function readWeights(file: string, clock: Clock, silenceMs: number, entry: string | URL = HASHER): WeightReader {
  const worker = new Worker(entry, { workerData: file });
  let received: (message: FromHasher) => void = () => undefined;
  let failed: (error: Error) => void = () => undefined;
  /** Rejects after `silenceMs` without a message. */
  const next = <T>(take: (message: FromHasher) => T | undefined): Promise<T> =>
    new Promise((resolve, reject) => {
      const silent = (): void =>
        failed(
          new Error(`nothing of it could be read for ${silenceMs / 1000} s, as if its file system did not answer`),
        );
      let cancel = clock.after(silenceMs, silent);
      failed = (error) => {
        cancel();
        reject(error);
      };
      received = (message) => {
        cancel();
        const taken = take(message);
        if (taken === undefined) cancel = clock.after(silenceMs, silent);
        else resolve(taken);
      };
    });
  worker.on('message', (message: FromHasher) => received(message));
  worker.once('error', (error) => failed(error));
  const ended = new Promise<void>((resolve) => {
    worker.once('exit', () => {
      // After a message or an error this does nothing.
      failed(new Error('the thread that reads it ended'));
      resolve();
    });
  });
  const found = next((message) => (message.kind === 'found' ? message : undefined)).then(({ key }) => key);
  found.catch(() => undefined);
  return {
    found,
    ended,
    content: () => {
      const content = next((message) => (message.kind === 'hashed' ? message : undefined));
      worker.postMessage('read');
      return content;
    },
    close: () => {
      worker.unref();
      void worker.terminate();
    },
  };
}
