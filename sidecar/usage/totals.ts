/**
 * What each key has used, by day: the sums of the closing records of a UTC day, by account, key, model, tier, whether they are lines of
 * batches, and version of the price list ({@link DurableSums}). They stay when the spool's segments are deleted, for the last
 * {@link MOST_DAYS} days that have usage.
 *
 * The sums of each hour are written beside them, for exports alone ({@link Totals.byHour}). Only those of the last {@link MOST_HOURS} hours
 * with usage are in memory, so a request that ends in an hour before is in its day alone.
 */
import { addTokens, NO_TOKENS, parsePicodollars, type TokenCounts } from '../domain/money.js';
import type { UsageRecord } from '../domain/usage-record.js';
import type { Clock } from '../lib/clock.js';
import { DurableSums } from './durable-sums.js';
import { isOfBatches, type PricedModel } from './prices.js';
import { comparePositions, type Position } from './spool-format.js';
import {
  hoursOf,
  isHour,
  periodsOf,
  readRows,
  readTotals,
  writeTotals,
  type FoundTotals,
  type TotalsPlace,
  type TotalsRow,
} from './totals-files.js';

/** Days with usage that are kept: a quarter. */
export const MOST_DAYS = 92;

/**
 * Rows of all days. Each takes some 800 bytes of memory where an account has one row in a day, 160 MB in all, and less where it has
 * several. With more rows the oldest days are dropped. Where one day has that many, as with an authorizer that reports a new key with each
 * request, all further ones are summed up as {@link OTHERS}.
 */
export const MOST_ROWS = 200_000;

/** One more than the present hour, since a close may be read a moment after the hour in which it was written. */
export const MOST_HOURS = 2;

/** Rows of an hour in memory, a tenth of those of all days for both. What comes later is in its day alone. */
export const MOST_HOUR_ROWS = 10_000;

/** Snapshots are this far apart, ms. A start reads the spool from the last snapshot on, so no segment after it is deleted. */
const SNAPSHOT_MS = 10_000;

/** The sums of one account in one day: of each key, by its id, and of all keys together. One of them has few rows: a model is one. */
interface AccountDay {
  readonly keys: Map<string, TotalsRow[]>;
  /**
   * Their `keyId` is empty. An account may have thousands of keys, and few models. Undefined while it has one key, as each of many accounts
   * may have.
   */
  all: TotalsRow[] | undefined;
}

/** What an account used in a day. */
export interface DaySum {
  readonly requests: number;
  readonly used: TokenCounts;
  readonly picodollars: bigint;
}

class PeriodSums {
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

/** The sums of the other sidecars of a fleet. */
export interface FleetUsage {
  /** Those of an account by day, in the days from one up to another; undefined: they are not known now. */
  others(account: string, from: string, to: string): Promise<ReadonlyMap<string, readonly TotalsRow[]> | undefined>;
}

export interface TotalsOptions extends TotalsPlace {
  readonly clock: Clock;
  /** Of tests: {@link MOST_ROWS} otherwise. */
  readonly mostRows?: number;
}

export class Totals {
  readonly #dir: string;
  readonly #mostRows: number;
  readonly #days = new Map<string, PeriodSums>();
  /** The one that was used first comes first. */
  readonly #hours = new Map<string, PeriodSums>();
  /** Hours whose sums are in their files alone. */
  readonly #ended: Set<string>;
  #rows = 0;
  #hourRows = 0;
  /** What a save writes is in no file until the save ends. */
  #saving = false;
  #changed: (account: string, day: string) => unknown = () => undefined;
  /** Days whose files were written and whose sums are not kept any more. */
  readonly #dropped = new Set<string>();
  readonly sums: DurableSums;

  private constructor({ clock, spool, dir, mostRows = MOST_ROWS, listener }: TotalsOptions, found: FoundTotals) {
    this.#dir = dir;
    this.#mostRows = mostRows;
    const { from, floor, ignored, positions, ended } = found;
    this.#ended = ended;
    for (const { period, rows } of found.periods) {
      const sums = new PeriodSums();
      for (const row of rows) sums.put(row);
      sums.changed = false;
      (isHour(period) ? this.#hours : this.#days).set(period, sums);
      if (isHour(period)) this.#hourRows += sums.rows;
      else this.#rows += sums.rows;
    }
    const count = (close: UsageRecord, after: Position): void => {
      if (ignored.delete(close.id)) return;
      const [day, hour] = periodsOf(close.at);
      // Of what is before the snapshot's end, some is counted further than the rest.
      const isNew = (period: string): boolean => comparePositions(after, positions.get(period) ?? floor) > 0;
      const row = rowOf(close);
      if (isNew(day)) this.#add(day, row);
      if (isNew(hour)) this.#addToHour(hour, row);
    };
    const save = (position: Position): Promise<void> => this.#save(position);
    const options = { clock, spool, snapshotMs: SNAPSHOT_MS, snapshotCloses: Infinity, count, save, listener };
    this.sums = new DurableSums(options, from);
  }

  /** Reads the files and what follows in the spool, and writes nothing. Rejects if the spool cannot be read. */
  static async read(options: TotalsOptions): Promise<Totals> {
    const totals = new Totals(options, await readTotals(options, MOST_HOURS));
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

  /** Calls this for each account and day that has sums, and from now on whenever they have changed, in place of one given before. */
  follow(changed: (account: string, day: string) => unknown): void {
    this.#changed = changed;
    for (const [day, { accounts }] of this.#days) for (const account of accounts.keys()) changed(account, day);
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

  /**
   * The rows of a day by hour, as in `2026-10-03T14`, and under the day's own name what is in no hour. Of an hour that is not in memory,
   * its file is read.
   */
  async byHour(day: string): Promise<ReadonlyMap<string, readonly TotalsRow[]>> {
    const left = new Map(Array.from(this.rows(day), (row) => [nameOf(row), row]));
    const periods = new Map<string, readonly TotalsRow[]>();
    for (const hour of hoursOf(day)) {
      const rows = this.#hours.get(hour)?.all() ?? (await readRows(this.#dir, hour));
      const own = [...rows].filter((row) => takeFrom(left, row));
      periods.set(hour, own);
    }
    const others = [...left.values()].filter(({ requests }) => requests > 0);
    return periods.set(day, others);
  }

  #add(name: string, request: TotalsRow): void {
    const known = this.rowsOfKey(name, request.account, request.keyId).some((row) => isSame(row, request));
    const isFull = !known && this.#rows >= this.#mostRows && this.#days.size === 1 && this.#days.has(name);
    const day = this.#days.get(name) ?? new PeriodSums();
    this.#days.set(name, day);
    this.#dropped.delete(name);
    const before = day.rows;
    const row = isFull ? Object.assign({}, request, OTHERS) : request;
    day.put(row);
    this.#changed(row.account, name);
    this.#rows += day.rows - before;
    this.#drop();
  }

  /** What comes late is in its day alone: the hour's file has the others' sum, and is not begun again. */
  #addToHour(name: string, row: TotalsRow): void {
    for (const [first, { changed, rows }] of this.#hours) {
      if (this.#hours.size <= MOST_HOURS) break;
      // What is in no file yet stays, as long as there is room.
      if ((changed || this.#saving) && this.#hourRows < MOST_HOURS * MOST_HOUR_ROWS) break;
      this.#hours.delete(first);
      this.#hourRows -= rows;
      this.#ended.add(first);
    }
    if (this.#ended.has(name)) return;
    const hour = this.#hours.get(name) ?? new PeriodSums();
    this.#hours.set(name, hour);
    const before = hour.rows;
    if (before < MOST_HOUR_ROWS) hour.put(row);
    this.#hourRows += hour.rows - before;
  }

  /** Drops the oldest days past the bounds, never the last one. */
  #drop(): void {
    while (this.#days.size > 1 && (this.#days.size > MOST_DAYS || this.#rows > this.#mostRows)) {
      const oldest = [...this.#days.keys()].reduce((a, b) => (a < b ? a : b));
      this.#rows -= this.#days.get(oldest)?.rows ?? 0;
      this.#days.delete(oldest);
      this.#dropped.add(oldest);
      for (const hour of hoursOf(oldest)) this.#ended.delete(hour);
    }
  }

  async #save(position: Position): Promise<void> {
    // All from one moment: rows that are added meanwhile are in the next snapshot.
    const changed = [...this.#days, ...this.#hours].filter(([, { changed }]) => changed);
    const periods = changed.map(([period, sums]) => ({ period, rows: [...sums.all()] }));
    const dropped = [...this.#dropped];
    for (const [, sums] of changed) sums.changed = false;
    this.#saving = true;
    try {
      await writeTotals(this.#dir, position, periods, dropped);
      for (const day of dropped) this.#dropped.delete(day);
    } catch (fault) {
      for (const [, sums] of changed) sums.changed = true;
      throw fault;
    } finally {
      this.#saving = false;
    }
  }
}

/** The sums of both, with the names of `a`. */
export function addRows(a: TotalsRow, b: TotalsRow): TotalsRow {
  return Object.assign({}, a, sumOf(a, b), { billed: addTokens(a.billed, b.billed) });
}

/** Takes an hour's row from what is left of its day; false if it is no part of that, as where the day's file was lost. */
function takeFrom(left: Map<string, TotalsRow>, row: TotalsRow): boolean {
  const from = left.get(nameOf(row));
  if (!from) return false;
  const [used, billed] = [addTokens(from.used, row.used, -1), addTokens(from.billed, row.billed, -1)];
  const [requests, picodollars] = [from.requests - row.requests, from.picodollars - row.picodollars];
  const counts = [used, billed].flatMap((of) => [
    of.promptTokens - of.cachedTokens,
    of.cachedTokens,
    of.completionTokens,
  ]);
  const isAll = picodollars === 0n && counts.every((count) => count === 0);
  const isPart = requests === 0 ? isAll : requests > 0 && picodollars >= 0n && counts.every((count) => count >= 0);
  if (isPart) left.set(nameOf(row), Object.assign({}, from, { requests, used, billed, picodollars }));
  return isPart;
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

function nameOf(row: TotalsRow): string {
  return JSON.stringify([row.account, row.keyId, ...NAMES.map((name) => row[name])]);
}

function* rowsOfKeys({ keys }: AccountDay): Generator<TotalsRow> {
  for (const rows of keys.values()) yield* rows;
}

/** The rows of all keys of an account together. */
function allOf(account: AccountDay): Iterable<TotalsRow> {
  return account.all ?? [...rowsOfKeys(account)].map(withoutKey);
}

export function withoutKey(row: TotalsRow): TotalsRow {
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
