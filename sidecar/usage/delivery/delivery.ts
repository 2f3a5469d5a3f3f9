/**
 * Delivers usage: reads it from the spool, sends it in batches, and lets segments be deleted only once the sink has
 * them.
 *
 *      spool:   |--- delivered, or dead letters ---|--- batch in flight ---|--- waiting ---| not durable yet
 *                                               cursor                                    end
 *
 * Delivery is at least once: the cursor moves after the response, so a crash in between sends a batch again. Events
 * carry their record's id, the same each time, and the spool itself may contain one `close` twice; a sink counts by id.
 * One batch is in flight at a time, which keeps the order of the spool and thus of each account.
 */
import { Backoff, type Clock } from '../../lib/clock.js';
import type { UsageRecord } from '../../domain/usage-record.js';
import type { Log } from '../../telemetry/logger.js';
import { comparePositions, START, type Position } from '../spool-format.js';
import type { Bury, CursorFile } from './files.js';
import { usageEvent, type CloseRecord, type DeliverySink, type SinkAnswer, type UsageEvent } from './sink.js';
import type { Spool } from '../spool.js';

export type DeliveredSpool = Pick<Spool, 'position' | 'read' | 'bytesFrom' | 'prune'>;

export interface DeliveryLimits {
  /** Bounds of one batch; a single event is sent whatever its length. The bytes are those of the events as JSON. */
  readonly maxEvents: number;
  readonly maxBytes: number;
  /** The longest wait of an event before it is sent, ms; shorter if the backlog fills a batch. */
  readonly maxAgeMs: number;
  /** Waits after a failure, doubling from the first to the longest, ms. */
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
  /** Time that stop() allows for waiting events, ms. */
  readonly stopMs: number;
}

/** Receives what is counted in the metrics. */
export interface DeliveryCounts {
  delivered(events: number): void;
  refused(events: number): void;
  /** The sink took a batch not, or only in part; it will be sent again. */
  retried(): void;
}

export interface DeliveryOptions {
  readonly clock: Clock;
  /** Milliseconds since 1970. */
  readonly date: () => number;
  /** Numbers from 0 to 1. */
  readonly random: () => number;
  readonly spool: DeliveredSpool;
  readonly sink: DeliverySink;
  readonly cursor: Pick<CursorFile, 'load' | 'save'>;
  readonly bury: Bury;
  /** The position from which others still read the spool: nothing after it is pruned. */
  readonly keepFrom: () => Position;
  /** `source` of the events. */
  readonly eventSource: string;
  readonly limits: DeliveryLimits;
  readonly log: Log;
  readonly counts: DeliveryCounts;
}

/** Delivers one spool to one sink, from start() to stop(). */
export class Delivery {
  readonly #options: DeliveryOptions;
  readonly #backoff: Backoff;
  readonly #aborted = new AbortController();
  /** All records before it are settled. */
  #position = START;
  /** Settled events that the cursor's file does not include yet. */
  #unsaved = false;
  /** The position in the cursor's file; undefined if it is unknown. */
  #saved: Position | undefined;
  /** Segments before it are deleted. */
  #pruned = START.segment;
  #pruning: Promise<void> | undefined;
  /** When the oldest waiting event was made, if known. */
  #oldestAt: number | undefined;
  #started: Promise<void> | undefined;
  #running: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #stopping = false;
  #over = false;
  #failing = false;
  #nudge: () => void = () => undefined;

  constructor(options: DeliveryOptions) {
    const { backoffMinMs, backoffMaxMs } = options.limits;
    this.#options = options;
    this.#backoff = new Backoff(backoffMinMs, backoffMaxMs, options.random);
  }

  /** Bytes of the spool that are not settled, including records that are not billed. */
  get backlogBytes(): number {
    return this.#options.spool.bytesFrom(this.#position);
  }

  /** Age of the oldest undelivered event, ms; 0: none waits. */
  get oldestMs(): number {
    return this.#oldestAt === undefined ? 0 : Math.max(this.#options.date() - this.#oldestAt, 0);
  }

  /** Continues at the cursor. The spool must have been recovered. Rejects if the cursor's file cannot be read. */
  start(): Promise<void> {
    this.#started ??= this.#start();
    return this.#started;
  }

  /** More records are durable. Cheap: may be called at each sync. */
  notify(): void {
    if (this.#behind) this.#oldestAt ??= this.#options.date();
    this.#nudge();
  }

  /** Deletes segments that are delivered and not needed by other readers, which may have read on since the last attempt. Never rejects. */
  prune(): Promise<void> {
    this.#pruning ??= this.#prune().finally(() => (this.#pruning = undefined));
    return this.#pruning;
  }

  /**
   * Sends waiting events within `stopMs`, unless the sink was failing; then aborts the batch in flight, which stays undelivered. Settles
   * when nothing runs any more. May be called at any time and repeatedly.
   */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  get #behind(): boolean {
    return comparePositions(this.#position, this.#options.spool.position) < 0;
  }

  async #start(): Promise<void> {
    const { cursor, spool, log } = this.#options;
    const found = await cursor.load();
    const lost = found.kind === 'lost' || (found.kind === 'at' && comparePositions(found.position, spool.position) > 0);
    // Ids make a repeated delivery harmless; a skipped `close` would never be billed.
    if (lost) log.error('usage cursor lost', { reason: found.kind === 'lost' ? found.why : 'past the end' });
    else if (found.kind === 'at') this.#position = this.#saved = found.position;
    if (this.#stopping) return;
    this.notify();
    this.#running = this.#run();
  }

  async #stop(): Promise<void> {
    const { clock, limits } = this.#options;
    this.#stopping = true;
    this.#nudge();
    const cancel = clock.after(limits.stopMs, () => this.#aborted.abort());
    await this.#started?.catch(() => undefined);
    await this.#running;
    // From here on the spool may belong to another process.
    this.#over = true;
    await this.#pruning;
    cancel();
  }

  async #run(): Promise<void> {
    const { maxAgeMs, maxBytes } = this.#options.limits;
    for (;;) {
      await this.#until(() => this.#behind);
      if (!this.#behind) return;
      await this.#until(() => this.backlogBytes >= maxBytes, maxAgeMs);
      for (let wait = await this.#round(); wait !== undefined; wait = await this.#round()) {
        await this.#until(() => false, wait);
        if (this.#stopping) return;
      }
    }
  }

  /** Settles everything that is available. Returns the wait before the next attempt if that failed. */
  async #round(): Promise<number | undefined> {
    const { spool, limits, eventSource, log, counts } = this.#options;
    try {
      for (let drained = false; !drained;) {
        if (this.#unsaved) await this.#save();
        const batch = await nextBatch(spool, this.#position, limits, eventSource);
        if (batch.damaged > 0) log.error('usage spool damaged', { count: batch.damaged });
        const later = await this.#send(batch);
        if (later) {
          const wait = Math.max(this.#backoff.next(), later.retryAfterMs ?? 0);
          log.warn('usage delivery waits', { reason: later.why, count: batch.billed.length, retryAfterMs: wait });
          this.#failing = true;
          counts.retried();
          return wait;
        }
        drained = batch.drained;
      }
      return undefined;
    } catch (fault) {
      const wait = this.#backoff.next();
      // A disk's fault, not the sink's.
      log.error('usage delivery failed', { fault, retryAfterMs: wait });
      return wait;
    }
  }

  /** Settles a batch as far as the sink accepts it, and moves the cursor that far. Returns the reason if a part remains. */
  async #send({ billed, after }: Batch): Promise<Later | undefined> {
    const { sink, counts } = this.#options;
    this.#oldestAt = timeOf(billed[0]?.event) ?? this.#oldestAt;
    if (billed.length === 0) {
      this.#moved(after);
      return undefined;
    }
    const events = billed.map(({ event }) => event);
    const bury = (refused: readonly UsageEvent[], status: number): Promise<boolean> => this.#bury(refused, status);
    const { settled, accepted, later } = await settle(events, sink, bury, this.#aborted.signal);
    if (accepted > 0) counts.delivered(accepted);
    if (settled > 0) {
      this.#unsaved = true;
      this.#recovered();
      this.#moved(later ? billed[settled - 1]?.after : after, timeOf(billed[settled - 1]?.event));
      await this.#save();
    }
    return later;
  }

  async #bury(refused: readonly UsageEvent[], status: number): Promise<boolean> {
    const { bury, date, log, counts } = this.#options;
    const at = new Date(date()).toISOString();
    const kept = await bury(refused.map((event) => ({ at, status, event })));
    if (!kept) return false;
    counts.refused(refused.length);
    for (const { id } of refused) log.error('usage event refused', { usageId: id, status });
    return true;
  }

  #moved(position: Position = this.#position, oldestAt?: number): void {
    this.#position = position;
    this.#oldestAt = this.#behind ? (oldestAt ?? this.#oldestAt) : undefined;
  }

  #recovered(): void {
    this.#backoff.reset();
    if (this.#failing) this.#options.log.info('usage delivery resumed');
    this.#failing = false;
  }

  async #save(): Promise<void> {
    const position = this.#position;
    await this.#options.cursor.save(position);
    this.#saved = position;
    this.#unsaved = false;
    // A prune that is running uses an older position.
    await this.#pruning;
    await this.prune();
  }

  async #prune(): Promise<void> {
    const { spool, keepFrom, log } = this.#options;
    const saved = this.#saved;
    if (!saved || this.#over) return;
    const others = keepFrom();
    const before = comparePositions(others, saved) < 0 ? others : saved;
    if (before.segment <= this.#pruned) return;
    try {
      this.#pruned = await spool.prune(before);
    } catch (fault) {
      // Only disk space is affected; the next save tries again.
      log.warn('usage spool not pruned', { fault });
    }
  }

  /** Waits until `done`, which is called at each notify(), or for `ms`, or until stop(). */
  async #until(done: () => boolean, ms?: number): Promise<void> {
    if (this.#stopping || done()) return;
    await new Promise<void>((resolve) => {
      const finish = (): void => {
        cancel();
        this.#nudge = () => undefined;
        resolve();
      };
      const cancel = ms === undefined ? () => undefined : this.#options.clock.after(ms, finish);
      this.#nudge = () => {
        if (this.#stopping || done()) finish();
      };
    });
  }
}

function timeOf(event: UsageEvent | undefined): number | undefined {
  // A day that no calendar has passes for a time in the spool, and is none.
  return (event && Date.parse(event.time)) || undefined;
}

/** The part of the spool that is settled next. */
export interface Batch {
  /** Its events, in the spool's order, each with the position after its record; empty if there was nothing to bill. */
  readonly billed: readonly { readonly event: UsageEvent; readonly after: Position }[];
  /** All records before it are in `billed`, or are not delivered. */
  readonly after: Position;
  /** Damaged places in the spool that were skipped. */
  readonly damaged: number;
  /** All records that were durable when the read began are in this batch. */
  readonly drained: boolean;
}

/** Records read for one batch: most bill nothing, and a stop of delivery must not wait for all of them. */
const MAX_READ = 100_000;

/** Reads the next batch from `from` on: only `close` records, since only they are billed. Rejects if the disk fails. */
export async function nextBatch(
  spool: DeliveredSpool,
  from: Position,
  limits: Pick<DeliveryLimits, 'maxEvents' | 'maxBytes'>,
  eventSource: string,
): Promise<Batch> {
  // Later records may still be lost in a crash and must not be billed.
  const end = spool.position;
  const billed: Batch['billed'][number][] = [];
  let after = from;
  let bytes = 0;
  let read = 0;
  let damaged = 0;
  for await (const item of spool.read(from, end)) {
    if (item.kind === 'damage') {
      damaged += 1;
      continue;
    }
    read += 1;
    let full = read > MAX_READ;
    if (isClose(item.record) && !full) {
      const event = usageEvent(item.record, eventSource);
      bytes += Buffer.byteLength(JSON.stringify(event)) + 1;
      full = billed.length === limits.maxEvents || (billed.length > 0 && bytes > limits.maxBytes);
      if (!full) billed.push({ event, after: item.after });
    }
    if (full) return { billed, after, damaged, drained: false };
    after = item.after;
  }
  return { billed, after: end, damaged, drained: true };
}

function isClose(record: UsageRecord): record is CloseRecord {
  return record.kind === 'close';
}

type Later = Extract<SinkAnswer, { kind: 'later' }>;

export interface Settled {
  /** Events from the start of the batch, without a gap, that the sink accepted or rejected. */
  readonly settled: number;
  /** Events that the sink accepted. Those after an event that it did not accept are not settled: they will be sent again. */
  readonly accepted: number;
  /** Present: a part is not settled and must be sent again. */
  readonly later?: Later;
}

/**
 * Sends a batch until each event is accepted or rejected. A batch that is rejected as a whole is halved until the
 * faulty event is found, the first half first, so that the order stays; this takes at most twice as many requests as
 * there are events. `refuse` makes an event durable as a dead letter; false: it cannot, so the event is not settled.
 */
export async function settle(
  events: readonly UsageEvent[],
  sink: DeliverySink,
  refuse: (events: readonly UsageEvent[], status: number) => Promise<boolean>,
  signal: AbortSignal,
): Promise<Settled> {
  const unsettled = new Set(events.keys());
  let accepted = 0;
  const outcome = (later?: Later): Settled => {
    const [first = events.length] = unsettled;
    return { settled: first, accepted, ...(later && { later }) };
  };

  // Parts that are still to be sent, as indices of the batch; the next one last.
  const parts: (readonly number[])[] = [[...unsettled]];
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    const answer = await sink.deliver(pick(events, part), signal);
    const stored = answer.kind === 'accepted' ? part : pick(part, answer.stored ?? []);
    for (const i of stored) unsettled.delete(i);
    accepted += stored.length;
    if (answer.kind === 'later') return outcome(answer);
    const remaining = part.filter((i) => unsettled.has(i));
    if (answer.kind === 'accepted' || remaining.length === 0) continue;
    const named = pick(part, answer.indices ?? []).filter((i) => unsettled.has(i));
    const refused = remaining.length === 1 ? remaining : named;
    if (refused.length === 0) {
      const middle = remaining.length >> 1;
      parts.push(remaining.slice(middle), remaining.slice(0, middle));
      continue;
    }
    if (!(await refuse(pick(events, refused), answer.status))) {
      return outcome({ kind: 'later', why: 'dead letters full' });
    }
    for (const i of refused) unsettled.delete(i);
    const others = part.filter((i) => unsettled.has(i));
    if (others.length > 0) parts.push(others);
  }
  return outcome();
}

/** The items at `indices`, each once and in order; invalid indices are skipped. */
function pick<T>(items: readonly T[], indices: readonly number[]): T[] {
  const wanted = new Set(indices);
  return items.filter((_, i) => wanted.has(i));
}
