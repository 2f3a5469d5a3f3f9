import type { UsageRecord } from '../../ledger.js';

/** A place between two records of the spool. Places are in order: first by segment, then by offset. */
export interface Position {
  readonly segment: number;
  /** Bytes from the segment's start. */
  readonly offset: number;
}

export type SpoolItem =
  { readonly kind: 'record'; readonly record: UsageRecord; readonly after: Position } | { readonly kind: 'damage' };

/** What delivery reads: the spool, as far as it is durable. */
export interface UsageSource {
  /** All before this is durable. Only moves on. */
  readonly end: Position;
  /** The records between two places, in order; what was pruned is passed by. Rejects when the disk fails. */
  read(from: Position, until: Position): AsyncIterable<SpoolItem>;
  /** What lies between `from` and the end, bytes. */
  bytesFrom(from: Position): number;
  /** Nobody here needs what is before `before` any more: its whole segments may be deleted. */
  prune(before: Position): Promise<void>;
}

/** Whether `a` is before `b`. */
export function isBefore(a: Position, b: Position): boolean {
  return a.segment === b.segment ? a.offset < b.offset : a.segment < b.segment;
}
