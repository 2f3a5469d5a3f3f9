import type { UsageRecord } from '../ledger.js';
import type { Spool } from './spool.js';

/**
 * Counts usage records and keeps none: they are gone when the process ends, and nothing can be billed from them. It
 * stands where the durable spool will; `sync` therefore promises nothing and resolves at once.
 */
export class MeteredSpool implements Spool {
  readonly health = { ok: true } as const;
  readonly #count: (kind: UsageRecord['kind']) => void;

  constructor(count: (kind: UsageRecord['kind']) => void) {
    this.#count = count;
  }

  append(record: UsageRecord): void {
    this.#count(record.kind);
  }

  sync(): Promise<void> {
    return Promise.resolve();
  }
}
