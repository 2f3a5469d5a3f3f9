import type { Reservation } from '../access/credit.js';
import type { Outcome, UsageRecord } from '../domain/usage-record.js';
import { costOf, NO_TOKENS, type TokenCounts } from '../domain/money.js';
import type { Tariff } from '../usage/price-list.js';

/** Where a request stands when it is priced. */
export interface PricedState {
  /** How it ended; undefined: it is under way. */
  readonly outcome: Outcome | undefined;
  /** Tokens that the engine worked on for it. */
  readonly used: TokenCounts;
  /** The caller has the first token of a stream. */
  readonly delivered: boolean;
}

/**
 * The tokens that are paid for. A caller who leaves, and a deadline that passes, leave the work done so far to be paid. A
 * fault of ours costs the caller only what it has in hand: of a stream the tokens sent and the prompt behind them, of a
 * whole reply nothing. What is under way is priced as if the next moment brought such a fault, since a record of it is
 * billed only when this process dies. docs/billing.md says the same for customers.
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

/** One request's money: the prices of its opening, and the credit that is held for it until it is settled. */
export class Bill {
  readonly #tariff: Tariff;
  readonly #reservation: Reservation | undefined;

  /** Takes over the reservation; undefined: no credit is reserved here. */
  constructor(tariff: Tariff, reservation: Reservation | undefined) {
    this.#tariff = tariff;
    this.#reservation = reservation;
  }

  /** Whether it is paid from credit that is kept here. */
  get prepaid(): boolean {
    return this.#reservation !== undefined;
  }

  price(state: PricedState): NonNullable<UsageRecord['price']> {
    return { version: this.#tariff.version, picodollars: String(this.#cost(state)) };
  }

  /** Ends the reservation. Only the first call counts; without a state nothing is to be paid. */
  settle(state?: PricedState): void {
    this.#reservation?.settle(state ? this.#cost(state) : 0n);
  }

  #cost(state: PricedState): bigint {
    return costOf(this.#tariff.rates, billable(state));
  }
}
