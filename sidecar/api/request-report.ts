import type { Caller, Denied } from '../access/identity.js';
import type { RefusalReason } from '../admission/seat-queue.js';
import type { ContractError, ErrorCode } from '../domain/errors.js';
import type { Exchange } from '../http/exchange.js';
import type { Log } from '../telemetry/logger.js';
import type { Operation } from '../telemetry/model-metrics.js';
import type { RequestTrace } from '../telemetry/tracing.js';
import type { Timeline } from './timeline.js';

/** The routes' names in the log. */
export type RouteName = 'chat' | 'responses' | 'decisions' | 'systemone' | 'models' | 'other';

/** The routes' names in metrics and traces; undefined: they use no model. */
export const OPERATIONS: Readonly<Record<RouteName, Operation | undefined>> = {
  chat: 'chat',
  responses: 'chat',
  decisions: 'decisions',
  systemone: 'decisions',
  models: undefined,
  other: undefined,
};

/** The properties of a request that are reported at its end. */
export interface RequestFacts {
  readonly exchange: Exchange;
  readonly log: Log;
  readonly times: Timeline;
  readonly trace: RequestTrace | undefined;
  readonly caller: Caller | undefined;
  readonly rejected: Denied['known'];
  readonly model: string | undefined;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

/** How a request ended. */
export interface RequestEnd {
  readonly route: RouteName;
  /** 499: the caller disconnected. */
  readonly status: number;
  readonly error: ContractError | undefined;
  readonly code: ErrorCode | undefined;
  /** Why the queue refused it. */
  readonly reason: RefusalReason | undefined;
  /** Clock reading. */
  readonly endedAt: number;
  /** An event stream was open: its 200 is sent, however it ended. */
  readonly streamed: boolean;
}

/** Writes a request's one log line and ends its trace. */
export function reportEnd(request: RequestFacts, end: RequestEnd): void {
  const { log, times, caller, rejected, model, promptTokens, cachedTokens, completionTokens } = request;
  const { route, status, code, endedAt } = end;
  log.info('request', {
    route,
    status,
    durationMs: Math.round(endedAt - times.startedAt),
    queueMs: Math.round(times.waitedMs(endedAt)),
    promptTokens,
    cachedTokens,
    completionTokens,
    ...(code !== undefined && { code }),
    ...(model !== undefined && { model }),
    ...(times.ttftMs !== undefined && { ttftMs: Math.round(times.ttftMs) }),
    ...(caller && { account: caller.account, keyId: caller.keyId }),
    ...(rejected?.account !== undefined && { account: rejected.account }),
    ...(rejected && { keyId: rejected.keyId }),
    ...request.trace?.ids,
  });
  if (request.trace) endTrace(request.trace, request, end);
}

function endTrace(trace: RequestTrace, request: RequestFacts, end: RequestEnd): void {
  const { method, scheme, route } = request.exchange.head;
  const { times, model, promptTokens, cachedTokens, completionTokens } = request;
  const { status, error, code, reason, endedAt, streamed } = end;
  trace.ended({
    method,
    scheme,
    route,
    operation: OPERATIONS[end.route],
    model,
    startedAt: times.startedAt,
    authorized: times.authorization,
    receivedAt: times.receivedAt,
    lost: times.lost,
    last: times.last,
    endedAt,
    status: streamed ? 200 : status,
    outcome: status === 499 ? 'cancelled' : outcomeOf(error),
    code,
    reason,
    promptTokens,
    cachedTokens,
    completionTokens,
  });
}

/** Statuses from 500 on are faults of the service, as OpenTelemetry's conventions for servers define. */
function outcomeOf(error: ContractError | undefined): 'done' | 'refused' | 'failed' {
  if (!error) return 'done';
  return error.status < 500 ? 'refused' : 'failed';
}
