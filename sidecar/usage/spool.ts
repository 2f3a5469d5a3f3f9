import type { UsageRecord } from '../ledger.js';

/** Where usage goes. `open` is appended before dispatch and not awaited; only a `close` is, before the final bytes. */
export interface Spool {
  /** Takes a record in order. Never throws and never blocks. */
  append(record: UsageRecord): void;
  /** Resolves once `record`, appended before, is as durable as this spool makes anything. */
  sync(record: UsageRecord): Promise<void>;
  /** While not ok, new billable work is refused with `spool_unhealthy`; running streams finish. */
  readonly health: { readonly ok: true } | { readonly ok: false; readonly why: string };
}
