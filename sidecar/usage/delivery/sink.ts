/** What a sink of usage gets and answers. */
import type { UsageRecord } from '../../domain/usage-record.js';

/** The `type` of every event. An incompatible change gets a new one. */
const USAGE_EVENT_TYPE = 'ai.runanywhere.usage.v1';

/** The record that a request is billed by. */
export type CloseRecord = UsageRecord & { readonly kind: 'close' };

/** The usage of one request as CloudEvents 1.0. The same `close` always makes the same event. */
export interface UsageEvent {
  readonly specversion: '1.0';
  /** The record's id; a receiver identifies events by `source` and `id`. */
  readonly id: string;
  readonly source: string;
  readonly type: typeof USAGE_EVENT_TYPE;
  /** When the request ended, ISO 8601, UTC. */
  readonly time: string;
  /** The account. */
  readonly subject: string;
  readonly datacontenttype: 'application/json';
  readonly data: CloseRecord;
}

/** The event of a `close`. A usage record contains no text and no secret, so it is sent completely, but for what only the store needs. */
export function usageEvent(record: CloseRecord, source: string): UsageEvent {
  const data: CloseRecord & { claim?: unknown; escrow?: unknown; quota?: unknown } = { ...record };
  delete data.claim;
  delete data.escrow;
  delete data.quota;
  return {
    specversion: '1.0',
    id: data.id,
    source,
    type: USAGE_EVENT_TYPE,
    time: data.at,
    subject: data.account,
    datacontenttype: 'application/json',
    data,
  };
}

/** A sink's response to a batch. Indices of its events start at 0. */
export type SinkAnswer =
  /** The sink has stored every event of the batch durably. */
  | { readonly kind: 'accepted' }
  /**
   * The sink permanently rejects some of these events. `indices`: which ones; absent: unknown. `stored`: the ones that
   * it has stored; all others must be sent again. `status`: the sink's error number, for the operator.
   */
  | {
      readonly kind: 'refused';
      readonly indices?: readonly number[];
      readonly stored?: readonly number[];
      readonly status: number;
    }
  /** Temporarily failed, or unknown: the batch except `stored` must be sent again, after `retryAfterMs` if given. */
  | {
      readonly kind: 'later';
      readonly retryAfterMs?: number;
      readonly stored?: readonly number[];
      readonly why: string;
    };

/**
 * The destination of usage events: an HTTP endpoint or a JetStream stream. Batches are sent one after another, in the order of the spool. A
 * sink must store the events of one account in order.
 */
export interface DeliverySink {
  /**
   * Sends a batch, which is never empty. Never rejects. Once `signal` aborts it settles soon, as `later` unless the response has arrived.
   */
  deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer>;
  /** Releases connections. Nothing is sent from then on. Never rejects. Idempotent. */
  close(): Promise<void>;
}

/** Bound of the chain of wrapped errors. */
const MAX_DEPTH = 5;

/** A failure in a word that may be logged: the system's code or the innermost error's name; a message may quote headers or addresses. */
export function reasonOf(error: unknown): string {
  let name = 'unknown';
  let thrown = error;
  for (let depth = 0; depth < MAX_DEPTH && thrown instanceof Error; depth += 1) {
    const { code, cause } = thrown as { readonly code?: unknown; readonly cause?: unknown };
    if (typeof code === 'string') return code;
    name = thrown.name;
    thrown = cause;
  }
  return name;
}
