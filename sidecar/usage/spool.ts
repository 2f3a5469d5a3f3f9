import type { UsageRecord } from '../domain/usage-record.js';

/** Where usage goes. `open` is appended before dispatch and not awaited; only a `close` is, before the final bytes. */
export interface Spool {
  /** Takes a record in order. Never throws and never blocks. */
  append(record: UsageRecord): void;
  /** Resolves once `record`, appended before, is as durable as this spool makes anything. */
  sync(record: UsageRecord): Promise<void>;
  /**
   * Puts another record in the place of one that was appended. False: that one is durable already, or given up by `sync`,
   * and stays as it is. The other must be of the same request and kind.
   */
  revise(record: UsageRecord, revised: UsageRecord): boolean;
  /** While not ok, new billable work is refused with `spool_unhealthy`; running streams finish. */
  readonly health: { readonly ok: true } | { readonly ok: false; readonly why: string };
}
