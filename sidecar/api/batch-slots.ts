/**
 * How many lines of batches are in a model's queue at once: as many as its queue takes, found out by its refusals. Each answered line lets
 * one more in, and a refusal one fewer, after a wait. Free slots go to the account that has the fewest, in turn; lines that were refused
 * come before others.
 */
import type { Signal } from '../lib/abort.js';
import type { Clock } from '../lib/clock.js';

/** Lines that are prepared for seats, besides those on the seats. */
export const PREPARED = 16;

const FIRST_LIMIT = 4;

/** The wait after a refusal, ms: doubled by each further one, until a line is answered. */
const PAUSE_MS = 500;
const MOST_PAUSE_MS = 30_000;

interface Waiter {
  readonly account: string;
  readonly isRetry: boolean;
  readonly resolve: (given: boolean) => void;
}

interface ModelSlots {
  limit: number;
  readonly taken: Map<string, number>;
  all: number;
  pauseMs: number;
  pausedUntil: number;
  cancelTimer: (() => void) | undefined;
  readonly waiters: Waiter[];
}

export class BatchSlots {
  readonly #clock: Clock;
  readonly #most: (model: string) => number;
  readonly #models = new Map<string, ModelSlots>();

  /** `most`: the most lines of a model at once. */
  constructor(clock: Clock, most: (model: string) => number) {
    this.#clock = clock;
    this.#most = most;
  }

  /** Resolves with true once there is a slot, which `release` gives back, and with false if `signal` is aborted before. */
  acquire(model: string, account: string, isRetry: boolean, signal: Signal): Promise<boolean> {
    if (signal.aborted) return Promise.resolve(false);
    const slots = this.#of(model);
    return new Promise((resolve) => {
      const leave = (): void => {
        slots.waiters.splice(slots.waiters.indexOf(waiter), 1);
        resolve(false);
      };
      const waiter: Waiter = {
        account,
        isRetry,
        resolve: (given) => {
          signal.removeEventListener('abort', leave);
          resolve(given);
        },
      };
      slots.waiters.push(waiter);
      signal.addEventListener('abort', leave);
      this.#give(model, slots);
    });
  }

  /** `how`: `refused`: by the queue, since there was no room. */
  release(model: string, account: string, how: 'answered' | 'refused' | 'other'): void {
    const slots = this.#of(model);
    const left = (slots.taken.get(account) ?? 1) - 1;
    if (left > 0) slots.taken.set(account, left);
    else slots.taken.delete(account);
    slots.all -= 1;
    if (how === 'answered') {
      slots.limit = Math.min(this.#most(model), slots.limit + 1);
      slots.pauseMs = PAUSE_MS;
    } else if (how === 'refused') {
      slots.limit = Math.max(1, Math.min(slots.limit - 1, slots.all));
      slots.pausedUntil = this.#clock.now() + slots.pauseMs;
      slots.pauseMs = Math.min(2 * slots.pauseMs, MOST_PAUSE_MS);
    }
    this.#give(model, slots);
  }

  #of(model: string): ModelSlots {
    let slots = this.#models.get(model);
    if (slots === undefined) {
      const limit = Math.min(FIRST_LIMIT, this.#most(model));
      slots = {
        limit,
        taken: new Map(),
        all: 0,
        pauseMs: PAUSE_MS,
        pausedUntil: 0,
        cancelTimer: undefined,
        waiters: [],
      };
      this.#models.set(model, slots);
    }
    return slots;
  }

  #give(model: string, slots: ModelSlots): void {
    const waitMs = slots.pausedUntil - this.#clock.now();
    if (waitMs > 0) {
      slots.cancelTimer ??= this.#clock.after(waitMs, () => {
        slots.cancelTimer = undefined;
        this.#give(model, slots);
      });
      return;
    }
    while (slots.all < slots.limit && slots.waiters.length > 0) {
      const [next] = slots.waiters.splice(this.#next(slots), 1);
      if (next === undefined) return;
      slots.all += 1;
      slots.taken.set(next.account, (slots.taken.get(next.account) ?? 0) + 1);
      next.resolve(true);
    }
  }

  /** The index of the waiter that comes next: the first one with the fewest slots. */
  #next({ waiters, taken }: ModelSlots): number {
    let best = 0;
    const rank = ({ account, isRetry }: Waiter): number => (taken.get(account) ?? 0) - (isRetry ? 0.5 : 0);
    waiters.forEach((waiter, i) => {
      const first = waiters[best];
      if (first !== undefined && rank(waiter) < rank(first)) best = i;
    });
    return best;
  }
}
