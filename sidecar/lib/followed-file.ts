/**
 * A file of the operator that the sidecar watches while it runs.
 *
 *     event of the folder ──100 ms──┐
 *     poll: the file has changed ───┼──> read ──> valid: in force from now on
 *     refresh(): it has changed ────┤         └─> invalid or missing: reported once, the last content stays
 *     reload() (SIGHUP) ────────────┘
 *
 * File system events are immediate, also for a file that is created, removed or replaced by a rename. Network file
 * systems, bind mounts and links send none, so the file is polled as well.
 */
import { watch, type FSWatcher } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { ABSENT, UnreadFile, type CheckResult } from './checked-file.js';
import { withTimeout, type Clock } from './clock.js';

/** Time from an event to the check, ms: a program that writes a file in pieces causes several events. */
const SETTLE_MS = 100;

/** Time between two checks that callers of refresh() cause, ms. */
const REFRESH_MS = 100;

/** The longest time that a caller of refresh() waits, ms: a large file is read within it, unless the host is very busy. */
const REFRESH_WAIT_MS = 5000;

/** The state of no file. */
const NOT_READ = '';

export interface FollowOptions<T> {
  readonly clock: Clock;
  readonly file: string;
  readonly read: () => Promise<CheckResult<T>>;
  /** How often the file is checked without an event, ms. */
  readonly pollMs: number;
  /** The value if the file does not exist; undefined if the file must exist. */
  readonly absent?: T;
  /** Called with new content, or with the same content after reload(). */
  readonly taken: (value: T) => void;
  /** Called once for each state in which the file cannot be used; the last content stays in force. */
  readonly refused: (problem: string) => void;
}

/** The content of a followed file that is in force. */
export interface FileInForce {
  /** SHA-256 of the content, hex, or {@link ABSENT}. */
  readonly sign: string;
  /** Why the file cannot be used as it is now; absent: its content is in force. */
  readonly problem?: string;
}

/** Owned by the code that opens it, which must close it. */
export class FollowedFile<T> {
  readonly #options: FollowOptions<T>;
  #watcher: FSWatcher | undefined;
  /** The file's state at the last check; a difference causes a read. */
  #seen: string;
  /** The last state that was reported, so that none is reported twice. */
  #reported: string;
  #inForce: FileInForce;
  #reading: Promise<void> | undefined;
  /** Reads requested while one runs are combined into one further read. */
  #readRequested = false;
  #reportsUnchanged = false;
  #cancelSettle: (() => void) | undefined;
  #cancelPoll: () => void = () => undefined;
  #closed = false;
  #refreshedAt = -Infinity;
  #refreshing: Promise<void> | undefined;

  /** Reads the file and watches it from then on. Throws {@link FileProblem} without watching. */
  static async open<T>(options: FollowOptions<T>): Promise<{ readonly followed: FollowedFile<T>; readonly value: T }> {
    // Taken before the read, so that a change during the read is noticed later.
    const seen = await look(options.file);
    const found = await options.read();
    if (found.kind === 'good') return { followed: new FollowedFile(options, seen, found.sign), value: found.value };
    if (found.sign !== ABSENT || options.absent === undefined) throw found.problem;
    return { followed: new FollowedFile(options, seen, ABSENT), value: options.absent };
  }

  private constructor(options: FollowOptions<T>, seen: string, sign: string) {
    this.#options = options;
    this.#seen = seen;
    this.#reported = sign;
    this.#inForce = { sign };
    this.#follow();
    this.#poll();
  }

  /** What was last taken of the file, and why it cannot be used as it is now, if so. */
  get inForce(): FileInForce {
    return this.#inForce;
  }

  /** Reads the file now and reports its content, changed or not. Resolves afterwards. */
  reload(): Promise<void> {
    this.#reportsUnchanged = true;
    return this.#read();
  }

  /**
   * Checks the file, and reads it if it has changed, for callers that need a change made a moment ago. Checks at most
   * once in {@link REFRESH_MS}; calls in between wait for the check that runs, if any. If the file system does not
   * answer, it waits no longer than {@link REFRESH_WAIT_MS}.
   */
  async refresh(): Promise<void> {
    const { clock } = this.#options;
    const now = clock.now();
    if (this.#refreshing === undefined && now - this.#refreshedAt >= REFRESH_MS && !this.#closed) {
      this.#refreshedAt = now;
      this.#refreshing = this.#readIfChanged().finally(() => (this.#refreshing = undefined));
    }
    if (this.#refreshing !== undefined) await withTimeout(clock, REFRESH_WAIT_MS, this.#refreshing);
  }

  /** Stops watching; the last content stays. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#watcher?.close();
    this.#cancelSettle?.();
    this.#cancelPoll();
  }

  /** One read at a time; requests during a read cause one more. */
  #read(): Promise<void> {
    this.#readRequested = true;
    this.#reading ??= (async () => {
      try {
        while (this.#readRequested && !this.#closed) {
          this.#readRequested = false;
          await this.#readOnce();
        }
      } finally {
        this.#reading = undefined;
      }
    })();
    return this.#reading;
  }

  /** A fault of what reads the file or uses its content is reported once, and the file is read again with the next check. */
  async #readOnce(): Promise<void> {
    try {
      await this.#take();
    } catch (error) {
      this.#seen = NOT_READ;
      const problem = `cannot be used: ${error instanceof Error ? error.name : typeof error}`;
      if (this.#closed || this.#reported === problem) return;
      this.#reported = problem;
      this.#inForce = { sign: this.#inForce.sign, problem };
      this.#options.refused(problem);
    }
  }

  async #take(): Promise<void> {
    this.#seen = await look(this.#options.file);
    const found = await this.#options.read();
    // The next check reads it again, although it has not changed by then.
    if (found.kind === 'bad' && found.problem instanceof UnreadFile) this.#seen = NOT_READ;
    if (this.#closed || (found.sign === this.#reported && !this.#reportsUnchanged)) return;
    // The folder may not have existed when the file was opened.
    if (this.#watcher === undefined) this.#follow();
    if (found.kind === 'good') {
      this.#options.taken(found.value);
      this.#inForce = { sign: found.sign };
    } else {
      this.#options.refused(found.problem.problem);
      this.#inForce = { sign: this.#inForce.sign, problem: found.problem.problem };
    }
    // Not before: what uses the content may throw, and then gets it again.
    this.#reported = found.sign;
    this.#reportsUnchanged = false;
  }

  /** Watches the folder, since the file itself is replaced. Does nothing if the folder does not exist or cannot be watched. */
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
      // Polling takes over.
    }
  }

  /** The first of several events starts the timer, so that a file that changes continuously is still read. */
  #settle(): void {
    if (this.#closed) return;
    this.#cancelSettle ??= this.#options.clock.after(SETTLE_MS, () => {
      this.#cancelSettle = undefined;
      void this.#read();
    });
  }

  #poll(): void {
    if (this.#closed) return;
    this.#cancelPoll = this.#options.clock.after(this.#options.pollMs, () => void this.#pollOnce());
  }

  async #pollOnce(): Promise<void> {
    try {
      await this.#readIfChanged();
    } finally {
      this.#poll();
    }
  }

  async #readIfChanged(): Promise<void> {
    if ((await look(this.#options.file)) === this.#seen) {
      await this.#reading;
      return;
    }
    // The change may have caused no event because the folder was replaced.
    if (!this.#closed) this.#follow();
    await this.#read();
  }
}

/** The file's state without reading it. The change time shows a change even if the modification time was restored. */
async function look(file: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(' ');
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}
