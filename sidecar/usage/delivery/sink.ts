import type { UsageEvent } from './cloud-event.js';

/** What a sink says to a batch. */
export type SinkAnswer =
  /** Every event of the batch is the sink's own now: it will outlive a crash of either side. */
  | { readonly kind: 'accepted' }
  /**
   * The sink will never take some of these events. `indices`: which ones of the batch; it has none of the others, which
   * are to be sent again. Absent: the sink cannot say which. `status`: the sink's own number for why, for the operator.
   */
  | { readonly kind: 'refused'; readonly indices?: readonly number[]; readonly status: number }
  /** Not now, or nobody knows: the same batch is to be sent again, no sooner than `retryAfterMs` where given. */
  | { readonly kind: 'later'; readonly retryAfterMs?: number; readonly why: string };

/**
 * Where usage events go: an HTTP endpoint today, a message bus another time. Batches come one after another, in the order
 * of the spool, so that the events of one account keep theirs.
 */
export interface DeliverySink {
  /**
   * Sends a batch, which is never empty, and says what came of it. Never rejects. Once `signal` is aborted it settles
   * soon, as `later` unless the answer was there already.
   */
  deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer>;
}
