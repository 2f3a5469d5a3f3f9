import type { RequestRecord, Attempt } from '../../sidecar/telemetry/tracing.js';

/** A successful attempt, 10 ms each part, after 20 ms. */
export const ATTEMPT: Attempt = {
  readyAt: 20,
  seatedAt: 30,
  replica: 1,
  handedOverAt: 30,
  firstTokenAt: 40,
  ranUntil: 50,
};

/** An attempt that ended while it waited for a seat. */
export const WAITED: Attempt = {
  ...ATTEMPT,
  seatedAt: undefined,
  replica: undefined,
  handedOverAt: undefined,
  firstTokenAt: undefined,
  ranUntil: undefined,
};

/** The record of a successful chat of 60 ms, with `more` over it. */
export function requestRecord(more: Partial<RequestRecord> = {}): RequestRecord {
  return {
    method: 'POST',
    scheme: 'http',
    route: '/v1/chat/completions',
    operation: 'chat',
    model: 'm',
    startedAt: 0,
    authorized: undefined,
    receivedAt: 10,
    lost: [],
    last: ATTEMPT,
    endedAt: 60,
    status: 200,
    outcome: 'done',
    code: undefined,
    reason: undefined,
    promptTokens: 5,
    cachedTokens: 2,
    completionTokens: 3,
    ...more,
  };
}
