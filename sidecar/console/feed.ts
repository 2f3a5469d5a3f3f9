/**
 * What the console's viewers are sent: a snapshot at each interval, made once for all of them, and only while there is
 * one. Nothing is queued for anybody: a viewer who has not taken the last snapshot is left out of this one.
 *
 *     nobody ──join()──> watched: take, send to all, wait ─┐
 *       ^                   ^                              │
 *       └── last leave() ───┴──────── the interval ────────┘
 */
import type { Clock } from '../lib/clock.js';

/** One open stream. */
export interface Viewer {
  /** Bytes that its reader has not taken; 0: all are on their way. */
  unread(): number;
  /** Sends one frame; the text has no line break. */
  event(text: string): void;
  /** Sends the end. */
  end(): void;
}

export interface FeedOptions {
  /** Between the end of one snapshot's making and the beginning of the next, ms. */
  readonly intervalMs: number;
  /** Who may watch at once. */
  readonly viewers: number;
}

/** The feed. Whoever makes it closes it; a viewer is whoever's opened its stream, who also says when it has left. */
export class ConsoleFeed {
  readonly #clock: Clock;
  readonly #options: FeedOptions;
  readonly #take: () => Promise<string>;
  readonly #onFault: (fault: unknown) => void;
  readonly #viewers = new Set<Viewer>();
  /** The last snapshot, while somebody watches: a newcomer need not wait for the next. */
  #last: string | undefined;
  #taking = false;
  #cancel: () => void = () => undefined;
  #closed = false;

  /** `take` makes a snapshot, on one line. When it fails, `onFault` hears of it and all viewers are sent away. */
  constructor(clock: Clock, options: FeedOptions, take: () => Promise<string>, onFault: (fault: unknown) => void) {
    this.#clock = clock;
    this.#options = options;
    this.#take = take;
    this.#onFault = onFault;
  }

  /** Nobody more may join. */
  get full(): boolean {
    return this.#closed || this.#viewers.size >= this.#options.viewers;
  }

  /** Sends to `viewer` from now on, until it leaves or the feed is closed. Not to be called while {@link full}. */
  join(viewer: Viewer): void {
    this.#viewers.add(viewer);
    if (this.#last !== undefined) viewer.event(this.#last);
    else this.#round();
  }

  /** `viewer` is gone. Idempotent. */
  leave(viewer: Viewer): void {
    this.#viewers.delete(viewer);
    if (this.#viewers.size === 0) this.#rest();
  }

  /** Ends all streams; nothing is made any more. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#dismiss();
  }

  #round(): void {
    // One that is under way goes to whoever joined meanwhile.
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
        // They come again by themselves, later and later.
        this.#dismiss();
      },
    );
  }

  #send(text: string): void {
    this.#last = text;
    for (const viewer of this.#viewers) if (viewer.unread() === 0) viewer.event(text);
    this.#cancel = this.#clock.after(this.#options.intervalMs, () => this.#round());
  }

  #dismiss(): void {
    for (const viewer of this.#viewers) viewer.end();
    this.#viewers.clear();
    this.#rest();
  }

  #rest(): void {
    this.#cancel();
    this.#last = undefined;
  }
}
