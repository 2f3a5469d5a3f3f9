import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { Delivery, type DeliveryLimits, type DeliveredSpool } from '../../sidecar/usage/delivery/delivery.js';
import type { UsageEvent, DeliverySink, SinkAnswer } from '../../sidecar/usage/delivery/sink.js';
import type { Bury, CursorFile, DeadLetter, LoadedCursor } from '../../sidecar/usage/delivery/files.js';
import type { Read } from '../../sidecar/usage/reader.js';
import { comparePositions, START, type Position } from '../../sidecar/usage/spool-format.js';
import { FakeClock } from './fake-clock.js';
import { RecordingLog } from './in-process.js';

/** Bytes that each record counts as, and records in a segment. */
const RECORD_BYTES = 10;
const SEGMENT_RECORDS = 4;

const LIMITS: DeliveryLimits = {
  maxEvents: 5,
  maxBytes: 1_000_000,
  maxAgeMs: 100,
  backoffMinMs: 1000,
  backoffMaxMs: 8000,
  stopMs: 500,
};

/** Lets everything continue that needs neither time nor the test. Everything here is in memory: one turn is enough. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A spool in memory. Records that are not durable exist, as on a disk, and must not be read. */
export class MemorySource implements DeliveredSpool {
  readonly records: UsageRecord[] = [];
  durable = 0;
  /** Thrown by the next reads. */
  fault: Error | undefined;
  damaged = false;
  readonly prunes: Position[] = [];
  /** A segment that a running request pins. */
  pinned = Infinity;

  static at(index: number): Position {
    return { segment: 1 + Math.floor(index / SEGMENT_RECORDS), offset: (index % SEGMENT_RECORDS) * RECORD_BYTES };
  }

  static index({ segment, offset }: Position): number {
    return (segment - 1) * SEGMENT_RECORDS + offset / RECORD_BYTES;
  }

  get position(): Position {
    return MemorySource.at(this.durable);
  }

  async *read(from: Position, until: Position): AsyncGenerator<Read> {
    if (this.fault) throw this.fault;
    await Promise.resolve();
    if (this.damaged) yield { kind: 'damage', ...from, bytes: 1 };
    for (let i = MemorySource.index(from); i < MemorySource.index(until); i += 1) {
      const record = this.records[i];
      if (record) yield { kind: 'record', record, after: MemorySource.at(i + 1) };
    }
  }

  bytesFrom(from: Position): number {
    return Math.max(this.durable - MemorySource.index(from), 0) * RECORD_BYTES;
  }

  prune(before: Position): Promise<number> {
    this.prunes.push(before);
    return Promise.resolve(Math.min(before.segment, this.pinned));
  }
}

/** Delivery with everything around it in memory, and a clock that the test advances. */
export class DeliveryHarness {
  readonly clock = new FakeClock();
  readonly source = new MemorySource();
  readonly log = new RecordingLog();
  /** Batches as they were sent, answered or not. */
  readonly batches: (readonly UsageEvent[])[] = [];
  readonly letters: DeadLetter[] = [];
  readonly counted = { delivered: 0, refused: 0, retried: 0 };
  /** The content of the cursor’s file. */
  saved: LoadedCursor = { kind: 'none' };
  keepFrom: Position = { segment: Infinity, offset: 0 };
  random = 1;
  /** The sink’s answers. */
  answer: (batch: readonly UsageEvent[], signal: AbortSignal) => SinkAnswer | Promise<SinkAnswer> = () => ({
    kind: 'accepted',
  });
  /** Awaited before a cursor is saved or dead letters are written; may throw. */
  beforeSave: (position: Position) => void | Promise<void> = () => undefined;
  beforeBury: () => void | Promise<void> = () => undefined;
  roomForLetters = true;

  readonly #sink: DeliverySink = {
    deliver: async (batch, signal) => {
      this.batches.push(batch);
      return await this.answer(batch, signal);
    },
    close: () => Promise.resolve(),
  };
  readonly #cursor: Pick<CursorFile, 'load' | 'save'> = {
    load: () => Promise.resolve(this.saved),
    save: async (position) => {
      await this.beforeSave(position);
      this.saved = { kind: 'at', position };
    },
  };
  readonly #bury: Bury = async (letters) => {
    await this.beforeBury();
    if (this.roomForLetters) this.letters.push(...letters);
    return this.roomForLetters;
  };

  /** A started delivery, with what this harness has by now. */
  async start(limits: Partial<DeliveryLimits> = {}): Promise<Delivery> {
    const delivery = this.make(limits);
    await delivery.start();
    return delivery;
  }

  make(limits: Partial<DeliveryLimits> = {}): Delivery {
    return new Delivery({
      clock: this.clock,
      date: () => Date.parse('2026-10-03T00:00:00Z') + this.clock.now(),
      random: () => this.random,
      spool: this.source,
      sink: this.#sink,
      cursor: this.#cursor,
      bury: this.#bury,
      keepFrom: () => this.keepFrom,
      eventSource: '/test',
      limits: { ...LIMITS, ...limits },
      log: this.log,
      counts: {
        delivered: (events) => (this.counted.delivered += events),
        refused: (events) => (this.counted.refused += events),
        retried: () => (this.counted.retried += 1),
      },
    });
  }

  /** Adds durable records to the spool. */
  append(...records: readonly UsageRecord[]): void {
    this.source.records.push(...records);
    this.source.durable = this.source.records.length;
  }

  /** Ids of each batch. */
  get ids(): string[][] {
    return this.batches.map((batch) => batch.map(({ id }) => id));
  }

  /** Records before the cursor’s file. */
  get savedCount(): number {
    return MemorySource.index(this.saved.kind === 'at' ? this.saved.position : START);
  }

  /** Runs what is due, advances time by `ms`, and runs what is due then. */
  async pass(ms: number): Promise<void> {
    await turn();
    this.clock.advance(ms);
    await turn();
  }

  /** Whether a position is at or before the cursor’s file. */
  isSaved(position: Position): boolean {
    return this.saved.kind === 'at' && comparePositions(position, this.saved.position) <= 0;
  }
}
