/**
 * A file of the operator's that is followed while the sidecar runs.
 *
 *     event of the folder ──100 ms──┐
 *     poll: the file has changed ───┼──> read ──> good: taken from now on
 *     refresh(): it has changed ────┤         └─> bad, or gone: said once, what was taken last stays
 *     asked to (SIGHUP) ────────────┘
 *
 * Events tell at once, also of a file that is created, removed or replaced by a rename; network file systems, bind mounts and
 * links send none, so the file is looked at every now and then as well.
 */
import { createHash } from 'node:crypto';
import { watch, type FSWatcher } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type { Clock } from './clock.js';
import { withTimeout } from './timeout.js';
import { NotRegularFile, openRegular } from './regular-file.js';

/** From an event to the look, ms: what writes a file in pieces sends several. */
const SETTLE_MS = 100;

/** From one look that a caller asks for to the next, ms: callers may ask as often as they like. */
const REFRESH_MS = 100;

/** The file cannot be used. `problem` is one line that names neither the file nor what is in it. */
export class FileProblem extends Error {
  override readonly name: string = 'FileProblem';
  readonly problem: string;

  /** `what` the file is, to begin the message with: `keys`. */
  constructor(what: string, problem: string, file: string) {
    super(`${what}: ${problem} (file ${file})`);
    this.problem = problem;
  }
}

export interface FollowOptions<T> {
  readonly clock: Clock;
  readonly file: string;
  /** What the file is, for messages: `keys`. */
  readonly what: string;
  /** A longer file was named by mistake. */
  readonly maxBytes: number;
  /** How often the file is looked at without an event, ms. */
  readonly pollMs: number;
  /** What is in the file. Throws {@link FileProblem}. */
  readonly parse: (text: string) => T;
  /** In place of a file that is not there yet; undefined: there must be one. */
  readonly absent?: T;
  /** Another content is taken, or the same again when asked to. */
  readonly taken: (value: T) => void;
  /** The file cannot be used, for this reason; what was taken last holds on. Said once a state of the file. */
  readonly refused: (problem: string) => void;
}

/** What one look found; `sign` tells one state from another. */
type Found<T> =
  | { readonly kind: 'good'; readonly sign: string; readonly value: T }
  | { readonly kind: 'bad'; readonly sign: string; readonly problem: FileProblem };

/** Whoever opens it closes it. */
export class FollowedFile<T> {
  readonly #options: FollowOptions<T>;
  #watcher: FSWatcher | undefined;
  /** How the file looked last; whatever makes a difference to that calls for a read. */
  #seen: string;
  /** What was said last, so that nothing is said twice. */
  #said: string;
  #reading: Promise<void> | undefined;
  /** Asked for while one runs: one further read, however often. */
  #again = false;
  #sayAnyway = false;
  #cancelSettle: (() => void) | undefined;
  #cancelPoll: () => void = () => undefined;
  #closed = false;
  #refreshedAt = -Infinity;
  #refreshing: Promise<void> | undefined;

  /** Reads the file and follows it from then on. Throws {@link FileProblem}: then nothing is followed. */
  static async open<T>(options: FollowOptions<T>): Promise<{ readonly followed: FollowedFile<T>; readonly value: T }> {
    // Before the read: what changes during it looks different afterwards.
    const seen = await look(options.file);
    const found = await find(options);
    if (found.kind === 'good') return { followed: new FollowedFile(options, seen, found.sign), value: found.value };
    if (found.sign !== NONE || options.absent === undefined) throw found.problem;
    return { followed: new FollowedFile(options, seen, NONE), value: options.absent };
  }

  private constructor(options: FollowOptions<T>, seen: string, said: string) {
    this.#options = options;
    this.#seen = seen;
    this.#said = said;
    this.#follow();
    this.#poll();
  }

  /** Reads the file now and says what it holds, changed or not. Resolves when that is done. */
  reload(): Promise<void> {
    this.#sayAnyway = true;
    return this.#read();
  }

  /**
   * Looks at the file, and reads it if it has changed: for whoever needs what was written a moment ago. At most one look in
   * {@link REFRESH_MS}; between two it resolves at once. It waits no longer than that for a file system that does not answer.
   */
  async refresh(): Promise<void> {
    const { clock } = this.#options;
    const now = clock.now();
    if (this.#refreshing === undefined && now - this.#refreshedAt >= REFRESH_MS && !this.#closed) {
      this.#refreshedAt = now;
      this.#refreshing = this.#readIfChanged().finally(() => (this.#refreshing = undefined));
    }
    if (this.#refreshing !== undefined) await withTimeout(clock, REFRESH_MS, this.#refreshing);
  }

  /** Follows the file no longer; what was taken last stays. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#watcher?.close();
    this.#cancelSettle?.();
    this.#cancelPoll();
  }

  /** One read at a time; what is asked for meanwhile is one more after it. */
  #read(): Promise<void> {
    this.#again = true;
    this.#reading ??= (async () => {
      while (this.#again && !this.#closed) {
        this.#again = false;
        await this.#readOnce();
      }
      this.#reading = undefined;
    })();
    return this.#reading;
  }

  async #readOnce(): Promise<void> {
    this.#seen = await look(this.#options.file);
    const found = await find(this.#options);
    if (this.#closed || (found.sign === this.#said && !this.#sayAnyway)) return;
    // There was no folder to watch when it was opened, perhaps.
    if (this.#watcher === undefined) this.#follow();
    this.#said = found.sign;
    this.#sayAnyway = false;
    if (found.kind === 'good') this.#options.taken(found.value);
    else this.#options.refused(found.problem.problem);
  }

  /** Events of the folder, since the file itself is replaced. None where there is no folder yet, or none can be had. */
  #follow(): void {
    const name = basename(this.#options.file);
    this.#watcher?.close();
    this.#watcher = undefined;
    try {
      const watcher = watch(dirname(this.#options.file), { persistent: false }, (_, about) => {
        if (about === null || about === name) this.#settle();
      });
      watcher.on('error', () => watcher.close());
      this.#watcher = watcher;
    } catch {
      // The poll sees to it.
    }
  }

  /** The first of several events sets the time, so that a file that never comes to rest is read nonetheless. */
  #settle(): void {
    if (this.#closed) return;
    this.#cancelSettle ??= this.#options.clock.after(SETTLE_MS, () => {
      this.#cancelSettle = undefined;
      void this.#read();
    });
  }

  #poll(): void {
    if (this.#closed) return;
    this.#cancelPoll = this.#options.clock.after(this.#options.pollMs, () => void this.#lookAgain());
  }

  async #lookAgain(): Promise<void> {
    await this.#readIfChanged(() => this.#follow());
    this.#poll();
  }

  /** `unheard`: there was no event of the change, perhaps because the folder is another one by now. */
  async #readIfChanged(unheard: () => void = () => undefined): Promise<void> {
    if ((await look(this.#options.file)) !== this.#seen) {
      if (!this.#closed) unheard();
      await this.#read();
    } else await this.#reading;
  }
}

/** The sign of a file that is not there. */
const NONE = 'none';

/** How a file looks without reading it. Its change time shows what a restored modification time hides. */
async function look(file: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(' ');
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}

async function find<T>({ what, file, maxBytes, parse }: FollowOptions<T>): Promise<Found<T>> {
  let sign = NONE;
  try {
    const text = await readText(what, file, maxBytes);
    if (text === undefined) return { kind: 'bad', sign, problem: new FileProblem(what, 'does not exist', file) };
    sign = createHash('sha256').update(text).digest('hex');
    return { kind: 'good', sign, value: parse(text) };
  } catch (error) {
    if (!(error instanceof FileProblem)) throw error;
    return { kind: 'bad', sign: `${sign} ${error.problem}`, problem: error };
  }
}

/** The file's text; undefined: there is none. Throws {@link FileProblem} when it cannot be read or is longer than `maxBytes`. */
export async function readText(what: string, file: string, maxBytes: number): Promise<string | undefined> {
  try {
    const handle = await openRegular(file);
    try {
      const { size } = await handle.stat();
      if (size > maxBytes) throw new FileProblem(what, `is longer than ${maxBytes} bytes`, file);
      return await handle.readFile('utf8');
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof FileProblem) throw error;
    if (error instanceof NotRegularFile) throw new FileProblem(what, error.message, file);
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    throw new FileProblem(what, `cannot be read: ${code ?? 'unknown'}`, file);
  }
}
