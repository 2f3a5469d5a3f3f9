/**
 * When a line of a batch may begin: it needs a turn of its batch ({@link BatchGate}) and a slot of its model ({@link BatchSlots}).
 *
 * Slots are how many lines of batches are in a model's queue at once: as many as its queue takes, found out by its refusals. Each answered
 * line lets one more in, and a refusal one fewer, after a wait. Free slots go to the account that has the fewest, in turn; lines that were
 * refused come before others.
 */
import type { BatchProblem } from '../batch/batch-store.js';
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

class ModelSlots {
  limit: number;
  readonly taken = new Map<string, number>();
  all = 0;
  pauseMs = PAUSE_MS;
  pausedUntil = 0;
  cancelTimer: (() => void) | undefined;
  readonly waiters: Waiter[] = [];

  constructor(limit: number) {
    this.limit = limit;
  }
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
    const slots = this.#of(model);
    return unlessAborted(signal, false, (resolve) => {
      const waiter: Waiter = { account, isRetry, resolve };
      slots.waiters.push(waiter);
      this.#give(model, slots);
      return () => slots.waiters.splice(slots.waiters.indexOf(waiter), 1);
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
    const slots = this.#models.get(model) ?? new ModelSlots(Math.min(FIRST_LIMIT, this.#most(model)));
    this.#models.set(model, slots);
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

/** The longest wait, ms: what is waited for may come earlier. */
const MOST_WAIT_MS = 60_000;

/** Lines of one batch that may wait for tokens of a quota which has some, while others run. */
const MOST_ALONE = 16;

/** Resolves with true after a time, at most {@link MOST_WAIT_MS}, and with false once `signal` is aborted. */
export function pause(clock: Clock, ms: number, signal: Signal): Promise<boolean> {
  return unlessAborted(signal, false, (resolve) => clock.after(Math.min(ms, MOST_WAIT_MS), () => resolve(true)));
}

/** Resolves with what `begin` passes on, and with `otherwise` once `signal` is aborted; then what `begin` returned is called. */
function unlessAborted<T>(
  signal: Signal,
  otherwise: T,
  begin: (resolve: (value: T) => void) => () => unknown,
): Promise<T> {
  if (signal.aborted) return Promise.resolve(otherwise);
  return new Promise((resolve) => {
    const leave = (): void => {
      undo();
      resolve(otherwise);
    };
    signal.addEventListener('abort', leave);
    const undo = begin((value) => {
      signal.removeEventListener('abort', leave);
      resolve(value);
    });
  });
}

/** `trial`: the only one after a pause. */
export type Turn = 'free' | 'trial';

interface Comer {
  readonly isRetry: boolean;
  readonly resolve: (turn: Turn | undefined) => void;
}

/**
 * Lets the lines of one batch begin, but for pauses:
 *
 *     open ──pause──> paused ──time──> one line is tried ──it needs no pause──> open
 *                        └──────<──────────┘ it needs another one
 *
 * Lines that are tried again go before others, so that a long pause lets at most one more line in, which then waits too.
 */
export class BatchGate {
  readonly #clock: Clock;
  readonly #comers: Comer[] = [];
  #pausedUntil = -Infinity;
  /** Paused, or a line is to be tried. */
  #isShut = false;
  #isTried = false;
  #alone = 0;
  #problem: BatchProblem | undefined;
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Why it pauses, if callers are to know; undefined while it does not. */
  get problem(): BatchProblem | undefined {
    return this.#isShut ? this.#problem : undefined;
  }

  /** Resolves with a turn, which {@link end} gives back, and with undefined once `signal` is aborted. */
  enter(isRetry: boolean, signal: Signal): Promise<Turn | undefined> {
    return unlessAborted<Turn | undefined>(signal, undefined, (resolve) => {
      const comer: Comer = { isRetry, resolve };
      this.#comers.push(comer);
      this.#give();
      return () => {
        this.#comers.splice(this.#comers.indexOf(comer), 1);
        if (this.#comers.length === 0) this.#cancelTimer?.();
      };
    });
  }

  /** Whether a line with this turn may still begin: there was no pause since. */
  isOpenTo(turn: Turn): boolean {
    return turn === 'trial' || !this.#isShut;
  }

  /** No line begins for so long, ms. */
  pause(ms: number, problem?: BatchProblem): void {
    this.#isShut = true;
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#clock.now() + Math.min(ms, MOST_WAIT_MS));
    this.#problem = problem;
  }

  /** The line began and ended, or does not begin. A pause for it comes before. */
  end(turn: Turn): void {
    if (turn === 'trial') {
      this.#isTried = false;
      if (this.#pausedUntil <= this.#clock.now()) this.#isShut = false;
    }
    this.#give();
  }

  /** A line waits by itself, while others begin. Resolves with false if `signal` is aborted. */
  async alone(ms: number, signal: Signal): Promise<boolean> {
    this.#alone += 1;
    const isOver = await pause(this.#clock, ms, signal);
    this.#alone -= 1;
    this.#give();
    return isOver;
  }

  #give(): void {
    const waitMs = this.#pausedUntil - this.#clock.now();
    if (waitMs > 0) {
      this.#cancelTimer?.();
      if (this.#comers.length > 0) this.#cancelTimer = this.#clock.after(waitMs, () => this.#give());
      return;
    }
    while (!this.#isTried) {
      const retry = this.#comers.findIndex(({ isRetry }) => isRetry);
      const next = retry >= 0 || this.#alone >= MOST_ALONE ? retry : 0;
      const [comer] = next >= 0 ? this.#comers.splice(next, 1) : [];
      if (comer === undefined) return;
      this.#isTried = this.#isShut;
      comer.resolve(this.#isShut ? 'trial' : 'free');
    }
  }
}
