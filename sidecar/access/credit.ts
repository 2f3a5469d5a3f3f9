/**
 * Prepaid credit. What an account may still spend is what it was granted, less what its requests came to, less what its
 * running ones might come to at worst:
 *
 *     balance = granted − settled − reserved
 *
 * A request reserves its worst case before it can be dispatched and settles the truth at its end, which gives back the
 * rest. Everything happens at once on one event loop, so two requests cannot spend the same dollar. All amounts are
 * picodollars.
 */

/** Picodollars that one request holds. Whoever has it must end it; the first call counts, the others do nothing. */
export interface Reservation {
  /** The request came to so much; the rest of what it held is free again. 0: nothing is to be paid. */
  settle(picodollars: bigint): void;
}

export type Reserved =
  | { readonly kind: 'reserved'; readonly reservation: Reservation }
  /** The balance is smaller. */
  | { readonly kind: 'insufficient' }
  /** The balance is not known now. */
  | { readonly kind: 'unavailable' };

/** Where credit is held. Never throws, never waits. */
export interface Credit {
  /** Whether balances are known; until then whatever costs something is refused as `unavailable`. */
  readonly known: boolean;
  /** What costs nothing needs no credit and is always let through. */
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
 * The balances of this process. It begins shut (`unavailable`), since what was settled before it lived is not known yet.
 * It holds one entry for each account that has spent or spends; accounts are the operator's own, from the keys file.
 */
export class CreditLedger implements Credit {
  readonly #entries = new Map<string, Entry>();
  readonly #onSettled: () => void;
  #granted: ReadonlyMap<string, bigint>;
  #open = false;
  #outstanding = 0;

  /** `granted`: by account; one that is not in it has nothing. `onSettled` is told of each reservation that ended. */
  constructor(granted: ReadonlyMap<string, bigint>, onSettled: () => void = () => undefined) {
    this.#granted = granted;
    this.#onSettled = onSettled;
  }

  get known(): boolean {
    return this.#open;
  }

  /** Reservations that have not ended. */
  get outstanding(): number {
    return this.#outstanding;
  }

  /** Replaces all grants. What was spent stays spent: with less granted than that a balance is below 0. */
  grant(granted: ReadonlyMap<string, bigint>): void {
    this.#granted = granted;
  }

  /** Opens the gate. `settled`: what was settled before this process, by account. Once. */
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
