import type { UsageRecord } from '../../domain/usage-record.js';
import type { Position } from '../segments.js';
import { usageEvent, type CloseRecord, type UsageEvent } from './cloud-event.js';
import type { UsageSource } from './source.js';

/** What one batch may hold. A single event goes out however long it is. */
export interface BatchLimits {
  readonly maxEvents: number;
  /** Of the events as JSON. */
  readonly maxBytes: number;
}

export interface Entry {
  readonly event: UsageEvent;
  /** The place after its record. */
  readonly after: Position;
}

export interface Batch {
  /** In the spool's order; empty: there was nothing to bill. */
  readonly entries: readonly Entry[];
  /** All before this is in `entries`, or is nothing to deliver. */
  readonly after: Position;
  /** Places in the spool that could not be read and were passed over. */
  readonly damaged: number;
  /** All that was durable when the reading began is in this batch. */
  readonly drained: boolean;
}

/** Records looked at for one batch: most bill nothing, and who stops the delivery is not to wait for all of them. */
const MAX_READ = 100_000;

/** Reads the next batch from `from` on: closes alone, since only they are billed. Rejects when the disk fails. */
export async function nextBatch(
  source: UsageSource,
  from: Position,
  limits: BatchLimits,
  eventSource: string,
): Promise<Batch> {
  // What comes after this may be lost in a crash yet: it is nobody's to bill.
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
