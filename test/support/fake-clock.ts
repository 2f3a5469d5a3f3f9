import type { Clock } from '../../sidecar/lib/clock.js';

interface Timer {
  readonly at: number;
  readonly fn: () => void;
}

/** A clock that moves only on command. Timers fire in the order of their times, then of their creation. */
export class FakeClock implements Clock {
  #now = 0;
  readonly #timers = new Set<Timer>();

  /** Timers that have neither fired nor been cancelled. */
  get pending(): number {
    return this.#timers.size;
  }

  now(): number {
    return this.#now;
  }

  after(ms: number, fn: () => void): () => void {
    const timer = { at: this.#now + Math.max(ms, 0), fn };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Advances time by `ms`, firing due timers on the way, those created meanwhile included. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (let timer = this.#next(end); timer !== undefined; timer = this.#next(end)) {
      this.#now = Math.max(this.#now, timer.at);
      this.#timers.delete(timer);
      timer.fn();
    }
    this.#now = end;
  }

  /** Advances time to the next timer that is due by `end` and fires it alone. False: there is none, and it is `end`. */
  step(end: number): boolean {
    const timer = this.#next(end);
    this.#now = Math.max(this.#now, timer?.at ?? end);
    if (timer) this.#timers.delete(timer);
    timer?.fn();
    return timer !== undefined;
  }

  #next(end: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) if (timer.at <= end && (!first || timer.at < first.at)) first = timer;
    return first;
  }
}
