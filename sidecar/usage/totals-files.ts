/**
 * The files of the sums of usage (totals.ts):
 *
 *     usage/totals/2026-10-03.json   the sums of a day, and the position in the spool up to which they count
 *     usage/totals/position.json     the position up to which all days count; written after them
 *
 * Only the days that have changed are written. A crash between two of these files leaves a day that counts further than
 * `position.json` says: its own position then keeps its records from being counted twice.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { exactly } from '../contracts/common-schema.js';
import { compile } from '../contracts/validator.js';
import { TOTALS_CODE, TOTALS_POSITION_CODE } from '../contracts/written-code.js';
import type { TokenCounts } from '../domain/money.js';
import { SERVICE_TIERS, type ServiceTier } from '../domain/service-class.js';
import { isMissing } from './disk.js';
import { readSealed, sha256, writeSealed, type CountedSpool, type SumsListener } from './durable-sums.js';
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

export interface TotalsListener extends SumsListener {
  /** A file cannot be read or is damaged: its sums are counted again, as far as the spool still has their records. */
  unreadable(file: string): void;
  /** Records are missing, so the sums of some days are too low; `why` is one line. */
  incomplete(why: string): void;
}

/** The folder of the files in that of a spool. */
export function totalsDir(spoolDir: string): string {
  return join(spoolDir, 'totals');
}

const POSITION_FILE = 'position.json';
const DAY_FILE = /^(\d{4}-\d\d-\d\d)\.json$/;

/** What the files say, and from where the spool is read. */
export interface FoundTotals {
  readonly days: readonly DayRows[];
  readonly from: Position;
  /** Days are counted up to their position in `positions`, others up to `floor`. */
  readonly floor: Position;
  readonly positions: ReadonlyMap<string, Position>;
  /** Closes that are counted already, though they come later in the spool. */
  readonly ignored: Set<string>;
}

/** Reads the files. Rejects if the spool cannot be read. */
export async function readTotals(
  dir: string,
  spool: CountedSpool,
  listener: Pick<TotalsListener, 'unreadable' | 'incomplete'>,
): Promise<FoundTotals> {
  const stored = await readFile(join(dir, POSITION_FILE), checkPosition);
  if (stored === 'damaged') listener.unreadable(join(dir, POSITION_FILE));
  const known = typeof stored === 'object' ? stored.position : START;
  const days: StoredDay[] = [];
  const positions = new Map<string, Position>();
  let from = known;
  for (const name of await namesIn(dir)) {
    const day = DAY_FILE.exec(name)?.[1];
    if (day === undefined) continue;
    const read = await readFile(join(dir, name), checkDay);
    if (typeof read === 'object' && read.day === day) {
      days.push(read);
      positions.set(day, comparePositions(read.position, known) > 0 ? read.position : known);
      continue;
    }
    listener.unreadable(join(dir, name));
    positions.set(day, START);
    from = START;
  }
  const found = days.map(({ day, rows }) => ({ day, rows: rows.map(rowOfStored) }));
  const newest = spool.position;
  if ([known, ...positions.values()].some((position) => comparePositions(position, newest) > 0)) {
    // Of another spool, or of a part of this one that is lost: nothing is counted twice.
    listener.incomplete('they count more than the spool holds');
    const ignored = new Set(spool.estimated.map(({ id }) => id));
    return { days: found, from: newest, floor: newest, positions: new Map(), ignored };
  }
  const oldest = await spool.oldest();
  if (comparePositions(from, oldest) < 0) listener.incomplete('the oldest segments of the spool are gone');
  return { days: found, from, floor: known, positions, ignored: new Set() };
}

async function namesIn(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
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

interface StoredPosition {
  readonly version: 1;
  readonly position: Position;
  readonly checksum: string;
}

interface StoredDay extends StoredPosition {
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

const FIELDS = {
  version: { const: 1 },
  position: POSITION,
  checksum: { type: 'string' },
} as const;

const checkPosition = compile<StoredPosition>(exactly(FIELDS), { written: TOTALS_POSITION_CODE });

const checkDay = compile<StoredDay>(
  exactly({
    ...FIELDS,
    day: { type: 'string' },
    rows: { type: 'array', items: { anyOf: [tuple(ROW), tuple([...ROW, { enum: [...SERVICE_TIERS, 'batch'] }])] } },
  }),
  { written: TOTALS_CODE },
);

/** A file with the right checksum. */
async function readFile<T extends StoredPosition>(
  file: string,
  check: (value: unknown) => { readonly ok: true; readonly value: T } | { readonly ok: false },
): Promise<T | 'missing' | 'damaged'> {
  const sealed = await readSealed(file);
  if (typeof sealed === 'string') return sealed;
  const checked = check(sealed.value);
  return checked.ok && checked.value.checksum === sha256(sealed.unsealed) ? checked.value : 'damaged';
}

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

function tokensOf({ promptTokens, cachedTokens, completionTokens }: TokenCounts): Tokens {
  return [promptTokens, cachedTokens, completionTokens];
}

function positionText({ segment, offset }: Position): string {
  return JSON.stringify({ segment, offset });
}

/** The sums of a day, all from one moment. */
export interface DayRows {
  readonly day: string;
  readonly rows: readonly TotalsRow[];
}

/** Writes these days, removes the files of the `dropped` ones, and then writes up to which position all count. Rejects if that fails. */
export async function writeTotals(
  dir: string,
  position: Position,
  days: readonly DayRows[],
  dropped: readonly string[],
): Promise<void> {
  for (const { day, rows } of days) await writeSealed(join(dir, `${day}.json`), textsOf(day, position, rows));
  for (const day of dropped) await rm(join(dir, `${day}.json`), { force: true });
  await writeSealed(join(dir, POSITION_FILE), [`{"version":1,"position":${positionText(position)}`]);
}

/** Rows written at a time: some 100 KiB, which block the event loop for less than a millisecond. */
const SLICE_ROWS = 1000;

/** The file of a day up to its checksum. */
function* textsOf(day: string, position: Position, rows: readonly TotalsRow[]): Generator<string> {
  yield `{"version":1,"position":${positionText(position)},"day":${JSON.stringify(day)},"rows":[`;
  for (let at = 0; at < rows.length; at += SLICE_ROWS) {
    const slice = rows.slice(at, at + SLICE_ROWS).map((row) => JSON.stringify(storedOf(row)));
    yield `${at === 0 ? '' : ','}${slice.join(',')}`;
  }
  yield ']';
}
