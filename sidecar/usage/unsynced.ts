import type { UsageRecord } from '../domain/usage-record.js';
import { encode } from './frame.js';

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
 * Entries at once past which progress is left out: the next one says more, and the close says all. Opens and closes are
 * always kept; they are bounded by the requests that run, since none begins while the spool is unwell.
 */
export const MAX_ENTRIES_WITH_PROGRESS = 10_000;

/** One write's share: the rest has the next, so that memory for a long backlog is not needed twice. */
const MAX_WRITE_BYTES = 1024 * 1024;

/** What was appended and is not durable yet, oldest first, and who waits for which of it. */
export class Unsynced {
  readonly #entries: Entry[] = [];

  get count(): number {
    return this.#entries.length;
  }

  /** Someone waits until one of them is durable. */
  get awaited(): boolean {
    return this.#entries.some(({ waiters }) => waiters.size > 0);
  }

  get oldest(): Entry | undefined {
    return this.#entries[0];
  }

  /** False: it was left out. */
  add(record: UsageRecord, at: number): boolean {
    if (record.kind === 'progress' && this.#entries.length >= MAX_ENTRIES_WITH_PROGRESS) return false;
    this.#entries.push({ record, line: encode(record), at, waiters: new Set() });
    return true;
  }

  /** Calls `fn` once `record` is durable. Returns what takes that back; undefined: it is durable, or was never added. */
  whenDurable(record: UsageRecord, fn: () => void): (() => void) | undefined {
    // Who waits has just appended it: it is among the last.
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

  /** The `count` oldest are durable. */
  settle(count: number): void {
    for (const { waiters } of this.#entries.splice(0, count)) for (const fn of waiters) fn();
  }
}
