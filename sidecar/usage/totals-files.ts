/**
 * The files of the sums of usage (totals.ts):
 *
 *     usage/totals/2026-10-03.json      the sums of a day, and the position in the spool up to which they count
 *     usage/totals/2026-10-03T14.json   the same of an hour
 *     usage/totals/position.json        the position up to which all of them count; written after them
 *
 * Only those that have changed are written. A crash between two of these files leaves a day that counts further than
 * `position.json` says: its own position then keeps its records from being counted twice.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { exactly } from '../contracts/common-schema.js';
import { compile, type ValueOf } from '../contracts/validator.js';
import type { TokenCounts } from '../domain/money.js';
import { SERVICE_TIERS, type ServiceTier } from '../domain/service-class.js';
import { ifPresent } from '../lib/missing.js';
import { readSealed, writeSealed, type CountedSpool, type SumsListener } from './durable-sums.js';
import { isOfBatches, type PricedModel } from './prices.js';
import { comparePositions, POSITION, START, type Position } from './spool-format.js';

/** One sum. Rows are replaced and never changed, so that a snapshot may be written while others are added. */
export interface TotalsRow {
  readonly account: string;
  readonly keyId: string;
  readonly model: string;
  readonly kind: PricedModel['kind'];
  /** Empty: the default one. */
  readonly tier: ServiceTier | '';
  /** Lines of batches. */
  readonly batch: boolean;
  /** Of the price list; empty: the requests had no price. */
  readonly priceVersion: string;
  readonly requests: number;
  /** Tokens that engines worked on. */
  readonly used: TokenCounts;
  /** Of these, the tokens that are charged. */
  readonly billed: TokenCounts;
  readonly picodollars: bigint;
}

interface TotalsListener extends SumsListener {
  /** A file cannot be read or is damaged: its sums are counted again, as far as the spool still has their records. */
  unreadable(file: string): void;
  /** Records are missing, so the sums of some days are too low; `why` is one line. */
  incomplete(why: string): void;
}

export interface TotalsPlace {
  readonly spool: CountedSpool;
  readonly dir: string;
  readonly listener: TotalsListener;
}

/** The folder of the files in that of a spool. */
export function totalsDir(spoolDir: string): string {
  return join(spoolDir, 'totals');
}

const POSITION_FILE = 'position.json';
const PERIOD_FILE = /^(\d{4}-\d\d-\d\d(?:T\d\d)?)\.json$/;

const DAY_CHARACTERS = '2026-10-03'.length;
const HOUR_CHARACTERS = '2026-10-03T14'.length;

/** The day and the hour, UTC, of a time in ISO 8601. */
export function periodsOf(at: string): readonly [day: string, hour: string] {
  return [at.slice(0, DAY_CHARACTERS), at.slice(0, HOUR_CHARACTERS)];
}

export function isHour(period: string): boolean {
  return period.length === HOUR_CHARACTERS;
}

export function hoursOf(day: string): readonly string[] {
  return Array.from({ length: 24 }, (_, hour) => `${day}T${String(hour).padStart(2, '0')}`);
}

/** What the files say, and from where the spool is read. */
export interface FoundTotals {
  /** Each day, and of the hours the last ones. */
  readonly periods: readonly PeriodRows[];
  /** The other hours. */
  readonly ended: Set<string>;
  readonly from: Position;
  /** A period is counted up to its position in `positions`, others up to `floor`. */
  readonly floor: Position;
  readonly positions: ReadonlyMap<string, Position>;
  /** Closes that are counted already, though they come later in the spool. */
  readonly ignored: Set<string>;
}

/** Reads the files, of so many hours. Rejects if the spool cannot be read. */
export async function readTotals({ dir, spool, listener }: TotalsPlace, hours: number): Promise<FoundTotals> {
  const stored = await readSealed(join(dir, POSITION_FILE), checkPosition);
  if (stored === 'damaged') listener.unreadable(join(dir, POSITION_FILE));
  const known = typeof stored === 'object' ? stored.position : START;
  const periods: PeriodRows[] = [];
  const positions = new Map<string, Position>();
  let from = known;
  const files = (await ifPresent(readdir(dir))) ?? [];
  const names = files.flatMap((name) => PERIOD_FILE.exec(name)?.[1] ?? []).sort();
  const ended = new Set(names.filter(isHour).slice(0, -hours));
  for (const period of names.filter((name) => !ended.has(name))) {
    const read = await readPeriod(dir, period);
    if (read) {
      periods.push({ period, rows: read.rows.map(rowOfStored) });
      positions.set(period, comparePositions(read.position, known) > 0 ? read.position : known);
    } else if (!isHour(period)) {
      // An hour is not counted again: its day is exported in its place.
      listener.unreadable(fileOf(dir, period));
      positions.set(period, START);
      from = START;
    }
  }
  const newest = spool.position;
  if ([known, ...positions.values()].some((position) => comparePositions(position, newest) > 0)) {
    // Of another spool, or of a part of this one that is lost: nothing is counted twice.
    listener.incomplete('they count more than the spool holds');
    const ignored = new Set(spool.estimated.map(({ id }) => id));
    return { periods, ended, from: newest, floor: newest, positions: new Map(), ignored };
  }
  const oldest = await spool.oldest();
  if (comparePositions(from, oldest) < 0) listener.incomplete('the oldest segments of the spool are gone');
  return { periods, ended, from, floor: known, positions, ignored: new Set() };
}

function fileOf(dir: string, period: string): string {
  return join(dir, `${period}.json`);
}

/** Undefined if it is missing or damaged. */
async function readPeriod(dir: string, period: string): Promise<StoredPeriod | undefined> {
  const read = await readSealed(fileOf(dir, period), checkPeriod);
  return typeof read === 'object' && read.day === period ? read : undefined;
}

/** The rows of a period; none if its file is missing or damaged. */
export async function readRows(dir: string, period: string): Promise<readonly TotalsRow[]> {
  return (await readPeriod(dir, period))?.rows.map(rowOfStored) ?? [];
}

/**
 * The fields of a row in a file, in order: account, key, model, kind, version, requests, tokens used, tokens billed, picodollars,
 * and of another tier than the default one its name, or `batch`: lines of batches have no tier.
 */
type StoredRow = readonly [
  account: string,
  keyId: string,
  model: string,
  kind: TotalsRow['kind'],
  priceVersion: string,
  requests: number,
  ...used: Tokens,
  ...billed: Tokens,
  picodollars: string,
  mark?: ServiceTier | 'batch',
];
type Tokens = [prompt: number, cached: number, completion: number];

interface StoredPeriod extends StoredPosition {
  /** Or the hour. */
  readonly day: string;
  readonly rows: readonly StoredRow[];
}

const TEXT = { type: 'string', maxLength: 1024 } as const;
const COUNT = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER } as const;
const ROW = [
  TEXT,
  TEXT,
  TEXT,
  { enum: ['chat', 'decision', 'embedding', 'rerank'] },
  TEXT,
  ...Array.from({ length: 7 }, () => COUNT),
  { type: 'string', maxLength: 40, pattern: '^\\d+$' },
];

function tuple(items: readonly object[]): object {
  return { type: 'array', minItems: items.length, maxItems: items.length, items };
}

const FIELDS = { version: { const: 1 }, position: POSITION, checksum: { type: 'string' } } as const;

const POSITION_SCHEMA = exactly(FIELDS);
type StoredPosition = ValueOf<typeof POSITION_SCHEMA>;

const checkPosition = compile<StoredPosition>(POSITION_SCHEMA, { written: 'totals-position' });

const checkPeriod = compile<StoredPeriod>(
  exactly({
    ...FIELDS,
    day: { type: 'string' },
    rows: { type: 'array', items: { anyOf: [tuple(ROW), tuple([...ROW, { enum: [...SERVICE_TIERS, 'batch'] }])] } },
  }),
  { written: 'totals' },
);

function rowOfStored(stored: StoredRow): TotalsRow {
  const [account, keyId, model, kind, priceVersion, requests, a, b, c, d, e, f, picodollars, mark = ''] = stored;
  return {
    account,
    keyId,
    model,
    kind,
    tier: mark === 'batch' ? '' : mark,
    batch: mark === 'batch' || isOfBatches(priceVersion),
    priceVersion,
    requests,
    used: { promptTokens: a, cachedTokens: b, completionTokens: c },
    billed: { promptTokens: d, cachedTokens: e, completionTokens: f },
    picodollars: BigInt(picodollars),
  };
}

function storedOf(row: TotalsRow): StoredRow {
  const { account, keyId, model, kind, priceVersion, requests, used, billed, picodollars } = row;
  const mark = row.batch ? 'batch' : row.tier;
  const tokens = [...tokensOf(used), ...tokensOf(billed)] as const;
  const stored = [account, keyId, model, kind, priceVersion, requests, ...tokens, String(picodollars)] as const;
  return mark === '' ? stored : [...stored, mark];
}

/** Rows of one day, as text for another process. */
export function textOfRows(rows: readonly TotalsRow[]): string {
  return JSON.stringify(rows.map(storedOf));
}

export function rowsOfText(text: string): TotalsRow[] {
  return (JSON.parse(text) as StoredRow[]).map(rowOfStored);
}

function tokensOf({ promptTokens, cachedTokens, completionTokens }: TokenCounts): Tokens {
  return [promptTokens, cachedTokens, completionTokens];
}

function positionText({ segment, offset }: Position): string {
  return JSON.stringify({ segment, offset });
}

/** The sums of a day or an hour, all from one moment. */
export interface PeriodRows {
  readonly period: string;
  readonly rows: readonly TotalsRow[];
}

/** Writes these periods, removes the files of the `dropped` days, and then writes up to which position all count. Rejects if that fails. */
export async function writeTotals(
  dir: string,
  position: Position,
  periods: readonly PeriodRows[],
  dropped: readonly string[],
): Promise<void> {
  for (const { period, rows } of periods) await writeSealed(fileOf(dir, period), textsOf(period, position, rows));
  for (const period of dropped.flatMap((day) => [day, ...hoursOf(day)])) await rm(fileOf(dir, period), { force: true });
  await writeSealed(join(dir, POSITION_FILE), [`{"version":1,"position":${positionText(position)}`]);
}

/** Rows written at a time: some 100 KiB, which block the event loop for less than a millisecond. */
const SLICE_ROWS = 1000;

/** The file of a period up to its checksum. */
function* textsOf(period: string, position: Position, rows: readonly TotalsRow[]): Generator<string> {
  yield `{"version":1,"position":${positionText(position)},"day":${JSON.stringify(period)},"rows":[`;
  for (let at = 0; at < rows.length; at += SLICE_ROWS) {
    const slice = rows.slice(at, at + SLICE_ROWS).map((row) => JSON.stringify(storedOf(row)));
    yield `${at === 0 ? '' : ','}${slice.join(',')}`;
  }
  yield ']';
}
