/**
 * What a process has opened, as a stack: each part adds what closes it as soon as it is open. A start that fails, a signal
 * during the start and a drain close the same stack, the last part first, so that each is closed before those that it uses.
 *
 *     add ──> open ──close(): its turn──> closes ──ended, failed, or its bound has passed──> the one below
 *
 * A part that is opened before those that it uses, since its start takes long, is raised once they are open.
 * A part that is opened while or after the others are closed, since its start ran meanwhile, is closed too, and its start fails.
 */
import { withTimeout, type Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';

/** The bound of a part that waits for nothing outside of this process, or has a shorter bound of its own, ms. */
export const PART_MS = 10_000;

export interface Closer {
  /** The part's name, for the log. */
  readonly name: string;
  /** What it returns is awaited. */
  readonly close: () => unknown;
  /** After this time the part below is closed, ms. Absent: {@link PART_MS}. */
  readonly withinMs?: number;
  /** Reports that this time has passed. Absent: an error with the part's name is logged. */
  readonly timedOut?: () => void;
}

/** Thrown by {@link Closers.add}: the start is to end, since all that it opened is closed. */
export class StartEnded extends Error {
  override readonly name = 'StartEnded';

  constructor() {
    super('the start was ended');
  }
}

export class Closers {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #open: Closer[] = [];
  #closing: Promise<void> | undefined;

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
  }

  /** A part is open. Its `close` is called once. Throws {@link StartEnded} if the others are closed; then this one is closed too. */
  add(closer: Closer): void {
    this.#open.push(closer);
    if (this.#closing === undefined) return;
    this.#closing = this.#closing.then(() => this.#closeAll());
    throw new StartEnded();
  }

  /** A part that was added is closed before all that were added since. Throws {@link StartEnded} if it is closed. */
  raise(closer: Closer): void {
    const at = this.#open.indexOf(closer);
    if (at < 0) throw new StartEnded();
    this.#open.push(...this.#open.splice(at, 1));
  }

  /** Closes all parts that are open, one after another. Faults are logged. Never rejects. May be called again, and during a start. */
  close(): Promise<void> {
    this.#closing ??= this.#closeAll();
    return this.#closing;
  }

  async #closeAll(): Promise<void> {
    for (let closer = this.#open.pop(); closer; closer = this.#open.pop()) await this.#closeOne(closer);
  }

  async #closeOne({ name, close, withinMs = PART_MS, timedOut }: Closer): Promise<void> {
    try {
      if (await withTimeout(this.#clock, withinMs, Promise.resolve(close()))) return;
      if (timedOut) timedOut();
      else this.#log.error('part not closed in time', { reason: name });
    } catch (fault) {
      this.#log.error('part not closed', { reason: name, fault });
    }
  }
}
