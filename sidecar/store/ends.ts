/**
 * What the store holds for requests of this sidecar until they end: places of limits, tokens of quotas, Idempotency-Keys.
 *
 *     begin ──> held ──end──> ended ──the store has answered──> gone
 *       ├──none──> gone: the store holds nothing for it
 *       └──none, without an answer ──two beats later──> ended, as `none` says
 *
 * Ends are sent together, in the background, again and again until the store has answered: nothing waits for them. Another call may take
 * some along. A call whose answer was lost may still arrive at the store. It is void once the store has counted two beats more of this
 * replica, and only then is taken back what it may have left. What is remembered is bounded by the requests that the store let in.
 *
 * A process that is killed, or stops while the store does not answer, leaves ends that were not sent. Its requests have their closes in
 * the spool, with what they are known by in the store: the next start asks the store what it still holds for earlier ones, and sends how
 * each ended. So an end is neither lost nor counted twice, however often a start is killed before that.
 */
import type { UsageRecord } from '../domain/usage-record.js';
import type { Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import { comparePositions, START, type Position } from '../usage/spool-format.js';
import { BACKGROUND_MS, type Database } from './database.js';
import { positionOf, type PositionRow, type PostedSpool } from './posting.js';
import type { Replica, Session } from './replica.js';

/** Ends that are sent in one call; the others follow in the next. */
const TOGETHER = 1000;

/** The wait after a call that failed, ms. */
const AGAIN_MS = 250;

const VOID_AFTER_BEATS = 2;

/** How long the spool is kept for ends that the store has not heard of, also of earlier starts, ms. Later, their records may be gone. */
const HOLD_MS = 600_000;

interface Held {
  /** What it is held by: 128 bits in hexadecimal each. */
  readonly keys: readonly string[];
  /** The store's count of beats when it was asked. */
  readonly beat: number;
  /** Where the spool was; the request's records come after it. */
  readonly from: Position;
}

interface Ended<T> extends Held {
  readonly how: T;
  /** Clock reading. */
  readonly at: number;
  /** A call with it is in flight. */
  isSent?: boolean;
}

type Ending<T> = readonly [request: number, ended: Ended<T>];

/** What the store holds for a request of an earlier start, by one of its keys, and where the spool was when that began. */
export interface LeftRow extends PositionRow {
  readonly name: string;
  readonly epoch: number;
  readonly request: string;
  readonly key: string;
  /** Those that it has reserved. */
  readonly tokens: string;
}

/** How requests of earlier starts are ended. */
export interface Left<T> {
  readonly log: Log;
  /** The function of the store that returns what it holds for them. */
  readonly fn: 'left_claims' | 'left_tokens';
  /** The `name` under which the store has the request of a usage record; undefined: it has none. */
  readonly nameOf: (close: UsageRecord) => string | undefined;
  /** How a request ended that has these closes. `gone`: the spool may have had others. */
  readonly howOf: (closes: readonly UsageRecord[], gone: boolean, row: LeftRow) => T;
}

export interface EndsOptions<T> {
  readonly clock: Clock;
  readonly database: Database;
  readonly replica: Replica;
  /** The function of the store that takes ends. */
  readonly fn: 'release' | 'finish' | 'settle_tokens';
  /** How a request ends of which it is not known whether the store held something. */
  readonly none: T;
  /** Absent: what an earlier start left ends with its lease. */
  readonly left?: Left<T>;
}

/** The requests of this sidecar that hold something of one kind. `T`: how they end. */
export class Ends<T extends boolean | number> {
  readonly #options: EndsOptions<T>;
  /** In the order of their numbers. */
  readonly #live = new Map<number, Held>();
  readonly #ended = new Map<number, Ended<T>>();
  readonly #lost = new Set<number>();
  readonly #holdUntil: number;
  #spool: PostedSpool | undefined;
  #epoch = 0;
  /** The epoch at which the requests of earlier processes were ended. */
  #settled = 0;
  #settling: Promise<void> | undefined;
  #sending: Promise<void> | undefined;
  /** The last call of it: whether the store has answered. */
  #sent = Promise.resolve(true);
  #cancelTimer: (() => void) | undefined;
  #closed = false;

  constructor(options: EndsOptions<T>) {
    this.#options = options;
    this.#holdUntil = options.clock.now() + HOLD_MS;
    options.replica.onBeat((session) => this.#beaten(session));
  }

  /** Requests for which the store holds something, or may hold something. */
  get size(): number {
    return this.#live.size;
  }

  /** The lowest number of these; above all numbers so far if there are none. */
  get oldest(): number {
    return this.#live.keys().next().value ?? this.#options.replica.lastNumber + 1;
  }

  /** Where the spool is; the records of a request that begins come after it. */
  get position(): Position {
    return this.#spool?.position ?? START;
  }

  /** The position from which the spool's records are still needed; undefined if none is. */
  get keepFrom(): Position | undefined {
    const now = this.#options.clock.now();
    if (this.#settled === 0 && now < this.#holdUntil) return START;
    for (const [request, { from }] of this.#live) {
      const ended = this.#ended.get(request);
      if (!ended || now < ended.at + HOLD_MS) return from;
    }
    return undefined;
  }

  /** The spool has recovered: how requests of earlier starts ended can be looked for in it. */
  recovered(spool: PostedSpool): void {
    this.#spool = spool;
    const { session } = this.#options.replica;
    if (session) this.#settle(session);
  }

  /** The number of a request for which the store is asked now; below those of later calls. */
  begin(keys: readonly string[], beat: number): number {
    const request = this.#options.replica.number();
    this.#live.set(request, { keys, beat, from: this.position });
    return request;
  }

  /** The store holds nothing for it, or if the call was `sent` and not answered, perhaps something. */
  none(request: number, sent?: boolean): void {
    if (sent !== true) this.#live.delete(request);
    // Of an earlier epoch there is nothing to take back.
    else if (this.#live.has(request)) this.#lost.add(request);
  }

  /** It has ended. Call it once. `laterMs`: how long the store need not know, since another call may take it along. */
  end(request: number, how: T, laterMs = 0): void {
    const held = this.#live.get(request);
    if (!held) return;
    this.#ended.set(request, { ...held, how, at: this.#options.clock.now() });
    if (laterMs === 0) this.#send();
    else this.#sendLater(laterMs);
  }

  /** Waits until the call in flight or a later one has told a request's end; false: the store does not answer; undefined: it was told. */
  told(request: number | undefined): Promise<boolean> | undefined {
    if (request === undefined || !this.#ended.has(request)) return undefined;
    return this.#sent.then((sent) => (this.#ended.has(request) ? this.#sent : sent));
  }

  /** Ends of this kind that no call in flight has, for another call that takes them along. They are {@link given} after it. */
  along(how: T, most: number): Ending<T>[] {
    const along = this.#unsent.filter(([, ended]) => ended.how === how).slice(0, most);
    for (const [, ended] of along) ended.isSent = true;
    return along;
  }

  /** A call with these is over. */
  given(ends: readonly Ending<T>[], isAnswered: boolean): void {
    for (const [request, ended] of ends) {
      ended.isSent = false;
      if (isAnswered) for (const all of [this.#live, this.#ended, this.#lost]) all.delete(request);
      else this.#sendLater(AGAIN_MS);
    }
  }

  /** Sends the ends that are known, as long as the store answers. Those of earlier processes are left to the next start. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTimer?.();
    await Promise.all([this.#settling, this.#sending]);
    await this.#sendAll();
    this.#cancelTimer?.();
  }

  #beaten(session: Session): void {
    const { epoch, beat } = session;
    if (epoch !== this.#epoch) {
      // What an earlier epoch held is no longer this one's.
      this.#epoch = epoch;
      for (const all of [this.#live, this.#ended, this.#lost]) all.clear();
    }
    const due = [...this.#lost]
      .map((request) => [request, this.#live.get(request)] as const)
      .filter(([, held]) => held !== undefined && beat >= held.beat + VOID_AFTER_BEATS)
      .slice(0, TOGETHER)
      .map(([request, held]) => [request, { ...(held as Held), how: this.#options.none, at: 0 }] as const);
    if (due.length > 0) void this.#tell(due, true);
    this.#settle(session);
  }

  /** Those that no call in flight has. */
  get #unsent(): Ending<T>[] {
    return [...this.#ended].filter(([, { isSent }]) => isSent !== true);
  }

  #sendLater(ms: number): void {
    if (!this.#sending) this.#cancelTimer ??= this.#options.clock.after(ms, () => this.#send());
  }

  /** Sends ends until there are none. */
  #send(): void {
    if (this.#sending) return;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#sending = this.#sendAll().finally(() => {
      this.#sending = undefined;
      if (this.#unsent.length > 0) this.#sendLater(AGAIN_MS);
    });
  }

  async #sendAll(): Promise<void> {
    while (this.#unsent.length > 0 && (await (this.#sent = this.#tell(this.#unsent.slice(0, TOGETHER), false))));
  }

  /** Whether the store has answered. `doubtful`: calls of these may run now. */
  async #tell(ends: readonly Ending<T>[], doubtful: boolean): Promise<boolean> {
    const { database, replica, fn } = this.#options;
    const { session } = replica;
    if (!session) return false;
    for (const [, ended] of ends) ended.isSent = true;
    const answer = await database.call(fn, [
      session.no,
      session.epoch,
      ends.flatMap(([request, { keys }]) => keys.map(() => request)),
      ends.flatMap(([, { keys }]) => keys),
      ends.flatMap(([, { keys, how }]) => keys.map(() => how)),
      doubtful,
    ]);
    this.given(ends, answer.kind === 'rows');
    return answer.kind === 'rows';
  }

  /** Ends what the store holds for requests of earlier processes, once for each epoch. Tried again with the next beat where it fails. */
  #settle(session: Session): void {
    const { left } = this.#options;
    if (!left || !this.#spool || this.#settling || this.#settled === session.epoch) return;
    this.#settling = this.#settleAll(session, left, this.#spool).finally(() => (this.#settling = undefined));
  }

  async #settleAll({ no, epoch }: Session, left: Left<T>, spool: PostedSpool): Promise<void> {
    const { database, replica, fn } = this.#options;
    let count = 0;
    try {
      for (;;) {
        // Requests of this process that began before the store was restored may run: the next start ends these.
        const found = await database.call<LeftRow>(left.fn, [no, replica.run], { withinMs: BACKGROUND_MS });
        if (found.kind === 'down') return;
        const [{ rows }, first] = [found, found.rows[0]];
        if (!first) {
          this.#settled = epoch;
          break;
        }
        const hows = await this.#howsOf(left, spool, rows);
        if (this.#closed) break;
        const [requests, keys] = [rows.map(({ request }) => request), rows.map(({ key }) => key)];
        if ((await database.call(fn, [no, first.epoch, requests, keys, hows, false])).kind === 'down') return;
        count += hows.length;
      }
      if (count > 0) left.log.info('requests of the last run ended in the store', { reason: fn, count });
    } catch (fault) {
      left.log.error('requests of the last run cannot be ended in the store', { reason: fn, fault });
    }
  }

  /** How the requests of these rows ended, as far as is read before this closes. Rejects if the spool cannot be read. */
  async #howsOf({ nameOf, howOf }: Left<T>, spool: PostedSpool, rows: readonly LeftRow[]): Promise<T[]> {
    // Read only once the closes of recovery are durable, which are the last ones of earlier starts.
    const last = spool.estimated.at(-1);
    while (last && !this.#closed && !(await spool.sync(last)));
    const oldest = await spool.oldest();
    const closes = new Map(rows.map(({ name }) => [name, [] as UsageRecord[]]));
    const [first = oldest] = rows.map(positionOf).sort(comparePositions);
    for await (const read of spool.read(comparePositions(first, oldest) < 0 ? oldest : first, spool.position)) {
      if (this.#closed) break;
      if (read.kind === 'record' && read.record.kind === 'close')
        closes.get(nameOf(read.record) ?? '')?.push(read.record);
    }
    return rows.map((row) => howOf(closes.get(row.name) ?? [], comparePositions(positionOf(row), oldest) < 0, row));
  }
}
