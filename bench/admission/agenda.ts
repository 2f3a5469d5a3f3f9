import type { Clock } from '../../sidecar/lib/clock.js';

interface Event {
  readonly at: number;
  readonly order: number;
  /** undefined once cancelled. */
  fn: (() => void) | undefined;
}

/**
 * Future events as a clock: time jumps from event to event. A heap, since a queue under ten times its load has
 * thousands of timers, among which test/support’s FakeClock would search each time.
 */
export class Agenda implements Clock {
  #now = 0;
  #made = 0;
  /** Binary heap: no event is later than those at twice its index, plus 1 and plus 2. */
  readonly #events: Event[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, fn: () => void): () => void {
    const event: Event = { at: this.#now + Math.max(ms, 0), order: this.#made++, fn };
    this.#events.push(event);
    this.#rise(this.#events.length - 1);
    return () => (event.fn = undefined);
  }

  /**
   * Runs the next event, unless it is later than `until`. False: there is none. Events of equal times run in the order
   * of their creation.
   */
  step(until: number): boolean {
    for (let first = this.#events[0]; first !== undefined && first.at <= until; first = this.#events[0]) {
      this.#removeFirst();
      if (first.fn === undefined) continue;
      this.#now = first.at;
      first.fn();
      return true;
    }
    return false;
  }

  #removeFirst(): void {
    const last = this.#events.pop();
    if (last === undefined || this.#events.length === 0) return;
    this.#events[0] = last;
    this.#sink();
  }

  #rise(from: number): void {
    for (let at = from; at > 0;) {
      const parent = (at - 1) >> 1;
      if (!this.#swapUnless(parent, at)) return;
      at = parent;
    }
  }

  #sink(): void {
    for (let at = 0; ;) {
      const left = 2 * at + 1;
      const right = left + 1;
      const child = this.#before(right, left) ? right : left;
      if (!this.#swapUnless(at, child)) return;
      at = child;
    }
  }

  /** True if they were in the wrong order. */
  #swapUnless(upper: number, lower: number): boolean {
    if (!this.#before(lower, upper)) return false;
    const [a, b] = [this.#events[upper], this.#events[lower]];
    if (a === undefined || b === undefined) return false;
    this.#events[upper] = b;
    this.#events[lower] = a;
    return true;
  }

  #before(i: number, j: number): boolean {
    const [a, b] = [this.#events[i], this.#events[j]];
    if (a === undefined || b === undefined) return false;
    return a.at < b.at || (a.at === b.at && a.order < b.order);
  }
}
