import type { UsageEvent } from './cloud-event.js';

/** A sink's response to a batch. Indices of its events start at 0. */
export type SinkAnswer =
  /** The sink has stored every event of the batch durably. */
  | { readonly kind: 'accepted' }
  /**
   * The sink permanently rejects some of these events. `indices`: which ones; absent: unknown. `taken`: the ones that
   * it has stored; all others must be sent again. `status`: the sink's error number, for the operator.
   */
  | {
      readonly kind: 'refused';
      readonly indices?: readonly number[];
      readonly taken?: readonly number[];
      readonly status: number;
    }
  /** Temporarily failed, or unknown: the batch except `taken` must be sent again, after `retryAfterMs` if given. */
  | {
      readonly kind: 'later';
      readonly retryAfterMs?: number;
      readonly taken?: readonly number[];
      readonly why: string;
    };

/**
 * The destination of usage events: an HTTP endpoint or a message bus. Batches are sent one after another, in the order
 * of the spool. A sink must store the events of one account in order.
 */
export interface DeliverySink {
  /**
   * Sends a batch, which is never empty, and returns the result. Never rejects. Once `signal` is aborted it settles
   * soon, as `later` unless the response has already arrived.
   */
  deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer>;
  /** Releases connections. Nothing is sent from then on. Never rejects. Idempotent. */
  close(): Promise<void>;
}
