/**
 * A circuit breaker: a service that fails is left alone for a while, so that callers are told at once and it can recover.
 *
 *     closed ──`failures` in a row──> open ──openMs──> half-open ──success──> closed
 *       └──asked to be left alone──────^                   └──failure, or asked──> open
 *
 * Half-open lets one question through and no second one until that is answered, or should have been. What was asked
 * before the breaker opened says nothing any more when it comes back.
 */
import type { Clock } from '../lib/clock.js';

export interface BreakerOptions {
  /** Failures in a row that open it. */
  readonly failures: number;
  /** How long it stays open, ms. */
  readonly openMs: number;
  /** The longest that one question takes, ms: what a caller waits for at most while another's question is the trial. */
  readonly trialMs: number;
  /** It opened, from closed or half-open. `reason`: of the last failure. */
  readonly opened?: (reason: string, forMs: number) => void;
  /** The service answers again. */
  readonly closed?: () => void;
}

/** Leave to ask once. Exactly one of the three is called, once; further calls do nothing. */
export interface Permit {
  succeeded(): void;
  /**
   * `reason`: a constant or an error's code. `cause`: what was asked about, if that may be what makes the service fail:
   * several failures of one cause in a row are one.
   */
  failed(reason: string, cause?: string): void;
  /** The service asked not to be asked for this long, ms. */
  overloaded(forMs: number): void;
}

export interface Shut {
  readonly kind: 'shut';
  /** Whether the service said that it is overloaded, or does not answer. */
  readonly why: 'failing' | 'overloaded';
  /** Until it may be asked again, ms: above 0. */
  readonly retryAfterMs: number;
}

export type BreakerState = 'closed' | 'open' | 'half-open';

export class Breaker {
  readonly #clock: Clock;
  readonly #options: BreakerOptions;
  /** In a row, while closed. */
  #failures = 0;
  /** Of the failure that was counted last. */
  #lastCause: string | undefined;
  /** Clock reading; undefined: closed. */
  #openUntil: number | undefined;
  #why: Shut['why'] = 'failing';
  /** When the trial's answer is due at the latest, clock reading; undefined: none is under way. */
  #trialUntil: number | undefined;
  /** Counts openings and closings: permits of an earlier one are void. */
  #epoch = 0;

  constructor(clock: Clock, options: BreakerOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  get state(): BreakerState {
    if (this.#openUntil === undefined) return 'closed';
    return this.#clock.now() < this.#openUntil ? 'open' : 'half-open';
  }

  /** Leave to ask, or until when there is none. */
  enter(): Permit | Shut {
    const retryAfterMs = this.shutForMs;
    if (retryAfterMs > 0) return { kind: 'shut', why: this.#why, retryAfterMs };
    if (this.#openUntil !== undefined) this.#trialUntil = this.#clock.now() + this.#options.trialMs;
    return this.#permit();
  }

  /** Until somebody may ask again, whole ms; 0: now. */
  get shutForMs(): number {
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

  /** No failure is counted. */
  #begin(): void {
    this.#failures = 0;
    this.#lastCause = undefined;
  }

  #open(why: Shut['why'], reason: string, forMs: number): void {
    this.#why = why;
    this.#openUntil = this.#clock.now() + forMs;
    this.#trialUntil = undefined;
    this.#begin();
    this.#epoch += 1;
    this.#options.opened?.(reason, forMs);
  }
}
