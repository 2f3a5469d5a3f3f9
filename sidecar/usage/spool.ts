import type { UsageRecord } from '../domain/usage-record.js';

/**
 * Records usage. `open` is appended before dispatch without waiting; only a `close` is awaited, before the final bytes.
 */
export interface Spool {
  /** Appends a record. Never throws and never blocks. */
  append(record: UsageRecord): void;
  /**
   * Resolves once `record`, appended before, is durable, as far as this spool supports it, or once the spool's longest wait for
   * that (`closeWaitMs`) has passed.
   */
  sync(record: UsageRecord): Promise<void>;
  /**
   * Replaces an appended record. False: it is already durable and stays unchanged. The other must be of the
   * same request and kind.
   */
  revise(record: UsageRecord, revised: UsageRecord): boolean;
  /** While not ok, new billable work is refused with `spool_unhealthy`; running streams finish. */
  readonly health: { readonly ok: true } | { readonly ok: false; readonly why: string };
}
