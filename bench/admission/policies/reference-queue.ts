import type { QueueRequest, Refused } from '../../../sidecar/admission/types.js';
import type { Door, Pass, Seated, Setting } from './door.js';

/** The waiting requests, in the order of the policy. */
export interface Discipline {
  add(waiting: Waiting): void;
  /** Removes and returns the next one. */
  take(): Waiting | undefined;
  /** Its client gave up. */
  remove(waiting: Waiting): void;
  /** A seat of this account is free again. */
  ended?(account: string): void;
}

export interface Waiting {
  readonly account: string;
  readonly settle: (outcome: Seated | Refused) => void;
  /** Cancels its timer, if any. */
  disarm: () => void;
}

export interface Limits {
  /** How many may wait. */
  readonly waiting?: number;
  /** How long one may wait, ms. */
  readonly ttlMs?: number;
}

/** Seats and a queue before them: the common part of the reference policies. */
export class ReferenceQueue implements Door {
  readonly #setting: Setting;
  readonly #line: Discipline;
  readonly #limits: Limits;
  #free: number;
  #waiting = 0;

  constructor(setting: Setting, line: Discipline, limits: Limits) {
    this.#setting = setting;
    this.#line = line;
    this.#limits = limits;
    this.#free = setting.seats;
  }

  enter({ account }: QueueRequest): Pass | Refused {
    if (this.#free === 0 && this.#waiting >= (this.#limits.waiting ?? Infinity)) return refused('full');
    let settle!: Waiting['settle'];
    const outcome = new Promise<Seated | Refused>((resolve) => (settle = resolve));
    const waiting: Waiting = { account, settle, disarm: () => undefined };
    return { outcome, ready: () => this.#ready(waiting) };
  }

  #ready(waiting: Waiting): void {
    this.#line.add(waiting);
    this.#waiting += 1;
    if (this.#limits.ttlMs !== undefined)
      waiting.disarm = this.#setting.clock.after(this.#limits.ttlMs, () => this.#expire(waiting));
    this.#dispatch();
  }

  #expire(waiting: Waiting): void {
    this.#line.remove(waiting);
    this.#waiting -= 1;
    waiting.settle(refused('wait'));
  }

  #dispatch(): void {
    while (this.#free > 0) {
      const next = this.#line.take();
      if (next === undefined) return;
      next.disarm();
      this.#waiting -= 1;
      this.#free -= 1;
      next.settle({ kind: 'seated', lease: { release: () => this.#release(next.account) } });
    }
  }

  #release(account: string): void {
    this.#free += 1;
    this.#line.ended?.(account);
    this.#dispatch();
  }
}

/** These policies do not know when to retry. */
function refused(reason: 'full' | 'wait'): Refused {
  return { kind: 'refused', reason, retryAfterMs: 1000 };
}
