/**
 * Prepaid credit. An account may spend its grants, less the price of its finished requests, less the highest price that
 * its running ones may have:
 *
 *     balance = granted − settled − reserved
 *
 * A request reserves its highest possible price before dispatch (with `credit.reserve: parts` that of a part of its reply, and more as it
 * grows) and settles its actual price at its end, which releases the rest. Everything happens synchronously on one event loop, so two
 * requests cannot spend the same dollar. All amounts are picodollars.
 */
import { closed, UTC_TIME, exactly } from '../contracts/common-schema.js';
import { compile, parseFile, type ValueOf } from '../contracts/validator.js';
import { checkLength, FileProblem, readText } from '../lib/checked-file.js';
import { replaceOperatorsFile, withLock } from '../lib/replace-file.js';
import { parseUsd } from '../domain/money.js';
import { inParts, type LargeFormat } from './large-file.js';

/** Picodollars reserved by one request. Its owner must settle it; only the first call counts. */
export interface Reservation {
  /** Reserves so many in all, never fewer than before. Returns how many are reserved then: fewer if the balance is too small. */
  extend(picodollars: bigint): bigint | Promise<bigint>;
  /** Settles the actual price; the rest of the reservation is released. 0: nothing is paid. */
  settle(picodollars: bigint): void;
}

export type Reserved =
  | { readonly kind: 'reserved'; readonly reservation: Reservation }
  /** The balance is too small. */
  | { readonly kind: 'insufficient' }
  /** The balance is not known yet. */
  | { readonly kind: 'unavailable' };

/** Reserves credit. Never throws, never rejects. */
export interface Credit {
  /** Whether balances are known; until then priced requests are refused as `unavailable`. */
  readonly known: boolean;
  /** Paid from the escrow of a fleet's store, to which it is posted from the spool. */
  readonly escrow?: true;
  /** Free requests need no credit and always pass. Waits only for the store of a fleet, no longer than its time. */
  reserve(account: string, picodollars: bigint): Reserved | Promise<Reserved>;
  /** Those of these accounts, once balances are known. An account is missing if a store did not answer. `anew`: none read before the call. */
  balances(
    accounts: readonly string[],
    anew?: boolean,
  ): ReadonlyMap<string, Balance> | Promise<ReadonlyMap<string, Balance>>;
}

/** One account's money. In a store, `reserved` is what its sidecars hold: drawn and not posted yet. */
export interface Balance extends Readonly<Spending> {
  readonly granted: bigint;
  /** So long ago a store was asked, ms; absent: it is the present balance. */
  readonly ageMs?: number;
}

/** What an account has spent, and what its running requests may. */
interface Spending {
  settled: bigint;
  reserved: bigint;
}

/**
 * The balances of this process. Initially `unavailable`, since earlier usage is not known yet. It has one entry for each account that has
 * spent or spends money, which only accounts with a grant can: the operator's grants bound it. A free request leaves no entry, since an
 * authorizer may report any number of accounts.
 */
export class CreditLedger implements Credit {
  readonly #spending = new Map<string, Spending>();
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
    return this.#spending.size;
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
    for (const [account, amount] of settled) this.#spendingOf(account).settled += amount;
  }

  reserve(account: string, picodollars: bigint): Reserved {
    if (picodollars > 0n) {
      if (!this.#open) return { kind: 'unavailable' };
      const { granted, settled, reserved } = this.balance(account);
      if (granted - settled - reserved < picodollars) return { kind: 'insufficient' };
    }
    this.#spendingOf(account).reserved += picodollars;
    this.#outstanding += 1;
    let over = false;
    let held = picodollars;
    const extend = (wanted: bigint): bigint => {
      if (over || wanted <= held) return held;
      const { granted, settled, reserved } = this.balance(account);
      const free = granted - settled - reserved;
      const more = wanted - held < free ? wanted - held : free;
      if (more <= 0n) return held;
      this.#spendingOf(account).reserved += more;
      held += more;
      return held;
    };
    const settle = (actual: bigint): void => {
      if (over) return;
      over = true;
      this.#outstanding -= 1;
      // Not that of the beginning: it was removed if another free request of the account has ended.
      const spending = this.#spendingOf(account);
      spending.reserved -= held;
      spending.settled += actual;
      if (spending.settled === 0n && spending.reserved === 0n) this.#spending.delete(account);
      this.#onSettled();
    };
    return { kind: 'reserved', reservation: { extend, settle } };
  }

  balances(accounts: readonly string[]): ReadonlyMap<string, Balance> {
    return new Map(accounts.map((account) => [account, this.balance(account)]));
  }

  balance(account: string): Balance {
    const { settled, reserved } = this.#spending.get(account) ?? { settled: 0n, reserved: 0n };
    return { granted: this.#granted.get(account) ?? 0n, settled, reserved };
  }

  #spendingOf(account: string): Spending {
    let entry = this.#spending.get(account);
    if (!entry) this.#spending.set(account, (entry = { settled: 0n, reserved: 0n }));
    return entry;
  }
}

/** The file's name in messages. */
const WHAT = 'credit';

/** Room for a million accounts with a grant each; a longer file is an error. */
const MAX_BYTES = 256 * 1024 * 1024;

const name = { type: 'string', minLength: 1, maxLength: 256 } as const;

/** The longest `usd`, in characters. */
const MAX_USD = 32;

/** What an operator says of a grant. */
export const GRANT_FIELDS = {
  /** The operator's id for it, such as an invoice's number. Unique in the file. */
  id: name,
  /** Decimal text, to the picodollar. Negative: a correction. */
  usd: { type: 'string', maxLength: MAX_USD },
} as const;

const grant = closed(['id', 'usd'], {
  ...GRANT_FIELDS,
  /** ISO 8601, UTC. For people who read the file. */
  at: UTC_TIME,
});

export type Grant = ValueOf<typeof grant>;

/** The credit file: grants of each account. Grants are only ever added, so that each can be looked up. */
const creditFile = exactly({
  version: { const: 1 },
  accounts: {
    type: 'object',
    maxProperties: 1_000_000,
    propertyNames: name,
    additionalProperties: { type: 'array', maxItems: 100_000, items: grant },
  },
});

type CreditFile = ValueOf<typeof creditFile>;

const check = compile<CreditFile>(creditFile, { written: 'credit', nameUnknownFields: true });

/** Picodollars granted, by account. */
export type Granted = ReadonlyMap<string, bigint>;

/** Each part has some of the accounts. */
export const CREDIT: LargeFormat<Granted> = {
  what: WHAT,
  maxBytes: MAX_BYTES,
  parse: parseCreditFile,
  *parts(granted) {
    for (const accounts of inParts([...granted])) yield new Map(accounts);
  },
};

/** Checks the text of `file`: picodollars granted, by account. Throws {@link FileProblem}. */
export function parseCreditFile(text: string, file: string): Granted {
  const refuse = (problem: string): never => {
    throw new FileProblem(WHAT, problem, file);
  };
  const { accounts } = parseFile(text, check, refuse);
  const ids = new Set<string>();
  const granted = new Map<string, bigint>();
  for (const [account, grants] of Object.entries(accounts)) {
    let sum = 0n;
    for (const { id, usd } of grants) {
      if (ids.has(id)) refuse(`two grants have the id ${id}`);
      ids.add(id);
      sum +=
        parseUsd(usd) ?? refuse(`grant ${id}: usd must be dollars as decimal text, with at most 12 decimal places`);
    }
    granted.set(account, sum);
  }
  return granted;
}

/** Whether a credit file may have this grant. */
export function isGrant({ id, usd }: Grant): boolean {
  return id !== '' && id.length <= name.maxLength && usd.length <= MAX_USD && parseUsd(usd) !== undefined;
}

/**
 * Adds a grant to `file`, which is replaced under a lock. Returns `known` if the file has a grant with this id; then nothing is changed.
 * `note` is called before the change; if it rejects, nothing changes. Throws {@link FileProblem} if the file is missing or would be
 * invalid, LockError if it is busy.
 */
export async function addGrant(
  file: string,
  account: string,
  grant: Grant,
  note: () => Promise<void>,
): Promise<'granted' | 'known'> {
  return withLock(`${file}.lock`, async (stillHeld) => {
    const text = await readText(WHAT, file, MAX_BYTES);
    if (text === undefined) throw new FileProblem(WHAT, 'does not exist', file);
    parseCreditFile(text, file);
    const { version, accounts } = JSON.parse(text) as CreditFile;
    if (Object.values(accounts).some((grants) => grants.some(({ id }) => id === grant.id))) return 'known';
    const old = Object.hasOwn(accounts, account) ? accounts[account] : undefined;
    const after: CreditFile = { version, accounts: { ...accounts, [account]: [...(old ?? []), grant] } };
    const written = `${JSON.stringify(after, null, 2)}\n`;
    parseCreditFile(written, file);
    checkLength(CREDIT, written, file);
    await replaceOperatorsFile(file, written, async () => {
      await note();
      await stillHeld();
    });
    return 'granted';
  });
}
