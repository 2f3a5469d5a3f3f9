import type { UsageEvent } from './cloud-event.js';

/** What a sink says to a batch. Places are those of its events, from 0 on. */
export type SinkAnswer =
  /** Every event of the batch is the sink's own now: it will outlive a crash of either side. */
  | { readonly kind: 'accepted' }
  /**
   * The sink will never take some of these events. `indices`: which ones of the batch. Absent: the sink cannot say which.
   * `taken`: which ones are its own now; it has none of the others, which are to be sent again. `status`: the sink's own
   * number for why, for the operator.
   */
  | {
      readonly kind: 'refused';
      readonly indices?: readonly number[];
      readonly taken?: readonly number[];
      readonly status: number;
    }
  /**
   * Not now, or nobody knows: the same batch, but for what was `taken`, is to be sent again, no sooner than `retryAfterMs`
   * where given.
   */
  | {
      readonly kind: 'later';
      readonly retryAfterMs?: number;
      readonly taken?: readonly number[];
      readonly why: string;
    };

/**
 * Where usage events go: an HTTP endpoint, a message bus. Batches come one after another, in the order of the spool. A sink
 * takes no event of an account before the one that came earlier, so that the events of one account keep their order.
 */
export interface DeliverySink {
  /**
   * Sends a batch, which is never empty, and says what came of it. Never rejects. Once `signal` is aborted it settles
   * soon, as `later` unless the answer was there already.
   */
  deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer>;
  /** Lets go of what is held between batches. Nothing is sent from then on. Never rejects. Idempotent. */
  close(): Promise<void>;
}
