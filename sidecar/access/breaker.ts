/**
 * A circuit breaker: a failing service is not called for a while, so that callers get an answer at once and it can
 * recover.
 *
 *     closed ──`failures` in a row──> open ──openMs──> half-open ──success──> closed
 *       └──service is overloaded───────^                   └──failure, or overloaded──> open
 *
 * Half-open allows one trial call, and no second one until that has ended or should have ended. Results of calls from
 * before the breaker opened are ignored.
 */
import type { Clock } from '../lib/clock.js';

export interface BreakerOptions {
  /** Failures in a row that open it. */
  readonly failures: number;
  /** How long it stays open, ms. */
  readonly openMs: number;
  /** The longest time of one call, ms: how long others wait for the trial at most. */
  readonly trialMs: number;
  /** It opened, from closed or half-open. `reason`: of the last failure. */
  readonly opened?: (reason: string, forMs: number) => void;
  /** The service works again. */
  readonly closed?: () => void;
}

/** Permission for one call. Exactly one of the three functions is called, once; further calls do nothing. */
export interface Permit {
  succeeded(): void;
  /**
   * `reason`: a constant or an error's code. `cause`: the subject of the call, if it may be the cause of the failure:
   * consecutive failures of one cause count as one.
   */
  failed(reason: string, cause?: string): void;
  /** The service requested a pause of this length, ms. */
  overloaded(forMs: number): void;
}

export interface Blocked {
  readonly kind: 'blocked';
  /** Whether the service reported overload, or fails. */
  readonly why: 'failing' | 'overloaded';
  /** Time until the next call is allowed, ms: above 0. */
  readonly retryAfterMs: number;
}

export type BreakerState = 'closed' | 'open' | 'half-open';

export class Breaker {
  readonly #clock: Clock;
  readonly #options: BreakerOptions;
  /** In a row, while closed. */
  #failures = 0;
  /** The cause of the last counted failure. */
  #lastCause: string | undefined;
  /** Clock reading; undefined: closed. */
  #openUntil: number | undefined;
  #why: Blocked['why'] = 'failing';
  /** The latest time at which the trial ends, clock reading; undefined: none is in flight. */
  #trialUntil: number | undefined;
  /** Counts transitions: permits of an earlier epoch are void. */
  #epoch = 0;

  constructor(clock: Clock, options: BreakerOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  get state(): BreakerState {
    if (this.#openUntil === undefined) return 'closed';
    return this.#clock.now() < this.#openUntil ? 'open' : 'half-open';
  }

  /** A permission, or the time until the next. */
  enter(): Permit | Blocked {
    const retryAfterMs = this.blockedForMs;
    if (retryAfterMs > 0) return { kind: 'blocked', why: this.#why, retryAfterMs };
    if (this.#openUntil !== undefined) this.#trialUntil = this.#clock.now() + this.#options.trialMs;
    return this.#permit();
  }

  /** Time until a call is allowed, whole ms; 0: now. */
  get blockedForMs(): number {
    if (this.#openUntil === undefined) return 0;
    return Math.max(0, Math.ceil((this.#trialUntil ?? this.#openUntil) - this.#clock.now()));
  }

  #permit(): Permit {
    let epoch: number | undefined = this.#epoch;
    const once = (then: () => void): void => {
      const counts = epoch === this.#epoch;
      epoch = undefined;
      if (counts) then();
    };
    return {
      succeeded: () => once(() => this.#succeeded()),
      failed: (reason, cause) => once(() => this.#failed(reason, cause)),
      overloaded: (forMs) => once(() => this.#open('overloaded', 'overloaded', forMs)),
    };
  }

  #succeeded(): void {
    this.#begin();
    if (this.#openUntil === undefined) return;
    this.#openUntil = undefined;
    this.#trialUntil = undefined;
    this.#epoch += 1;
    this.#options.closed?.();
  }

  #failed(reason: string, cause?: string): void {
    const counts = cause === undefined || cause !== this.#lastCause;
    this.#lastCause = cause;
    if (counts) this.#failures += 1;
    if (this.#openUntil !== undefined || this.#failures >= this.#options.failures) {
      this.#open('failing', reason, this.#options.openMs);
    }
  }

  /** Resets the failure count. */
  #begin(): void {
    this.#failures = 0;
    this.#lastCause = undefined;
  }

  #open(why: Blocked['why'], reason: string, forMs: number): void {
    this.#why = why;
    this.#openUntil = this.#clock.now() + forMs;
    this.#trialUntil = undefined;
    this.#begin();
    this.#epoch += 1;
    this.#options.opened?.(reason, forMs);
  }
}
