/**
 * What accounts have spent, from the spool alone: the sum of the prices on the closing lines that were paid from credit
 * kept here. Sums are only ever made by reading the spool on, from the last snapshot to what is durable now, at the start
 * and again for each snapshot. So a snapshot can hold nothing that the spool does not, and whoever adds up the spool gets
 * the same.
 *
 *     snapshot ──> rebuild: snapshot + closes after it ──> sums at `position`
 *                                                             └─ every so many closes or ms: read on, write the next
 */
import type { Clock } from '../lib/clock.js';
import type { UsageRecord } from '../domain/usage-record.js';
import { parsePicodollars } from '../domain/money.js';
import { readSnapshot, writeSnapshot, type Snapshot } from './balance-file.js';
import { comparePositions, START, type Position, type Read } from './segments.js';

/** What of the spool is needed here. */
export interface SpoolReader {
  /** Closes that recovery appended for requests that had none. They may not be durable yet. */
  readonly estimated: readonly UsageRecord[];
  /** Up to where records are durable. */
  readonly position: Position;
  /** Where the oldest records begin that are left; START while none was ever pruned. */
  oldest(): Promise<Position>;
  read(from: Position, until: Position): AsyncIterable<Read>;
}

export interface BalancesOptions {
  readonly clock: Clock;
  readonly spool: SpoolReader;
  /** Path of the snapshot. */
  readonly file: string;
  /** A snapshot is written every so many ms if the spool has grown, and after so many requests that were settled. */
  readonly snapshotMs: number;
  readonly snapshotCloses: number;
  /** Count from what is left where records are missing. */
  readonly beginAnew: boolean;
  readonly listener: BalancesListener;
}

export interface BalancesListener {
  /** So many bytes of the spool are no record any more: what stood there is not counted. */
  damaged(bytes: number): void;
  /** A snapshot could not be written; the next one is tried in time. */
  unwritten(fault: unknown): void;
  /** Records are missing and it goes on all the same, as it was told to. */
  begunAnew(why: string): void;
}

export type Rebuilt =
  | { readonly kind: 'rebuilt'; readonly balances: Balances; readonly settled: ReadonlyMap<string, bigint> }
  /** The sums cannot be made, and why: one line. */
  | { readonly kind: 'lost'; readonly why: string };

export class Balances {
  readonly #options: BalancesOptions;
  readonly #sums: Map<string, bigint>;
  /** What `#sums` counts up to. */
  #position: Position;
  /** The same of the snapshot on disk. */
  #kept: Position;
  /** Closes that are not counted though they come after `#position`: the snapshot may hold what these requests came to. */
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

  /** Adds up the spool. Rejects when it cannot be read, or when sums that begin anew cannot be written down. */
  static async rebuild(options: BalancesOptions): Promise<Rebuilt> {
    const { spool, file, beginAnew, listener } = options;
    const found = await readSnapshot(file);
    const oldest = await spool.oldest();
    const whole = typeof found === 'object' ? found : undefined;
    const from = whole?.position ?? START;
    const why = gap(found, from, oldest, spool.position);
    if (why !== undefined) {
      if (!beginAnew) return { kind: 'lost', why: `${file} ${why}` };
      listener.begunAnew(why);
    }
    // A snapshot that is ahead counts what the spool holds, and more: none of it is charged a second time.
    const ahead = comparePositions(from, spool.position) > 0;
    const start = why === undefined ? from : ahead ? spool.position : oldest;
    const balances = new Balances(options, new Map(whole?.settled), start, start);
    const estimated = new Map(spool.estimated.map((record) => [record.id, record]));
    if (ahead) for (const id of estimated.keys()) balances.#counted.add(id);
    await balances.#readOn((id) => estimated.delete(id));
    const settled = new Map(balances.#sums);
    if (!ahead) for (const record of estimated.values()) add(settled, record);
    // At once: what this process adds is to come on top of these sums, and the place in the old ones is none any more.
    if (why !== undefined) await balances.#save();
    balances.#wait();
    return { kind: 'rebuilt', balances, settled };
  }

  /** The spool must keep its records from here on: a start needs them. */
  get keepFrom(): Position {
    return this.#kept;
  }

  /** A request was settled, and its closing line goes to the spool. */
  settled(): void {
    this.#settled += 1;
    if (!this.#closed && this.#settled >= this.#options.snapshotCloses) void this.#snapshot();
  }

  /** Writes the last snapshot, of what is durable by now. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTimer();
    await this.#writing;
    await this.#snapshot();
  }

  #wait(): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#options.clock.after(this.#options.snapshotMs, () => void this.#snapshot());
  }

  /** One at a time; what is settled meanwhile is for the next. */
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

  /** Counts what became durable since. A record is counted together with its place, so a fault on the way loses none. */
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

/** What keeps the records from `from` on from being all, as a predicate of the snapshot; undefined: nothing. */
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

/** Adds what a closing line bills to its account, if it was paid from credit kept here. */
function add(sums: Map<string, bigint>, { account, prepaid, price }: UsageRecord): void {
  if (prepaid !== true || !price) return;
  sums.set(account, (sums.get(account) ?? 0n) + (parsePicodollars(price.picodollars) ?? 0n));
}
