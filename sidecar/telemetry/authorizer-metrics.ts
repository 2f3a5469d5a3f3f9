/** Metrics of the authorizer. */
import { AUTHORIZER_BREAKER, AUTHORIZER_DURATION, AUTHORIZER_LOOKUPS, AUTHORIZER_STALE } from './definitions/access.js';
import type { Counter, Gauge, Histogram, Instruments } from './instruments.js';

/** How a request's caller was resolved, as in access/authorizer-identity.ts. */
const LOOKUPS = ['cached', 'joined', 'asked', 'left_alone'] as const;
export type LookupLabel = (typeof LOOKUPS)[number];

/** answered: caller or denial; invalid: outside its schema; overloaded: it sent 429 or 503; failed: no answer. */
const OUTCOMES = ['answered', 'invalid', 'overloaded', 'failed'] as const;
export type AskLabel = (typeof OUTCOMES)[number];

/** As in access/breaker.ts. */
const BREAKER_STATES = ['closed', 'open', 'half-open'] as const;
export type BreakerLabel = (typeof BREAKER_STATES)[number];

export class AuthorizerMetrics {
  readonly #lookups: Counter<'result'>;
  readonly #stale: Counter;
  readonly #asks: Histogram<'outcome'>;
  readonly #breaker: Gauge<'state'>;
  #read: (() => BreakerLabel) | undefined;

  constructor(instruments: Instruments) {
    this.#lookups = instruments.counter(AUTHORIZER_LOOKUPS);
    this.#stale = instruments.counter(AUTHORIZER_STALE);
    this.#asks = instruments.histogram(AUTHORIZER_DURATION);
    this.#breaker = instruments.gauge(AUTHORIZER_BREAKER);
    for (const result of LOOKUPS) this.#lookups.inc({ result }, 0);
    for (const outcome of OUTCOMES) this.#asks.zero({ outcome });
  }

  /** Counts a request with a key. */
  lookedUp(result: LookupLabel): void {
    this.#lookups.inc({ result });
  }

  /** Counts a caller accepted from an expired cache entry. */
  stale(): void {
    this.#stale.inc();
  }

  /** A lookup has ended. */
  asked(outcome: AskLabel, ms: number): void {
    this.#asks.observe({ outcome }, ms / 1000);
  }

  /**
   * `breaker` is called at each scrape. If watch is never called, there is no authorizer and no sample of its state.
   */
  watch(breaker: () => BreakerLabel): void {
    this.#read = breaker;
  }

  /** Updates the gauge before a page is made. */
  read(): void {
    const now = this.#read?.();
    if (now === undefined) return;
    for (const state of BREAKER_STATES) this.#breaker.set({ state }, state === now ? 1 : 0);
  }
}
