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
import { Backoff } from '../../lib/backoff.js';
import { comparePositions, START, type Position } from '../segments.js';
import { nextBatch, type Batch } from './batch.js';
import type { UsageEvent } from './cloud-event.js';
import type { DeliveryOptions } from './delivery-options.js';
import { settle } from './settle.js';

/** Delivers one spool to one sink, from start() to stop(). */
export class Delivery {
  readonly #options: DeliveryOptions;
  readonly #backoff: Backoff;
  readonly #aborted = new AbortController();
  /** All records before it are settled. */
  #position = START;
  /** Settled events that the cursor's file does not include yet. */
  #unsaved = false;
  /** The position in the cursor's file; undefined: unknown. */
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
    return this.#options.source.bytesFrom(this.#position);
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

  /**
   * Deletes segments that are delivered and not needed by other readers, which may have read on since the last attempt.
   * Never rejects.
   */
  prune(): Promise<void> {
    this.#pruning ??= this.#prune().finally(() => (this.#pruning = undefined));
    return this.#pruning;
  }

  /**
   * Sends waiting events within `stopMs`, unless the sink was failing; then aborts the batch in flight, which stays
   * undelivered. Settles when nothing runs any more. May be called at any time and repeatedly.
   */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  get #behind(): boolean {
    return comparePositions(this.#position, this.#options.source.end) < 0;
  }

  async #start(): Promise<void> {
    const { cursor, source, log } = this.#options;
    const found = await cursor.load();
    const lost = found.kind === 'lost' || (found.kind === 'at' && comparePositions(found.position, source.end) > 0);
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
    const { source, limits, eventSource, log, events } = this.#options;
    try {
      for (let drained = false; !drained;) {
        if (this.#unsaved) await this.#save();
        const batch = await nextBatch(source, this.#position, limits, eventSource);
        if (batch.damaged > 0) log.error('usage spool damaged', { count: batch.damaged });
        const later = await this.#send(batch);
        if (later) {
          const wait = Math.max(this.#backoff.next(), later.retryAfterMs ?? 0);
          log.warn('usage delivery waits', { reason: later.why, count: batch.entries.length, retryAfterMs: wait });
          this.#failing = true;
          events.retried();
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

  /**
   * Settles a batch as far as the sink accepts it, and moves the cursor that far. Returns the reason if a part remains.
   */
  async #send({ entries, after }: Batch): Promise<Awaited<ReturnType<typeof settle>>['later']> {
    const { sink, events } = this.#options;
    this.#oldestAt = timeOf(entries[0]?.event) ?? this.#oldestAt;
    if (entries.length === 0) {
      this.#moved(after);
      return undefined;
    }
    const batch = entries.map(({ event }) => event);
    const outcome = await settle(batch, sink, (refused, status) => this.#bury(refused, status), this.#aborted.signal);
    const { settled, accepted, later } = outcome;
    if (accepted > 0) events.delivered(accepted);
    if (settled > 0) {
      this.#unsaved = true;
      this.#recovered();
      this.#moved(later ? entries[settled - 1]?.after : after, timeOf(entries[settled - 1]?.event));
      await this.#save();
    }
    return later;
  }

  async #bury(refused: readonly UsageEvent[], status: number): Promise<boolean> {
    const { deadLetters, date, log, events } = this.#options;
    const at = new Date(date()).toISOString();
    const kept = await deadLetters.append(refused.map((event) => ({ at, status, event })));
    if (!kept) return false;
    events.refused(refused.length);
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
    const { source, keepFrom, log } = this.#options;
    const saved = this.#saved;
    if (!saved || this.#over) return;
    const others = keepFrom();
    const before = comparePositions(others, saved) < 0 ? others : saved;
    if (before.segment <= this.#pruned) return;
    try {
      this.#pruned = await source.prune(before);
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
