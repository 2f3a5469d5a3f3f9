/**
 * What accounts have spent, computed only from the spool: the sum of the prices on `close` records that were paid from
 * credit kept here ({@link DurableSums}).
 *
 * The snapshot, `balances.json`, is replaced atomically.
 */
import { exactly } from '../contracts/common-schema.js';
import { compile, type ValueOf } from '../contracts/validator.js';
import type { UsageRecord } from '../domain/usage-record.js';
import { parsePicodollars } from '../domain/money.js';
import type { Clock } from '../lib/clock.js';
import { DurableSums, readSealed, writeSealed, type CountedSpool, type SumsListener } from './durable-sums.js';
import { comparePositions, POSITION, START, type Position } from './spool-format.js';

/**
 * A snapshot is written after this time, ms, if the spool has grown, and after this many settled requests: a start has to read no more of
 * the spool than that, which takes milliseconds.
 */
const SNAPSHOT_MS = 10_000;
const SNAPSHOT_CLOSES = 1000;

export interface BalancesOptions {
  readonly clock: Clock;
  readonly spool: CountedSpool;
  /** Path of the snapshot. */
  readonly file: string;
  /** Of tests: {@link SNAPSHOT_MS} and {@link SNAPSHOT_CLOSES} otherwise. */
  readonly snapshotMs?: number;
  readonly snapshotCloses?: number;
  /** If records are missing, count the remaining ones. */
  readonly beginAnew: boolean;
  readonly listener: BalancesListener;
}

export interface BalancesListener extends SumsListener {
  /** Records are missing, and the sums are rebuilt as configured. */
  begunAnew(why: string): void;
}

export type Rebuilt =
  | { readonly kind: 'rebuilt'; readonly balances: DurableSums; readonly settled: ReadonlyMap<string, bigint> }
  /** The sums cannot be computed; `why` is one line. */
  | { readonly kind: 'lost'; readonly why: string };

/** Sums up the spool. Rejects if it cannot be read, or if rebuilt sums cannot be written. */
export async function rebuildBalances(options: BalancesOptions): Promise<Rebuilt> {
  const { clock, spool, file, beginAnew, listener } = options;
  const { snapshotMs = SNAPSHOT_MS, snapshotCloses = SNAPSHOT_CLOSES } = options;
  const found = await readSnapshot(file);
  const oldest = await spool.oldest();
  const snapshot = typeof found === 'object' ? found : undefined;
  const from = snapshot?.position ?? START;
  const why = gap(found, from, oldest, spool.position);
  if (why !== undefined) {
    if (!beginAnew) return { kind: 'lost', why: `${file} ${why}` };
    listener.begunAnew(why);
  }
  // A snapshot that is ahead counts everything in the spool and more: no record is charged again.
  const ahead = comparePositions(from, spool.position) > 0;
  const start = why === undefined ? from : ahead ? spool.position : oldest;
  // An older sidecar kept accounts that have spent nothing.
  const spent = new Map([...(snapshot?.settled ?? [])].filter(([, sum]) => sum > 0n));
  const estimated = new Map(spool.estimated.map((record) => [record.id, record]));
  /** Closes after the start that must not be counted: the snapshot may already include these requests. */
  const counted = new Set(ahead ? estimated.keys() : []);
  const count = (close: UsageRecord): void => {
    estimated.delete(close.id);
    if (!counted.delete(close.id)) add(spent, close);
  };
  const save = (position: Position): Promise<void> => writeSnapshot(file, { position, settled: spent });
  const sums = new DurableSums({ clock, spool, snapshotMs, snapshotCloses, count, save, listener }, start);
  await sums.readOn();
  const settled = new Map(spent);
  if (!ahead) for (const record of estimated.values()) add(settled, record);
  // At once: later closes of this process must be added to these sums, and the old snapshot's position is invalid.
  if (why !== undefined) await sums.save();
  sums.begin();
  return { kind: 'rebuilt', balances: sums, settled };
}

/** Why records from `from` on are incomplete, as the predicate of a sentence about the snapshot; undefined if they are complete. */
function gap(
  found: Snapshot | 'missing' | 'damaged',
  from: Position,
  oldest: Position,
  newest: Position,
): string | undefined {
  if (comparePositions(from, newest) > 0) return 'counts more than the spool holds';
  if (comparePositions(from, oldest) >= 0) return undefined;
  return typeof found === 'string'
    ? `is ${found}, and the oldest segments of the spool are gone`
    : 'is older than the oldest segment of the spool';
}

/**
 * Adds the price of a `close` to its account, if it was paid from credit kept here and in no store. A free request adds no account: an
 * authorizer may report any number of them, while only those with a grant can pay.
 */
function add(sums: Map<string, bigint>, { account, prepaid, escrow, price }: UsageRecord): void {
  if (prepaid !== true || escrow === true || !price) return;
  const paid = parsePicodollars(price.picodollars) ?? 0n;
  if (paid > 0n) sums.set(account, (sums.get(account) ?? 0n) + paid);
}

export interface Snapshot {
  /** All records before it are counted, and none after it. */
  readonly position: Position;
  /** Picodollars by account. */
  readonly settled: ReadonlyMap<string, bigint>;
}

/** Accounts written at a time: some 50 KiB, which block the event loop for less than a millisecond. */
const SLICE_ACCOUNTS = 1000;

const STORED = exactly({
  version: { const: 2 },
  position: POSITION,
  /** Picodollars as decimal text. */
  settled: { type: 'object', additionalProperties: { type: 'string', maxLength: 40, pattern: '^\\d+$' } },
  /** SHA-256, hex, over the file before it, since a changed digit would change a balance. */
  checksum: { type: 'string' },
});

const check = compile<ValueOf<typeof STORED>>(STORED, { written: 'balances' });

/** As {@link readSealed}. */
export async function readSnapshot(file: string): Promise<Snapshot | 'missing' | 'damaged'> {
  const stored = await readSealed(file, check);
  if (typeof stored === 'string') return stored;
  const { position, settled } = stored;
  const sums = Object.entries(settled).map(([account, sum]) => [account, parsePicodollars(sum) ?? 0n] as const);
  return { position, settled: new Map(sums) };
}

/**
 * Rejects if it cannot be written; the old file is then unchanged. Resolves once it is durable; until then the sums must not change. It is
 * written in slices, since there may be many accounts and requests are served meanwhile.
 */
export async function writeSnapshot(file: string, snapshot: Snapshot): Promise<void> {
  await writeSealed(file, slices(snapshot));
}

/** The file up to its checksum. */
function* slices({ position: { segment, offset }, settled }: Snapshot): Generator<string> {
  let text = `{"version":2,"position":${JSON.stringify({ segment, offset })},"settled":{`;
  let accounts = 0;
  for (const [account, sum] of settled) {
    text += `${accounts === 0 ? '' : ','}${JSON.stringify(account)}:"${sum}"`;
    accounts += 1;
    if (accounts % SLICE_ACCOUNTS > 0) continue;
    yield text;
    text = '';
  }
  yield `${text}}`;
}
