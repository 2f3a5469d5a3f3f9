/** A counted event; {@link SlidingWindow.remove} removes it, once. */
export interface Stamp {
  /** Clock reading. */
  readonly at: number;
  older: Stamp | undefined;
  newer: Stamp | undefined;
  /** Whether it is in the window, as of the last check. */
  counted: boolean;
}

/**
 * Number of events in the last `spanMs`: exact, since each has its own time.
 *
 *     oldest ─ ○ ─ ○ ─ ○ ─ newest        expired at the oldest end, added at the newest, removed anywhere
 *
 * A linked list rather than a ring buffer, since removals then leave no gap: memory is proportional to the counted
 * events only. A stamp counts from its own time for exactly `spanMs`. The clock must never go back.
 */
export class SlidingWindow {
  readonly #spanMs: number;
  #oldest: Stamp | undefined;
  #newest: Stamp | undefined;
  #count = 0;

  constructor(spanMs: number) {
    this.#spanMs = spanMs;
  }

  /** Number of events that count at `now`. Each expires once, so the amortized cost is constant. */
  countAt(now: number): number {
    while (this.#oldest && this.#oldest.at + this.#spanMs <= now) this.remove(this.#oldest);
    return this.#count;
  }

  /** Adds an event. `now` must not be before any that was added. */
  add(now: number): Stamp {
    const stamp: Stamp = { at: now, older: this.#newest, newer: undefined, counted: true };
    if (this.#newest) this.#newest.newer = stamp;
    else this.#oldest = stamp;
    this.#newest = stamp;
    this.#count++;
    return stamp;
  }

  /** Removes an event; does nothing if it has expired or was removed. */
  remove(stamp: Stamp): void {
    if (!stamp.counted) return;
    stamp.counted = false;
    if (stamp.older) stamp.older.newer = stamp.newer;
    else this.#oldest = stamp.newer;
    if (stamp.newer) stamp.newer.older = stamp.older;
    else this.#newest = stamp.older;
    // So that a kept stamp does not keep others alive.
    stamp.older = stamp.newer = undefined;
    this.#count--;
  }

  /**
   * Milliseconds from `now` until fewer than `limit` count, if none is added. Iterates over those above the limit,
   * which exist only in the `spanMs` after the limit was lowered.
   */
  waitUntilBelow(limit: number, now: number): number {
    let over = this.countAt(now) - limit;
    let last = over < 0 ? undefined : this.#oldest;
    for (; over > 0 && last; over--) last = last.newer;
    return last === undefined ? 0 : last.at + this.#spanMs - now;
  }
}
