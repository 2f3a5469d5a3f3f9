import type { UsageRecord } from '../../domain/usage-record.js';
import type { Position } from '../segments.js';
import { usageEvent, type CloseRecord, type UsageEvent } from './cloud-event.js';
import type { UsageSource } from './source.js';

/** Bounds of one batch. A single event is sent whatever its length. */
export interface BatchLimits {
  readonly maxEvents: number;
  /** Of the events as JSON. */
  readonly maxBytes: number;
}

export interface Entry {
  readonly event: UsageEvent;
  /** The position after its record. */
  readonly after: Position;
}

export interface Batch {
  /** In the spool's order; empty if there was nothing to bill. */
  readonly entries: readonly Entry[];
  /** All records before it are in `entries`, or are not delivered. */
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
  source: UsageSource,
  from: Position,
  limits: BatchLimits,
  eventSource: string,
): Promise<Batch> {
  // Later records may still be lost in a crash and must not be billed.
  const { end } = source;
  const entries: Entry[] = [];
  let after = from;
  let bytes = 0;
  let read = 0;
  let damaged = 0;
  for await (const item of source.read(from, end)) {
    if (item.kind === 'damage') {
      damaged += 1;
      continue;
    }
    read += 1;
    let full = read > MAX_READ;
    if (isClose(item.record) && !full) {
      const event = usageEvent(item.record, eventSource);
      bytes += Buffer.byteLength(JSON.stringify(event)) + 1;
      full = entries.length === limits.maxEvents || (entries.length > 0 && bytes > limits.maxBytes);
      if (!full) entries.push({ event, after: item.after });
    }
    if (full) return { entries, after, damaged, drained: false };
    after = item.after;
  }
  return { entries, after: end, damaged, drained: true };
}

function isClose(record: UsageRecord): record is CloseRecord {
  return record.kind === 'close';
}
