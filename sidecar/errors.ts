/**
 * The one catalogue of errors that a caller can see: code -> status, type, whether a retry can mend it.
 * contract.md section 1 is its source; a contract test compares both ways.
 */

/** `error.type` on the wire. */
export type ErrorType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'permission_error'
  | 'rate_limit_error'
  | 'quota'
  | 'capacity'
  | 'server_error'
  | 'timeout';

interface Row {
  /** The usual status; a few codes allow others (405 and 415 of bad_request, 422 of idempotency_key_reused). */
  readonly status: number;
  readonly type: ErrorType;
  /** Whether sending the same request again can succeed. When false the response says `x-should-retry: false`. */
  readonly retryable: boolean;
  /** Other statuses that this code may carry. */
  readonly also?: readonly number[];
}

export const CATALOGUE = {
  bad_request: { status: 400, type: 'invalid_request_error', retryable: false, also: [405, 415] },
  unsupported_endpoint: { status: 400, type: 'invalid_request_error', retryable: false },
  not_found: { status: 404, type: 'invalid_request_error', retryable: false },
  payload_too_large: { status: 413, type: 'invalid_request_error', retryable: false },
  unprocessable: { status: 422, type: 'invalid_request_error', retryable: false },
  proxy_retired: { status: 410, type: 'invalid_request_error', retryable: false },
  invalid_api_key: { status: 401, type: 'authentication_error', retryable: false },
  expired_api_key: { status: 401, type: 'authentication_error', retryable: false },
  revoked_api_key: { status: 401, type: 'authentication_error', retryable: false },
  model_not_entitled: { status: 403, type: 'permission_error', retryable: false },
  not_in_cohort: { status: 403, type: 'permission_error', retryable: false },
  account_frozen: { status: 403, type: 'permission_error', retryable: false },
  unattributed_key: { status: 403, type: 'permission_error', retryable: false },
  insufficient_credit: { status: 402, type: 'quota', retryable: false },
  user_rate_limited: { status: 429, type: 'rate_limit_error', retryable: true },
  quota_exceeded: { status: 429, type: 'quota', retryable: true },
  capacity_exceeded: { status: 429, type: 'capacity', retryable: true },
  request_cancelled: { status: 499, type: 'server_error', retryable: true },
  idempotency_key_reused: { status: 409, type: 'invalid_request_error', retryable: false, also: [422] },
  internal: { status: 500, type: 'server_error', retryable: true },
  bad_gateway: { status: 502, type: 'server_error', retryable: true },
  upstream_contract_violation: { status: 502, type: 'server_error', retryable: true },
  cold: { status: 503, type: 'server_error', retryable: true },
  draining: { status: 503, type: 'server_error', retryable: true },
  spool_unhealthy: { status: 503, type: 'server_error', retryable: true },
  gateway_unavailable: { status: 503, type: 'server_error', retryable: true },
  control_plane_overloaded: { status: 503, type: 'server_error', retryable: true },
  credit_gate_unavailable: { status: 503, type: 'server_error', retryable: true },
  timeout: { status: 504, type: 'timeout', retryable: true },
} as const satisfies Record<string, Row>;

/** `error.code` on the wire. */
export type ErrorCode = keyof typeof CATALOGUE;

/** Statuses whose responses carry Retry-After and retry-after-ms. */
const WAIT_STATUSES: ReadonlySet<number> = new Set([429, 503, 504]);

/** What a caller is told when nothing better is known about the wait, in ms. */
const DEFAULT_RETRY_AFTER_MS = 1000;

/** The longest message that spec.md allows, in characters. */
const MAX_MESSAGE = 2048;

/** One error on its way to a caller. Made by {@link contractError} alone, so that status and type cannot disagree. */
export interface ContractError {
  readonly code: ErrorCode;
  readonly status: number;
  readonly type: ErrorType;
  /** 1 to 2,048 characters; says what to do; never content, keys or stacks. */
  readonly message: string;
  /** JSON path into the request, or null. */
  readonly param: string | null;
  readonly retryable: boolean;
  /** Milliseconds until a retry may succeed; set exactly on 429, 503 and 504. */
  readonly retryAfterMs?: number;
}

/** Builds an error from its catalogue row. `status` picks one of the row's other statuses; anything else throws (a bug). */
export function contractError(
  code: ErrorCode,
  message: string,
  options: { param?: string | null; status?: number; retryAfterMs?: number } = {},
): ContractError {
  const row: Row = CATALOGUE[code];
  const status = options.status ?? row.status;
  if (status !== row.status && !row.also?.includes(status)) throw new RangeError(`${code} has no status ${status}`);
  return {
    code,
    status,
    type: row.type,
    message: message.length > MAX_MESSAGE ? message.slice(0, MAX_MESSAGE) : message,
    param: options.param ?? null,
    retryable: row.retryable,
    ...(WAIT_STATUSES.has(status) ? { retryAfterMs: options.retryAfterMs ?? DEFAULT_RETRY_AFTER_MS } : {}),
  };
}

/** The error object of contract.md section 1, as JSON text: the whole body of a refusal, and the payload of an error frame. */
export function errorBody(error: ContractError): string {
  return JSON.stringify({
    error: { message: error.message, type: error.type, code: error.code, param: error.param },
  });
}
