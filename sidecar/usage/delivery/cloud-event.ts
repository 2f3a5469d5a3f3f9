import type { UsageRecord } from '../../domain/usage-record.js';

/** The `type` of every event. A change that an old reader would misread gets a new one. */
export const USAGE_EVENT_TYPE = 'ai.runanywhere.usage.v1';

/** The record that a request is billed by. */
export type CloseRecord = UsageRecord & { readonly kind: 'close' };

/** What one request came to, as CloudEvents 1.0 has it. The same close makes the same event whenever it is sent again. */
export interface UsageEvent {
  readonly specversion: '1.0';
  /** The record's own id: with `source` what a receiver counts by. */
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

/** The event of a `close`. A usage record holds no text and no secret, so all of it is told. */
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
