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

/** The event of a `close`. A usage record contains no text and no secret, so it is sent completely. */
export function usageEvent(data: CloseRecord, source: string): UsageEvent {
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
