import type { UsageRecord } from '../domain/usage-record.js';
import { encode } from './record-line.js';

/** A record that is not durable yet. */
export interface Entry {
  record: UsageRecord;
  line: Buffer;
  /** Clock reading when it was appended. */
  readonly at: number;
  /** Called once it is durable. */
  readonly waiters: Set<() => void>;
}

/**
 * Number of entries past which progress is dropped: the next one and the close are cumulative. Opens and closes are
 * always kept; they are bounded by the number of running requests, since none starts while the spool is unhealthy.
 */
export const MAX_ENTRIES_WITH_PROGRESS = 10_000;

/** Bytes of one write; the rest is written next, so that a long backlog is not duplicated in memory. */
const MAX_WRITE_BYTES = 1024 * 1024;

/** Appended records that are not durable yet, oldest first, and their waiters. */
export class Unsynced {
  readonly #entries: Entry[] = [];

  get count(): number {
    return this.#entries.length;
  }

  /** Whether a reply waits for one of them. */
  get awaited(): boolean {
    return this.#entries.some(({ waiters }) => waiters.size > 0);
  }

  get oldest(): Entry | undefined {
    return this.#entries[0];
  }

  /** False: it was dropped. */
  add(record: UsageRecord, at: number): boolean {
    if (record.kind === 'progress' && this.#entries.length >= MAX_ENTRIES_WITH_PROGRESS) return false;
    this.#entries.push({ record, line: encode(record), at, waiters: new Set() });
    return true;
  }

  /**
   * Calls `fn` once `record` is durable. Returns a function that cancels it; undefined: it is durable, or was never
   * added.
   */
  whenDurable(record: UsageRecord, fn: () => void): (() => void) | undefined {
    // A waiter's record was just appended, so it is near the end.
    const waiters = this.#entries.findLast((entry) => entry.record === record)?.waiters;
    waiters?.add(fn);
    return waiters && (() => void waiters.delete(fn));
  }

  /** Replaces a record. False: it is durable, or was never added. */
  revise(record: UsageRecord, revised: UsageRecord): boolean {
    const entry = this.#entries.findLast((candidate) => candidate.record === record);
    if (!entry) return false;
    entry.record = revised;
    entry.line = encode(revised);
    return true;
  }

  /** The oldest entries, as many as one write takes. They stay here until they are settled. */
  next(): readonly Entry[] {
    let bytes = 0;
    const end = this.#entries.findIndex(({ line }) => (bytes += line.length) > MAX_WRITE_BYTES);
    return this.#entries.slice(0, end < 0 ? undefined : Math.max(1, end));
  }

  /** The `count` oldest entries are durable. */
  settle(count: number): void {
    for (const { waiters } of this.#entries.splice(0, count)) for (const fn of waiters) fn();
  }
}
