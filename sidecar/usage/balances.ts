/**
 * What accounts have spent, computed only from the spool: the sum of the prices on `close` records that were paid from
 * credit kept here. The sums are only ever changed by reading the spool, from the last snapshot to the last durable
 * record, at the start and for each snapshot. So a snapshot never counts anything that is not in the spool.
 *
 *     snapshot ──> rebuild: snapshot + closes after it ──> sums at `position`
 *                                                             └─ every so many closes or ms: read on, write the next
 *
 * The snapshot, `balances.json`, is replaced atomically. It has the position in the spool up to which it counts, so that older
 * records are not needed any more.
 */
import { createHash } from 'node:crypto';
import { readFile, type FileHandle } from 'node:fs/promises';
import { compile } from '../contracts/validator.js';
import { BALANCES_CODE } from '../contracts/written-code.js';
import type { UsageRecord } from '../domain/usage-record.js';
import { parsePicodollars } from '../domain/money.js';
import type { Clock } from '../lib/clock.js';
import { replaceFile } from '../lib/replace-file.js';
import { isMissing } from './disk.js';
import type { Spool } from './spool.js';
import { comparePositions, START, type Position } from './spool-format.js';

/** What the balances use of the spool. */
export type CountedSpool = Pick<Spool, 'estimated' | 'position' | 'oldest' | 'read'>;

/**
 * A snapshot is written after this time, ms, if the spool has grown, and after this many settled requests: a start has to read no more
 * of the spool than that, which takes milliseconds.
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

export interface BalancesListener {
  /** Called with the number of bytes that are damaged and not counted. */
  damaged(bytes: number): void;
  /** A snapshot could not be written; the next attempt is at the usual time. */
  unwritten(fault: unknown): void;
  /** Records are missing, and the sums are rebuilt as configured. */
  begunAnew(why: string): void;
}

export type Rebuilt =
  | { readonly kind: 'rebuilt'; readonly balances: Balances; readonly settled: ReadonlyMap<string, bigint> }
  /** The sums cannot be computed; `why` is one line. */
  | { readonly kind: 'lost'; readonly why: string };

export class Balances {
  readonly #options: BalancesOptions;
  readonly #sums: Map<string, bigint>;
  /** Position up to which `#sums` counts. */
  #position: Position;
  /** The same for the snapshot on disk. */
  #kept: Position;
  /** Closes after `#position` that must not be counted: the snapshot may already include these requests. */
  readonly #counted = new Set<string>();
  /** Requests that were settled since the last snapshot began. */
  #settled = 0;
  #writing: Promise<void> | undefined;
  #cancelTimer = (): void => undefined;
  #closed = false;

  private constructor(options: BalancesOptions, sums: Map<string, bigint>, position: Position, kept: Position) {
    this.#options = options;
    this.#sums = sums;
    this.#position = position;
    this.#kept = kept;
  }

  /** Sums up the spool. Rejects if it cannot be read, or if rebuilt sums cannot be written. */
  static async rebuild(options: BalancesOptions): Promise<Rebuilt> {
    const { spool, file, beginAnew, listener } = options;
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
    const spent = [...(snapshot?.settled ?? [])].filter(([, sum]) => sum > 0n);
    const balances = new Balances(options, new Map(spent), start, start);
    const estimated = new Map(spool.estimated.map((record) => [record.id, record]));
    if (ahead) for (const id of estimated.keys()) balances.#counted.add(id);
    await balances.#readOn((id) => estimated.delete(id));
    const settled = new Map(balances.#sums);
    if (!ahead) for (const record of estimated.values()) add(settled, record);
    // At once: later closes of this process must be added to these sums, and the old snapshot's position is invalid.
    if (why !== undefined) await balances.#save();
    balances.#wait();
    return { kind: 'rebuilt', balances, settled };
  }

  /** The spool must keep its records from this position on: a start needs them. */
  get keepFrom(): Position {
    return this.#kept;
  }

  /** A request was settled, and its `close` is being written to the spool. */
  settled(): void {
    this.#settled += 1;
    if (!this.#closed && this.#settled >= (this.#options.snapshotCloses ?? SNAPSHOT_CLOSES)) void this.#snapshot();
  }

  /** Writes the last snapshot, up to the last durable record. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTimer();
    await this.#writing;
    await this.#snapshot();
  }

  #wait(): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#options.clock.after(this.#options.snapshotMs ?? SNAPSHOT_MS, () => void this.#snapshot());
  }

  /** One at a time; requests settled meanwhile are counted by the next. */
  #snapshot(): Promise<void> {
    this.#writing ??= this.#write().finally(() => {
      this.#writing = undefined;
      if (!this.#closed) this.#wait();
    });
    return this.#writing;
  }

  async #write(): Promise<void> {
    this.#cancelTimer();
    this.#settled = 0;
    try {
      await this.#readOn();
      if (comparePositions(this.#position, this.#kept) !== 0) await this.#save();
    } catch (fault) {
      this.#options.listener.unwritten(fault);
    }
  }

  async #save(): Promise<void> {
    const position = this.#position;
    await writeSnapshot(this.#options.file, { position, settled: this.#sums });
    this.#kept = position;
  }

  /**
   * Counts records that became durable since. A record and its position are counted together, so a failure in between
   * loses none.
   */
  async #readOn(onClose: (id: string) => void = () => undefined): Promise<void> {
    const { spool, listener } = this.#options;
    for await (const read of spool.read(this.#position, spool.position)) {
      if (read.kind === 'damage') {
        this.#position = { segment: read.segment, offset: read.offset + read.bytes };
        listener.damaged(read.bytes);
        continue;
      }
      this.#position = read.after;
      if (read.record.kind !== 'close') continue;
      onClose(read.record.id);
      if (!this.#counted.delete(read.record.id)) add(this.#sums, read.record);
    }
  }
}

/**
 * Why records from `from` on are incomplete, as the predicate of a sentence about the snapshot; undefined if they are
 * complete.
 */
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
 * Adds the price of a `close` to its account, if it was paid from credit kept here. A free request adds no account: an
 * authorizer may report any number of them, while only those with a grant can pay.
 */
function add(sums: Map<string, bigint>, { account, prepaid, price }: UsageRecord): void {
  if (prepaid !== true || !price) return;
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

/** The text before the checksum. No account's name can contain it, since quotes in names are escaped. */
const CHECKSUM = ',"checksum":"';

interface Stored {
  /** 1: written by older sidecars, whose checksum could not be computed while writing. */
  readonly version: 1 | 2;
  readonly position: Position;
  /** Picodollars as decimal text. */
  readonly settled: Readonly<Record<string, string>>;
  /**
   * SHA-256, hex, over the file before it (in version 1 over position and sums), since a changed digit would change a
   * balance.
   */
  readonly checksum: string;
}

const check = compile<Stored>(
  {
    type: 'object',
    additionalProperties: false,
    required: ['version', 'position', 'settled', 'checksum'],
    properties: {
      version: { enum: [1, 2] },
      position: {
        type: 'object',
        additionalProperties: false,
        required: ['segment', 'offset'],
        properties: { segment: { type: 'integer', minimum: 1 }, offset: { type: 'integer', minimum: 0 } },
      },
      settled: { type: 'object', additionalProperties: { type: 'string', maxLength: 40, pattern: '^\\d+$' } },
      checksum: { type: 'string' },
    },
  },
  { written: BALANCES_CODE },
);

/** `missing`: there is no file; `damaged`: it cannot be read, or its checksum is wrong. */
export async function readSnapshot(file: string): Promise<Snapshot | 'missing' | 'damaged'> {
  let text: string;
  let value: unknown;
  try {
    text = await readFile(file, 'utf8');
    value = JSON.parse(text);
  } catch (error) {
    return isMissing(error) ? 'missing' : 'damaged';
  }
  const checked = check(value);
  if (!checked.ok) return 'damaged';
  const { version, position, settled, checksum } = checked.value;
  const entries = Object.entries(settled);
  const found = version === 1 ? checksumOf(position, entries) : sha256(text.slice(0, text.lastIndexOf(CHECKSUM)));
  if (checksum !== found) return 'damaged';
  return { position, settled: new Map(entries.map(([account, sum]) => [account, parsePicodollars(sum) ?? 0n])) };
}

/**
 * Rejects if it cannot be written; the old file is then unchanged. Resolves once it is durable; until then the sums
 * must not change. It is written in slices, since there may be many accounts and requests are served meanwhile.
 */
export async function writeSnapshot(file: string, snapshot: Snapshot): Promise<void> {
  const write = async (draft: FileHandle): Promise<void> => {
    const hash = createHash('sha256');
    for (const text of slices(snapshot)) {
      hash.update(text);
      await draft.appendFile(text);
    }
    await draft.appendFile(`${CHECKSUM}${hash.digest('hex')}"}\n`);
  };
  // Only the holder of the spool's lock writes it.
  await replaceFile(file, write, { soleWriter: true });
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

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** For version 1. Sorted by account, since objects reorder keys that look like numbers. */
function checksumOf({ segment, offset }: Position, entries: readonly (readonly [string, string])[]): string {
  const sorted = [...entries].sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
  return sha256(JSON.stringify([segment, offset, sorted]));
}
