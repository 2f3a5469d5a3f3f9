import type { Reservation } from '../access/credit.js';
import type { Outcome, UsageRecord } from '../domain/usage-record.js';
import { costOf, NO_TOKENS, type TokenCounts } from '../domain/money.js';
import type { Tariff } from '../usage/prices.js';

/** The state of a request when it is priced. */
export interface PricedState {
  /** How it ended; undefined: it still runs. */
  readonly outcome: Outcome | undefined;
  /** Tokens that the engine worked on for it. */
  readonly used: TokenCounts;
  /** The caller has the first token of a stream. */
  readonly delivered: boolean;
}

/**
 * The tokens that are billed. After a disconnect or a missed deadline, all work so far is billed. After a fault of the service
 * a caller is billed only for what it received: for a stream its prompt and the tokens sent, for a whole reply nothing. A running
 * request is priced as after such a fault, since its progress record is billed only if this process ends without a close.
 * docs/billing.md describes this for customers.
 */
function billable({ outcome, used, delivered }: PricedState): TokenCounts {
  switch (outcome) {
    case 'done':
    case 'cancelled':
    case 'timeout':
      return used;
    case 'failed':
    case undefined:
      return delivered ? used : NO_TOKENS;
    case 'refused':
      return NO_TOKENS;
  }
}

/** Prices one request at the rates of its start, and keeps its credit reservation until it is settled. */
export class Bill {
  readonly #tariff: Tariff;
  readonly #reservation: Reservation | undefined;

  /** Owns the reservation; undefined: no credit is reserved. */
  constructor(tariff: Tariff, reservation: Reservation | undefined) {
    this.#tariff = tariff;
    this.#reservation = reservation;
  }

  /** Whether it is paid from prepaid credit. */
  get prepaid(): boolean {
    return this.#reservation !== undefined;
  }

  price(state: PricedState): NonNullable<UsageRecord['price']> {
    return { version: this.#tariff.version, picodollars: String(this.#cost(state)) };
  }

  /** Ends the reservation. Only the first call counts; without a state nothing is charged. */
  settle(state?: PricedState): void {
    this.#reservation?.settle(state ? this.#cost(state) : 0n);
  }

  #cost(state: PricedState): bigint {
    return costOf(this.#tariff.rates, billable(state));
  }
}
