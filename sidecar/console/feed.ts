/**
 * The feed for the console's viewers: one snapshot per interval, made once for all viewers and only while there is one.
 * Nothing is queued: a viewer that has not read the last snapshot misses the next one.
 *
 *     no viewer ──join()──> active: take, send to all, wait ─┐
 *       ^                    ^                              │
 *       └── last leave() ────┴──────── the interval ────────┘
 */
import type { Clock } from '../lib/clock.js';

/** One open stream. */
export interface Viewer {
  /** Bytes that its reader has not read; 0: all are sent. */
  unread(): number;
  /** Sends one frame; the text has no line break. */
  event(text: string): void;
  /** Ends the stream. */
  end(): void;
}

export interface FeedOptions {
  /** Time from the end of one snapshot to the start of the next, ms. */
  readonly intervalMs: number;
  /** The most viewers at once. */
  readonly viewers: number;
}

/**
 * The feed. The code that makes it closes it; the code that opens a viewer's stream owns the viewer and reports when it
 * has left.
 */
export class ConsoleFeed {
  readonly #clock: Clock;
  readonly #options: FeedOptions;
  readonly #take: () => Promise<string>;
  readonly #onFault: (fault: unknown) => void;
  readonly #viewers = new Set<Viewer>();
  /** The last snapshot while there are viewers, which a new viewer gets at once. */
  #last: string | undefined;
  #taking = false;
  #cancel: () => void = () => undefined;
  #closed = false;

  /** `take` makes a snapshot on one line. If it fails, `onFault` is called and all streams are ended. */
  constructor(clock: Clock, options: FeedOptions, take: () => Promise<string>, onFault: (fault: unknown) => void) {
    this.#clock = clock;
    this.#options = options;
    this.#take = take;
    this.#onFault = onFault;
  }

  /** Whether the limit of viewers is reached. */
  get full(): boolean {
    return this.#closed || this.#viewers.size >= this.#options.viewers;
  }

  /** Sends to `viewer` from now on, until it leaves or the feed is closed. Must not be called while {@link full}. */
  join(viewer: Viewer): void {
    this.#viewers.add(viewer);
    if (this.#last !== undefined) viewer.event(this.#last);
    else this.#round();
  }

  /** `viewer` has disconnected. Idempotent. */
  leave(viewer: Viewer): void {
    this.#viewers.delete(viewer);
    if (this.#viewers.size === 0) this.#rest();
  }

  /** Ends all streams; new viewers are accepted. */
  dismiss(): void {
    for (const viewer of this.#viewers) viewer.end();
    this.#viewers.clear();
    this.#rest();
  }

  /** Ends all streams and stops making snapshots. Idempotent. */
  close(): void {
    this.#closed = true;
    this.dismiss();
  }

  #round(): void {
    // A snapshot that is being made is sent to viewers that joined meanwhile.
    if (this.#taking) return;
    this.#taking = true;
    this.#take().then(
      (text) => {
        this.#taking = false;
        if (this.#viewers.size > 0) this.#send(text);
      },
      (fault: unknown) => {
        this.#taking = false;
        this.#onFault(fault);
        // Their pages reconnect with increasing delays.
        this.dismiss();
      },
    );
  }

  #send(text: string): void {
    this.#last = text;
    for (const viewer of this.#viewers) if (viewer.unread() === 0) viewer.event(text);
    this.#cancel = this.#clock.after(this.#options.intervalMs, () => this.#round());
  }

  #rest(): void {
    this.#cancel();
    this.#last = undefined;
  }
}
