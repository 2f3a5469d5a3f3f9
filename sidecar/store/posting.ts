/**
 * Posts the charges of this replica from its spool to the store (migrations/credit.ts), in the background: nothing waits for it. The
 * spool remains the truth. A close says that it is paid from escrow, so that none of another source is posted.
 *
 *     apart ──the store knows the position──> replaying ──all of earlier runs is posted──> open ──post, post ...
 *       ^                                         │                                          │
 *       └──another epoch of this replica: an earlier state of the store was restored─────────┴──fenced: nothing more
 *
 * The position moves by compare-and-set. A post whose answer was lost is sent again: if it had run, the store answers with the position,
 * from where this goes on. So it does when a failover has moved the position back, for which the spool keeps what was posted for a while.
 *
 * Before a record may be pruned, a position after it is saved beside the spool, so that what is missing after the saved one was pruned by
 * a sidecar whose credit is not in the store: app/billing.ts lets one start only if nothing after it is to be posted.
 */
import type { UsageRecord } from '../domain/usage-record.js';
import type { Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import type { CursorFile } from '../usage/delivery/files.js';
import { comparePositions, START, type Position } from '../usage/spool-format.js';
import type { Spool } from '../usage/spool.js';
import { BACKGROUND_MS, type Database } from './database.js';
import type { Replica, Session } from './replica.js';

/** How often the spool is looked at, and the wait after a call that failed, ms; and that after the spool could not be read. */
const POST_MS = 250;
const UNREAD_MS = 5000;

/** Charges of one call at most, and records that are read for it. After a call that failed or was slow, half as many are sent. */
const TOGETHER = 1000;
const MOST_READ = 20_000;

/**
 * A position is sent after this time also without a charge, ms: a start need not read what was read before, and it shows if a crash of the
 * store has lost the last post.
 */
const SAVE_MS = 10_000;

/** How long the spool keeps what was posted while it has room, at least, ms: a failover may move the position back. */
const KEEP_MS = 600_000;

/** How long the store may take to give back what earlier runs of this replica held, ms: perhaps of very many accounts. */
const OPEN_MS = 10_000;

/** The time between two removals of old charges by one replica, ms. */
const SWEEP_MS = 600_000;

export type PostedSpool = Pick<Spool, 'estimated' | 'position' | 'oldest' | 'read' | 'sync'> &
  Partial<Pick<Spool, 'bytesFrom'>>;

interface Charge {
  readonly id: string;
  readonly account: string;
  readonly picodollars: string;
  /** The position after its record. */
  readonly after: Position;
}

/** A part of the spool: its charges, and the position after it. */
interface Part {
  readonly charges: readonly Charge[];
  readonly to: Position;
}

/** The store's numbers are text, since they have 64 bits. */
export interface PositionRow {
  readonly segment: string;
  readonly byte: string;
}

export interface PostingOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly database: Database;
  readonly replica: Replica;
  /** What to do if the spool no longer has all records that are not posted, or has fewer than were posted. */
  readonly onLost: 'refuse' | 'begin';
  /** Where a position up to which all is posted is saved. */
  readonly saved: Pick<CursorFile, 'load' | 'save'>;
  /** A spool with more bytes keeps nothing that is posted. */
  readonly keepBytes: number;
  /** The store has opened this run, or opened it again after an earlier state of it was restored. `released`: what earlier runs held. */
  readonly opened: (released: bigint) => void;
  /** Who has the store note what is given back in its audit. Absent: a start of a sidecar, which is not noted. */
  readonly operator?: string;
  /** Charges exceeded the escrow: the store had lost what was held. */
  readonly uncovered: () => void;
  /** The store will not open this run, since records are missing: a line for the operator. It may come after {@link Posting.begin}. */
  readonly lost: (line: string) => void;
}

/** The posting of one process. Owned by the store's credit, which closes it. */
export class Posting {
  readonly #options: PostingOptions;
  #spool: PostedSpool | undefined;
  /** Records before it are of earlier runs. */
  #begin: Position | undefined;
  /** The epoch for which the store's position is known. */
  #epoch = 0;
  #isOpen = false;
  /** Up to where the store says that it has posted, and up to where this has read without finding a charge. */
  #posted = START;
  #read = START;
  /** What was read and is not posted: while the store does not answer, the spool is not read again. */
  #part: Part | undefined;
  /** How many charges the next call may have. */
  #together = TOGETHER;
  #savedAt = -Infinity;
  /** Posted at the last change of `#keptAt`, and at the one before. */
  #kept: readonly [earlier: Position, later: Position] = [START, START];
  #keptAt = -Infinity;
  /** Clock reading at which all that was durable was posted. */
  #doneAt: number;
  #problem: string | undefined;
  #tried!: () => void;
  readonly #firstTry = new Promise<void>((resolve) => (this.#tried = resolve));
  #working: Promise<void> | undefined;
  #cancelTimer = (): void => undefined;
  #closed = false;

  constructor(options: PostingOptions) {
    this.#options = options;
    this.#doneAt = options.clock.now();
    options.replica.onBeat(() => void this.#work());
    options.replica.sweeps('sweep_charges', SWEEP_MS);
  }

  /** Whether the store has opened this run, for the present epoch. */
  get isOpen(): boolean {
    return this.#isOpen && this.#epoch === this.#options.replica.session?.epoch;
  }

  /** The position from which the spool's records are still needed. */
  get keepFrom(): Position {
    return this.#kept[0];
  }

  /** Up to where the store says that it has posted. */
  get posted(): Position {
    return this.#posted;
  }

  /** For how long durable charges have not been posted, ms; 0: none waits. */
  get lagMs(): number {
    const isBehind = this.#spool && comparePositions(this.#read, this.#spool.position) < 0;
    return isBehind ? this.#options.clock.now() - this.#doneAt : 0;
  }

  /**
   * The spool has recovered. Resolves once the store has opened this run, or does not answer yet; with a line if it will not, since records
   * are missing. Call it once.
   */
  async begin(spool: PostedSpool): Promise<string | undefined> {
    // The closes of recovery are of earlier runs.
    for (const record of spool.estimated) while (!this.#closed && !(await spool.sync(record)));
    this.#begin = spool.position;
    this.#spool = spool;
    this.#later(0);
    await this.#firstTry;
    return this.#problem;
  }

  /** The store does not know that this run is open: an earlier state of it was restored. */
  closedByStore(): void {
    this.#epoch = 0;
    this.#later(0);
  }

  /** Posts what is durable, if the store answers. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#tried();
    this.#cancelTimer();
    await this.#working;
    if (!this.isOpen) return;
    await this.#postAll().catch(() => undefined);
    // If it cannot be saved, the one before it is right as well.
    await this.#options.saved.save(this.#posted).catch(() => undefined);
  }

  #later(ms: number): void {
    this.#cancelTimer();
    if (!this.#closed) this.#cancelTimer = this.#options.clock.after(ms, () => void this.#work());
  }

  /** One at a time. Never rejects. */
  #work(): Promise<void> {
    if (this.#closed || !this.#spool) return Promise.resolve();
    if (this.#working) return this.#working;
    this.#cancelTimer();
    const turn = this.#turn().then(
      () => POST_MS,
      (fault: unknown) => {
        this.#options.log.error('credit cannot be posted', { fault });
        return UNREAD_MS;
      },
    );
    this.#working = turn.then((ms) => {
      this.#working = undefined;
      this.#tried();
      this.#later(ms);
    });
    return this.#working;
  }

  async #turn(): Promise<void> {
    const { session } = this.#options.replica;
    if (!session) return;
    if (this.#epoch !== session.epoch && !(await this.#locate(session))) return;
    await this.#postAll();
  }

  /** Asks up to where the spool is posted. False: it is not known. */
  async #locate({ no, epoch }: Session): Promise<boolean> {
    const { clock, database, replica, onLost, log, lost, saved } = this.#options;
    const [spool, begin] = [this.#spool, this.#begin];
    if (!spool || !begin) return false;
    const args = [no, epoch, begin.segment, begin.offset];
    const answer = await database.call<PositionRow & { outcome: string }>('open_position', args);
    const row = answer.kind === 'rows' ? answer.rows[0] : undefined;
    if (row?.outcome !== 'opened') {
      if (row) replica.hurry();
      return false;
    }
    const posted = positionOf(row);
    const isAhead = comparePositions(posted, spool.position) > 0;
    const why = isAhead
      ? 'the store has posted more than the spool holds'
      : comparePositions(posted, await spool.oldest()) < 0 && (await isBefore(posted, saved))
        ? 'records that the store has not posted are gone from the spool'
        : undefined;
    if (why !== undefined && onLost === 'refuse') {
      const line = `credit: ${why}; see credit.onLostBalances`;
      if (this.#problem !== line) {
        log.error('credit is not available', { reason: why });
        lost(line);
      }
      this.#problem = line;
      return false;
    }
    if (why !== undefined) log.warn('credit is posted from what is left', { reason: why });
    this.#problem = undefined;
    this.#isOpen = false;
    // Before anything is charged.
    await saved.save(isAhead ? spool.position : posted);
    this.#epoch = epoch;
    this.#at(posted);
    this.#kept = [posted, posted];
    this.#keptAt = clock.now();
    // Nothing that was posted is posted again.
    if (isAhead && !(await this.#post({ charges: [], to: spool.position }))) this.#epoch = 0;
    return this.#epoch === epoch;
  }

  /** Opens this run and posts until nothing is left or a call fails. Rejects if the spool cannot be read. */
  async #postAll(): Promise<void> {
    const { clock } = this.#options;
    const [spool, begin] = [this.#spool, this.#begin];
    if (!spool || !begin) return;
    for (;;) {
      if (!this.#isOpen && comparePositions(this.#posted, begin) >= 0 && !(await this.#open())) return;
      const from = clock.now();
      const part = (this.#part ??= await this.#next(spool, this.#isOpen ? spool.position : begin));
      const isDue =
        !this.#isOpen ||
        part.charges.length > 0 ||
        part.to.segment !== this.#posted.segment ||
        from > this.#savedAt + SAVE_MS;
      if (!isDue) {
        this.#read = part.to;
        this.#part = undefined;
      } else if (!(await this.#post(part))) return;
      if (!this.#isOpen || comparePositions(this.#read, spool.position) < 0) continue;
      this.#doneAt = from;
      return;
    }
  }

  /** The next part of the spool, up to `until` at most. */
  async #next(spool: PostedSpool, until: Position): Promise<Part> {
    const charges: Charge[] = [];
    let to = this.#read;
    let read = 0;
    for await (const item of spool.read(to, until)) {
      read += 1;
      if (item.kind === 'damage') {
        this.#options.log.error('spool is damaged, the damaged records are not posted', { bytes: item.bytes });
        continue;
      }
      to = item.after;
      const charge = chargeOf(item.record);
      if (charge) charges.push({ ...charge, after: to });
      if (charges.length >= TOGETHER || read >= MOST_READ) return { charges, to };
    }
    return { charges, to: comparePositions(to, until) < 0 ? until : to };
  }

  /** Whether the store has posted a part, or as much of it as one call may have. */
  async #post(part: Part): Promise<boolean> {
    const { clock, database, replica, log, uncovered } = this.#options;
    const { session } = replica;
    if (!session || session.epoch !== this.#epoch) return false;
    const from = this.#posted;
    const charges = part.charges.slice(0, this.#together);
    const rest = part.charges.slice(charges.length);
    const to = (rest.length > 0 ? charges.at(-1)?.after : undefined) ?? part.to;
    const columns = (['id', 'account', 'picodollars'] as const).map((name) => charges.map((charge) => charge[name]));
    const args = [session.no, session.epoch, from.segment, from.offset, to.segment, to.offset, ...columns];
    const sentAt = clock.now();
    const answer = await database.call<PositionRow & { outcome: string; uncovered: string }>('post', args, {
      withinMs: BACKGROUND_MS,
    });
    // The same ones together may take too long each time; and draws of their accounts wait meanwhile.
    const isSlow = answer.kind === 'down' || clock.now() > sentAt + POST_MS;
    if (!isSlow) this.#together = Math.min(TOGETHER, this.#together * 2);
    else if (charges.length > 0) this.#together = Math.ceil(charges.length / 2);
    const row = answer.kind === 'rows' ? answer.rows[0] : undefined;
    if (row?.outcome === 'posted') {
      this.#savedAt = clock.now();
      this.#at(to);
      if (rest.length > 0) this.#part = { charges: rest, to: part.to };
      if (row.uncovered !== '0') {
        uncovered();
        log.error('credit was charged that the store does not hold', {
          reason: 'a failover or a restored backup of the store has lost what sidecars held; balances may be below 0',
        });
      }
      await this.#keep(to);
      return true;
    }
    if (row?.outcome === 'moved') {
      const moved = positionOf(row);
      if (comparePositions(moved, this.#kept[0]) < 0) {
        log.error('credit may not be posted completely', {
          reason: 'an earlier state of the store was restored, and the spool may not have all records since',
        });
      }
      this.#at(moved);
      return true;
    }
    // The store was restored to a state before this start, or another start has begun.
    if (row) {
      this.#epoch = 0;
      replica.hurry();
    }
    return false;
  }

  /** Whether the store has opened this run. */
  async #open(): Promise<boolean> {
    const { database, replica, opened, operator } = this.#options;
    const { session, run } = replica;
    if (!session || session.epoch !== this.#epoch || run === undefined) return false;
    const { segment, offset } = this.#posted;
    const args = [session.no, session.epoch, run, segment, offset, operator ?? null];
    const within = { withinMs: OPEN_MS };
    const answer = await database.call<{ outcome: string; released: string }>('open_escrow', args, within);
    const row = answer.kind === 'rows' ? answer.rows[0] : undefined;
    if (row?.outcome === 'open') {
      this.#isOpen = true;
      opened(BigInt(row.released));
      return true;
    }
    if (row) {
      this.#epoch = 0;
      replica.hurry();
    }
    return false;
  }

  #at(position: Position): void {
    this.#posted = position;
    this.#read = position;
    this.#part = undefined;
  }

  /** Rejects if the disk fails: then the spool keeps its records. */
  async #keep(posted: Position): Promise<void> {
    const { clock, saved, keepBytes } = this.#options;
    const now = clock.now();
    const [from, earlier] = this.#kept;
    // Only whole segments are pruned.
    const isLarge = posted.segment !== from.segment && (this.#spool?.bytesFrom?.(START) ?? 0) > keepBytes;
    if (!isLarge && now < this.#keptAt + KEEP_MS) return;
    const next = isLarge ? posted : earlier;
    await saved.save(next);
    this.#keptAt = now;
    this.#kept = [next, posted];
  }
}

/** Whether a position is before the one that was saved, or none was. Rejects if the disk fails. */
async function isBefore(position: Position, saved: PostingOptions['saved']): Promise<boolean> {
  const found = await saved.load();
  return found.kind !== 'at' || comparePositions(position, found.position) < 0;
}

/** Whether the spool, which has recovered, has something to post from a position on. Rejects if it cannot be read. */
export async function hasCharges(spool: PostedSpool, from: Position): Promise<boolean> {
  if (spool.estimated.some(chargeOf)) return true;
  for await (const item of spool.read(from, spool.position)) {
    if (item.kind === 'record' && chargeOf(item.record)) return true;
  }
  return false;
}

/** What a record charges to an account of the store; undefined if nothing. */
function chargeOf({ kind, id, account, escrow, price }: UsageRecord): Omit<Charge, 'after'> | undefined {
  if (kind !== 'close' || escrow !== true || !price || price.picodollars === '0') return undefined;
  return { id, account, picodollars: price.picodollars };
}

export function positionOf({ segment, byte }: PositionRow): Position {
  return { segment: Number(segment), offset: Number(byte) };
}
