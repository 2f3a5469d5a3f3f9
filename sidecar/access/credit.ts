/**
 * Prepaid credit. An account may spend its grants, less the price of its finished requests, less the highest price that
 * its running ones may have:
 *
 *     balance = granted − settled − reserved
 *
 * A request reserves its highest possible price before dispatch and settles its actual price at its end, which releases
 * the rest. Everything happens synchronously on one event loop, so two requests cannot spend the same dollar. All
 * amounts are picodollars.
 */

/** Picodollars reserved by one request. Its owner must settle it; only the first call counts. */
export interface Reservation {
  /** Settles the actual price; the rest of the reservation is released. 0: nothing is paid. */
  settle(picodollars: bigint): void;
}

export type Reserved =
  | { readonly kind: 'reserved'; readonly reservation: Reservation }
  /** The balance is too small. */
  | { readonly kind: 'insufficient' }
  /** The balance is not known yet. */
  | { readonly kind: 'unavailable' };

/** Reserves credit. Never throws, never waits. */
export interface Credit {
  /** Whether balances are known; until then priced requests are refused as `unavailable`. */
  readonly known: boolean;
  /** Free requests need no credit and always pass. */
  reserve(account: string, picodollars: bigint): Reserved;
}

/** One account's money. */
export interface Balance {
  readonly granted: bigint;
  readonly settled: bigint;
  readonly reserved: bigint;
}

interface Entry {
  settled: bigint;
  reserved: bigint;
}

/**
 * The balances of this process. Initially `unavailable`, since earlier usage is not known yet. It has one entry for
 * each account that has spent or spends money, which only accounts with a grant can: the operator's grants bound it. A free request
 * leaves no entry, since an authorizer may report any number of accounts.
 */
export class CreditLedger implements Credit {
  readonly #entries = new Map<string, Entry>();
  readonly #onSettled: () => void;
  #granted: ReadonlyMap<string, bigint>;
  #open = false;
  #outstanding = 0;

  /** `granted`: by account; other accounts have nothing. `onSettled` is called for each reservation that ended. */
  constructor(granted: ReadonlyMap<string, bigint>, onSettled: () => void = () => undefined) {
    this.#granted = granted;
    this.#onSettled = onSettled;
  }

  get known(): boolean {
    return this.#open;
  }

  /** Accounts that have an entry. */
  get accounts(): number {
    return this.#entries.size;
  }

  /** Reservations that have not ended. */
  get outstanding(): number {
    return this.#outstanding;
  }

  /** Replaces all grants. Spending stays, so a balance may become negative. */
  grant(granted: ReadonlyMap<string, bigint>): void {
    this.#granted = granted;
  }

  /** Starts accepting priced requests. `settled`: settled before this process, by account. Call it once. */
  open(settled: ReadonlyMap<string, bigint>): void {
    if (this.#open) throw new Error('credit is open already');
    this.#open = true;
    for (const [account, amount] of settled) this.#entry(account).settled += amount;
  }

  reserve(account: string, picodollars: bigint): Reserved {
    if (picodollars > 0n) {
      if (!this.#open) return { kind: 'unavailable' };
      const { granted, settled, reserved } = this.balance(account);
      if (granted - settled - reserved < picodollars) return { kind: 'insufficient' };
    }
    const entry = this.#entry(account);
    entry.reserved += picodollars;
    this.#outstanding += 1;
    let over = false;
    const settle = (actual: bigint): void => {
      if (over) return;
      over = true;
      this.#outstanding -= 1;
      entry.reserved -= picodollars;
      entry.settled += actual;
      if (entry.settled === 0n && entry.reserved === 0n) this.#entries.delete(account);
      this.#onSettled();
    };
    return { kind: 'reserved', reservation: { settle } };
  }

  balance(account: string): Balance {
    const { settled, reserved } = this.#entries.get(account) ?? { settled: 0n, reserved: 0n };
    return { granted: this.#granted.get(account) ?? 0n, settled, reserved };
  }

  #entry(account: string): Entry {
    let entry = this.#entries.get(account);
    if (!entry) this.#entries.set(account, (entry = { settled: 0n, reserved: 0n }));
    return entry;
  }
}
