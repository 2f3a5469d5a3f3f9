/** Usage records: tokens, account, key and price list of a request. Types only; money.ts has the arithmetic. */

import type { ServiceTier } from './service-class.js';

/** How a request ended, for billing and logs. */
export type Outcome = 'done' | 'cancelled' | 'failed' | 'timeout' | 'refused';

/**
 * One line of the usage spool. Token counts are cumulative for the request, and 0 until the engine started it. The price is the one to bill
 * if no later line follows.
 */
export interface UsageRecord {
  /** Made by the sidecar, unique per request, and used for billing. A caller may send one x-request-id twice. */
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
  /** Absent: the default one. */
  readonly tier?: ServiceTier;
  /** It is a line of a batch. */
  readonly batch?: true;
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
  /** Paid from credit that this sidecar keeps; balances are sums over these records. Absent: settled elsewhere. */
  readonly prepaid?: true;
  /** It is paid from credit in the store of a fleet, to which its close is posted. No part of the events of usage. */
  readonly escrow?: true;
  readonly outcome?: Outcome;
  /** What its Idempotency-Key is claimed by in the store of a fleet; absent without a store. No part of the events of usage. */
  readonly claim?: string;
  /** The number of its reservation of tokens in the store of a fleet; absent without one. No part of the events of usage. */
  readonly quota?: number;
  /** Billed from the last progress because no close was found. */
  readonly estimated?: true;
}
