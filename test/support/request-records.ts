import type { RequestRecord, Try } from '../../sidecar/telemetry/tracing.js';

/** A try that came through, 10 ms each part, after 20 ms. */
export const TRY: Try = { readyAt: 20, seatedAt: 30, handedOverAt: 30, firstTokenAt: 40, ranUntil: 50 };

/** What is kept of a chat of 60 ms that went well, unless `more` says otherwise. */
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
    last: TRY,
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
