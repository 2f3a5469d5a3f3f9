/** Usage records: what was used, by whom, under which price list. Types and nothing else; money.ts has the arithmetic. */

/** How a request ended, as billing and the logs see it. */
export type Outcome = 'done' | 'cancelled' | 'failed' | 'timeout' | 'refused';

/**
 * One line of the usage spool. Token counts are cumulative for the request, and 0 until the engine took it up; the price
 * is what is billed should no later line come.
 */
export interface UsageRecord {
  /** Ours, one per request: what billing counts by. A caller may send one x-request-id twice. */
  readonly id: string;
  /** The request's x-request-id, for support. */
  readonly requestId: string;
  readonly kind: 'open' | 'progress' | 'close';
  /** ISO 8601, UTC. */
  readonly at: string;
  readonly account: string;
  readonly keyId: string;
  readonly model: string;
  readonly route: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Absent: not priced. */
  readonly price?: {
    /** Version of the price list, for example `2026-10-03.4`. */
    readonly version: string;
    /** Integer picodollars as decimal text: 64 bits do not fit a JavaScript number. */
    readonly picodollars: string;
  };
  /** Paid from credit that this sidecar keeps: the balances are sums over these. Absent: it is settled elsewhere. */
  readonly prepaid?: true;
  readonly outcome?: Outcome;
  /** Billed from the last progress because no close was found. */
  readonly estimated?: true;
}
