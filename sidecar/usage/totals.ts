/**
 * What each key has used, by day: the sums of the closing records of a UTC day, by account, key, model, tier, whether they are lines of
 * batches, and version of the price list ({@link DurableSums}). They stay when the spool's segments are deleted, for the last {@link MOST_DAYS} days that have usage.
 */
import { addTokens, NO_TOKENS, parsePicodollars, type TokenCounts } from '../domain/money.js';
import type { UsageRecord } from '../domain/usage-record.js';
import type { Clock } from '../lib/clock.js';
import { DurableSums, type CountedSpool } from './durable-sums.js';
import { isOfBatches, type PricedModel } from './prices.js';
import { comparePositions, type Position } from './spool-format.js';
import { readTotals, writeTotals, type FoundTotals, type TotalsListener, type TotalsRow } from './totals-files.js';

/** Days with usage that are kept: a quarter. */
export const MOST_DAYS = 92;

/**
 * Rows of all days. Each takes some 800 bytes of memory where an account has one row in a day, 160 MB in all, and less where it has
 * several. With more rows the oldest days are dropped. Where one day has that many, as with an authorizer that reports a new key with each
 * request, all further ones are summed up as {@link OTHERS}.
 */
export const MOST_ROWS = 200_000;

/**
 * Snapshots are this far apart, ms, as those of the balances: a start reads the spool from the last one on, and no segment after it is
 * deleted.
 */
const SNAPSHOT_MS = 10_000;

/** The sums of one account in one day: of each key, by its id, and of all keys together. One of them has few rows: a model is one. */
interface AccountDay {
  readonly keys: Map<string, TotalsRow[]>;
  /**
   * Their `keyId` is empty. An account may have thousands of keys, and few models. Undefined while it has one key, as each of many
   * accounts may have.
   */
  all: TotalsRow[] | undefined;
}

/** What an account used in a day. */
export interface DaySum {
  readonly requests: number;
  readonly used: TokenCounts;
  readonly picodollars: bigint;
}

/** The sums of a day. */
class DaySums {
  readonly accounts = new Map<string, AccountDay>();
  rows = 0;
  /** It has sums that are in no file. */
  changed = false;

  *all(): Generator<TotalsRow> {
    for (const account of this.accounts.values()) yield* rowsOfKeys(account);
  }

  /** Adds a row to the one with the same names. */
  put(row: TotalsRow): void {
    const account = this.accounts.get(row.account) ?? { keys: new Map<string, TotalsRow[]>(), all: undefined };
    this.accounts.set(row.account, account);
    const own = account.keys.get(row.keyId);
    if (own === undefined && account.keys.size === 1) {
      account.all = [];
      for (const each of rowsOfKeys(account)) addTo(account.all, withoutKey(each));
    }
    const rows = own ?? [];
    if (own === undefined) account.keys.set(row.keyId, rows);
    const before = rows.length;
    addTo(rows, row);
    if (account.all) addTo(account.all, withoutKey(row));
    this.rows += rows.length - before;
    this.changed = true;
  }
}

export interface TotalsOptions {
  readonly clock: Clock;
  readonly spool: CountedSpool;
  /** The folder of the files. */
  readonly dir: string;
  /** Of tests: {@link MOST_ROWS} otherwise. */
  readonly mostRows?: number;
  readonly listener: TotalsListener;
}

export class Totals {
  readonly #dir: string;
  readonly #mostRows: number;
  readonly #days = new Map<string, DaySums>();
  #rows = 0;
  /** Days whose files were written and whose sums are not kept any more. */
  readonly #dropped = new Set<string>();
  readonly sums: DurableSums;

  private constructor({ clock, spool, dir, mostRows = MOST_ROWS, listener }: TotalsOptions, found: FoundTotals) {
    this.#dir = dir;
    this.#mostRows = mostRows;
    const { from, floor, ignored, positions } = found;
    for (const { day: name, rows } of found.days) {
      const day = new DaySums();
      for (const row of rows) day.put(row);
      day.changed = false;
      this.#days.set(name, day);
      this.#rows += day.rows;
    }
    const count = (close: UsageRecord, after: Position): void => {
      const day = close.at.slice(0, DAY_CHARACTERS);
      // Of days before the snapshot's end, some are counted further than others.
      if (comparePositions(after, positions.get(day) ?? floor) <= 0 || ignored.delete(close.id)) return;
      this.#add(day, close);
    };
    const save = (position: Position): Promise<void> => this.#save(position);
    const options = { clock, spool, snapshotMs: SNAPSHOT_MS, snapshotCloses: Infinity, count, save, listener };
    this.sums = new DurableSums(options, from);
  }

  /** Reads the files and what follows in the spool, and writes nothing. Rejects if the spool cannot be read. */
  static async read(options: TotalsOptions): Promise<Totals> {
    const totals = new Totals(options, await readTotals(options.dir, options.spool, options.listener));
    await totals.sums.readOn();
    return totals;
  }

  /** The same for the process that writes the spool: snapshots are written from now on. */
  static async open(options: TotalsOptions): Promise<Totals> {
    const totals = await Totals.read(options);
    // At once, so that the spool can delete what was read.
    await totals.sums.snapshot();
    return totals;
  }

  /** The days that have sums, as in `2026-10-03`, in no order. */
  get days(): Iterable<string> {
    return this.#days.keys();
  }

  /** The rows of an account in a day: by key, or with empty `keyId`s those of all its keys together. */
  rowsOf(day: string, account: string, by: 'keys' | 'all'): Iterable<TotalsRow> {
    const found = this.#days.get(day)?.accounts.get(account);
    if (found === undefined) return [];
    return by === 'keys' ? rowsOfKeys(found) : allOf(found);
  }

  /** The rows of one key in a day. */
  rowsOfKey(day: string, account: string, keyId: string): readonly TotalsRow[] {
    return this.#days.get(day)?.accounts.get(account)?.keys.get(keyId) ?? [];
  }

  /** Tokens that are charged, of an account in a day; with `keyId` those of this key. */
  readonly billedTokens = (day: string, account: string, keyId?: string): number => {
    let tokens = 0;
    const rows = keyId === undefined ? this.rowsOf(day, account, 'all') : this.rowsOfKey(day, account, keyId);
    for (const { billed } of rows) tokens += billed.promptTokens + billed.completionTokens;
    return tokens;
  };

  rows(day: string): Iterable<TotalsRow> {
    return this.#days.get(day)?.all() ?? [];
  }

  *accounts(day: string): Generator<DaySum & { readonly account: string }> {
    for (const [account, sums] of this.#days.get(day)?.accounts ?? [])
      yield { account, ...(sums.all ?? [...rowsOfKeys(sums)]).reduce<DaySum>(sumOf, NOTHING) };
  }

  #add(name: string, close: UsageRecord): void {
    const request = rowOf(close);
    const known = this.rowsOfKey(name, request.account, request.keyId).some((row) => isSame(row, request));
    const isFull = !known && this.#rows >= this.#mostRows && this.#days.size === 1 && this.#days.has(name);
    const day = this.#days.get(name) ?? new DaySums();
    this.#days.set(name, day);
    this.#dropped.delete(name);
    const before = day.rows;
    day.put(isFull ? Object.assign({}, request, OTHERS) : request);
    this.#rows += day.rows - before;
    this.#drop();
  }

  /** Drops the oldest days past the bounds, never the last one. */
  #drop(): void {
    while (this.#days.size > 1 && (this.#days.size > MOST_DAYS || this.#rows > this.#mostRows)) {
      const oldest = [...this.#days.keys()].reduce((a, b) => (a < b ? a : b));
      this.#rows -= this.#days.get(oldest)?.rows ?? 0;
      this.#days.delete(oldest);
      this.#dropped.add(oldest);
    }
  }

  async #save(position: Position): Promise<void> {
    // All from one moment: rows that are added meanwhile are in the next snapshot.
    const changed = [...this.#days].filter(([, { changed }]) => changed);
    const days = changed.map(([day]) => ({ day, rows: [...this.rows(day)] }));
    const dropped = [...this.#dropped];
    for (const [, day] of changed) day.changed = false;
    try {
      await writeTotals(this.#dir, position, days, dropped);
      for (const day of dropped) this.#dropped.delete(day);
    } catch (fault) {
      for (const [, day] of changed) day.changed = true;
      throw fault;
    }
  }
}

/** `2026-10-03` */
const DAY_CHARACTERS = 10;

/** The sums of both, with the names of `a`. */
export function addRows(a: TotalsRow, b: TotalsRow): TotalsRow {
  return Object.assign({}, a, sumOf(a, b), { billed: addTokens(a.billed, b.billed) });
}

/** Adds a row to the one with the same names. */
function addTo(rows: TotalsRow[], row: TotalsRow): void {
  const at = rows.findIndex((each) => isSame(each, row));
  const before = rows[at];
  if (before) rows[at] = addRows(before, row);
  else rows.push(row);
}

/** What tells rows of one key apart. */
const NAMES = ['model', 'kind', 'tier', 'batch', 'priceVersion'] as const;

function isSame(a: TotalsRow, b: TotalsRow): boolean {
  return NAMES.every((name) => a[name] === b[name]);
}

function* rowsOfKeys({ keys }: AccountDay): Generator<TotalsRow> {
  for (const rows of keys.values()) yield* rows;
}

/** The rows of all keys of an account together. */
function allOf(account: AccountDay): Iterable<TotalsRow> {
  return account.all ?? [...rowsOfKeys(account)].map(withoutKey);
}

function withoutKey(row: TotalsRow): TotalsRow {
  return Object.assign({}, row, { keyId: '' });
}

/** The names of keys that are not told apart. */
const OTHERS = { account: '', keyId: '' };

const NOTHING: DaySum = { requests: 0, used: NO_TOKENS, picodollars: 0n };

function sumOf(a: DaySum, b: DaySum): DaySum {
  return {
    requests: a.requests + b.requests,
    used: addTokens(a.used, b.used),
    picodollars: a.picodollars + b.picodollars,
  };
}

/** The kind of models of each route. */
const KINDS: Readonly<Record<string, PricedModel['kind']>> = {
  chat: 'chat',
  decisions: 'decision',
  systemone: 'decision',
  embeddings: 'embedding',
  rerank: 'rerank',
};

/** Tokens of a close that are charged. */
export function billedTokensOf(close: UsageRecord): number {
  const { promptTokens, completionTokens } = rowOf(close).billed;
  return promptTokens + completionTokens;
}

/** One request. */
function rowOf(close: UsageRecord): TotalsRow {
  const { account, keyId, model, route, tier = '', batch, price, outcome } = close;
  const priceVersion = price?.version ?? '';
  const { promptTokens, cachedTokens, completionTokens } = close;
  const used = { promptTokens, cachedTokens, completionTokens };
  const picodollars = parsePicodollars(price?.picodollars ?? '0') ?? 0n;
  // A failed request is charged for all of its tokens or for none, a refused one never (docs/accounts.md).
  const isFree = price === undefined || outcome === 'refused' || (outcome === 'failed' && picodollars === 0n);
  return {
    account,
    keyId,
    model,
    kind: KINDS[route] ?? 'chat',
    tier,
    // Earlier versions wrote no `batch`.
    batch: batch === true || isOfBatches(priceVersion),
    priceVersion,
    requests: 1,
    used,
    billed: isFree ? NO_TOKENS : used,
    picodollars,
  };
}
