/** One that was counted; {@link SlidingWindow.remove} takes it out again, once. */
export interface Stamp {
  /** Clock reading. */
  readonly at: number;
  older: Stamp | undefined;
  newer: Stamp | undefined;
  /** In the window, as far as that was looked at. */
  counted: boolean;
}

/**
 * How many there were in the last `spanMs`: exact, since each has its own time.
 *
 *     oldest ─ ○ ─ ○ ─ ○ ─ newest        left behind at the oldest end, added at the newest, removed anywhere
 *
 * A list and not a ring, because one that is removed leaves no gap: memory is what counts now and nothing else, however
 * many come and are removed. A stamp counts from its own time on and no more `spanMs` after it, to the millisecond's
 * fraction. The clock never goes back.
 */
export class SlidingWindow {
  readonly #spanMs: number;
  #oldest: Stamp | undefined;
  #newest: Stamp | undefined;
  #count = 0;

  constructor(spanMs: number) {
    this.#spanMs = spanMs;
  }

  /** Those that count at `now`. Each is left behind once, so this costs next to nothing. */
  countAt(now: number): number {
    while (this.#oldest && this.#oldest.at + this.#spanMs <= now) this.remove(this.#oldest);
    return this.#count;
  }

  /** Counts one more. `now`: not before any that was added. */
  add(now: number): Stamp {
    const stamp: Stamp = { at: now, older: this.#newest, newer: undefined, counted: true };
    if (this.#newest) this.#newest.newer = stamp;
    else this.#oldest = stamp;
    this.#newest = stamp;
    this.#count++;
    return stamp;
  }

  /** Takes one out, as if it had never been; one that was left behind or removed is not there to be taken. */
  remove(stamp: Stamp): void {
    if (!stamp.counted) return;
    stamp.counted = false;
    if (stamp.older) stamp.older.newer = stamp.newer;
    else this.#oldest = stamp.newer;
    if (stamp.newer) stamp.newer.older = stamp.older;
    else this.#newest = stamp.older;
    // Who keeps a stamp, keeps no others.
    stamp.older = stamp.newer = undefined;
    this.#count--;
  }

  /**
   * Milliseconds from `now` until fewer than `limit` count, if none is added. Walks past those above the limit, of which
   * there are some only in the `spanMs` after the limit was lowered.
   */
  waitUntilBelow(limit: number, now: number): number {
    let over = this.countAt(now) - limit;
    let last = over < 0 ? undefined : this.#oldest;
    for (; over > 0 && last; over--) last = last.newer;
    return last === undefined ? 0 : last.at + this.#spanMs - now;
  }
}
