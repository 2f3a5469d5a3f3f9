/**
 * Errors that callers can get: the catalogue, and the responses that are built from its rows. docs/errors.md and the OpenAPI document are
 * generated from it.
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

export interface CatalogueRow {
  /** The usual status; a few codes allow others (405 and 415 of bad_request, 422 of idempotency_key_reused). */
  readonly status: number;
  readonly type: ErrorType;
  /** Whether sending the same request again can succeed. When false the response says `x-should-retry: false`. */
  readonly retryable: boolean;
  /** Other statuses that this code may carry. */
  readonly also?: readonly number[];
  /** When it is raised; text for the documentation. */
  readonly meaning: string;
  /** What the caller should do. */
  readonly advice: string;
}

type Sent = Pick<CatalogueRow, 'status' | 'type' | 'retryable'>;

const WRONG_KEY: Sent = { status: 401, type: 'authentication_error', retryable: false };
const FORBIDDEN: Sent = { status: 403, type: 'permission_error', retryable: false };

function invalid(status: number): Sent {
  return { status, type: 'invalid_request_error', retryable: false };
}

/** Of the service. */
function fault(status: number): Sent {
  return { status, type: 'server_error', retryable: true };
}

function row(sent: Sent, meaning: string, advice: string, also?: readonly number[]): CatalogueRow {
  return { ...sent, meaning, advice, ...(also && { also }) };
}

/** What is sent with each code, when it is raised, and what the caller should do. */
export const CATALOGUE = {
  bad_request: row(
    invalid(400),
    'The body is not JSON, has a field outside the contract or breaks a bound; the prompt is over its token bound or needs more than a whole quota; or an image is sent to a model without vision, is not a PNG or JPEG in a data URL, or breaks the model’s bounds. 405: the path does not take this method. 415: the content type is not application/json. 426: POST /v1/responses is not served over WebSocket.',
    'Change what `message` and `param` point at, then send it again.',
    [405, 415, 426],
  ),
  context_length_exceeded: row(
    invalid(400),
    'Under `contract: compatible`: the prompt is longer than the model’s context, or leaves no room in it for a reply. Under `strict` the code is `bad_request`.',
    'Shorten the conversation, then send it again.',
  ),
  unsupported_endpoint: row(
    invalid(400),
    'The model is of another kind than the endpoint serves, for example a chat model was asked to decide.',
    'Send it to the endpoint that serves this kind of model.',
  ),
  not_found: row(
    invalid(404),
    'Nothing is at this path, or the key’s account has no file or batch with this id.',
    'Correct the path or the id.',
  ),
  payload_too_large: row(
    invalid(413),
    'The body is longer than its route takes: 1 MiB for decisions, `bodies.chatBytes` for chat, 512 MiB for a file.',
    'Send less: shorten the content or split the request.',
  ),
  unprocessable: row(
    invalid(422),
    'The request is well-formed, but this model cannot do what it asks, for example call tools, or tools of this size cannot be compiled to a grammar. 412: prices are not those of If-Match.',
    'Leave out what `param` names, or choose another model.',
    [412],
  ),
  proxy_retired: row(
    invalid(410),
    'The route or this version of it was retired.',
    'Move to the route that replaced it.',
  ),
  invalid_api_key: row(
    WRONG_KEY,
    'The API key is missing, malformed or unknown.',
    'Send a valid key as `Authorization: Bearer <API_KEY>`.',
  ),
  expired_api_key: row(WRONG_KEY, 'The API key is past its expiry.', 'Use a current key.'),
  revoked_api_key: row(WRONG_KEY, 'The API key was revoked.', 'Use another key.'),
  model_not_entitled: row(
    FORBIDDEN,
    'The key may not call this model or this route in this environment, or the model is not hosted.',
    'Use a model of GET /v1/models, or have the key entitled. Decision models are not listed: the operator knows their ids.',
  ),
  not_in_cohort: row(
    FORBIDDEN,
    'The model is restricted to a cohort that the key does not belong to.',
    'Ask the operator for access, or use another model.',
  ),
  account_frozen: row(FORBIDDEN, 'The account is frozen.', 'Contact the operator.'),
  unattributed_key: row(FORBIDDEN, 'The key belongs to no account.', 'Contact the operator.'),
  insufficient_credit: row(
    { status: 402, type: 'quota', retryable: false },
    'The account’s balance does not cover what the request may cost.',
    'Add credit, or ask for fewer tokens.',
  ),
  user_rate_limited: row(
    { status: 429, type: 'rate_limit_error', retryable: true },
    'The key has too many requests in flight or within a minute; or it failed after too many others from the same address.',
    'Wait for the time in Retry-After; send fewer requests at once.',
  ),
  quota_exceeded: row(
    { status: 429, type: 'quota', retryable: true },
    'A quota of tokens of the key or its account has too few left.',
    'Wait for the time in Retry-After, or have the quota raised.',
  ),
  capacity_exceeded: row(
    { status: 429, type: 'capacity', retryable: true },
    'The queue for the model’s seats refuses the request, no seat became free in time, or too many bodies or prompts wait.',
    'Wait for the time in Retry-After, then send it again.',
  ),
  request_cancelled: row(
    fault(499),
    'The caller disconnected before the answer was complete. The code appears only in logs, metrics and usage.',
    'Send it again if the answer is still wanted.',
  ),
  idempotency_key_reused: row(
    invalid(409),
    'The Idempotency-Key was used before. 409: its request is in flight or was completed. 422: its request had another body or route.',
    'In flight: try again later with the same key. Completed: use a new key.',
    [422],
  ),
  internal: row(
    fault(500),
    'A fault in this server.',
    'Send it again; report it with its x-request-id if it persists.',
  ),
  bad_gateway: row(
    fault(502),
    'The engine ended or failed, or the server shut down, while the request ran.',
    'Send it again: the engine is restarted.',
  ),
  upstream_contract_violation: row(
    fault(502),
    'The engine violated its protocol.',
    'Send it again: the engine is restarted.',
  ),
  cold: row(
    fault(503),
    'The model is still loading, or was given up until the operator acts; or prompts cannot be read yet.',
    'Wait for the time in Retry-After, then send it again.',
  ),
  draining: row(
    fault(503),
    'This server is shutting down.',
    'Send it again after the time in Retry-After, perhaps to another server.',
  ),
  spool_unhealthy: row(
    fault(503),
    'Usage cannot be recorded durably, so no work is accepted.',
    'Wait for the time in Retry-After, then send it again.',
  ),
  gateway_unavailable: row(
    fault(503),
    'The service that authenticates callers does not answer.',
    'Wait for the time in Retry-After, then send it again.',
  ),
  control_plane_overloaded: row(
    fault(503),
    'The service that authenticates callers is overloaded; or a fleet’s store does not answer.',
    'Wait for the time in Retry-After, then send it again.',
  ),
  credit_gate_unavailable: row(
    fault(503),
    'The balances of accounts are not available yet.',
    'Wait for the time in Retry-After, then send it again.',
  ),
  timeout: row(
    { status: 504, type: 'timeout', retryable: true },
    'The request’s deadline passed while it waited or ran.',
    'Ask for fewer tokens, or name a later deadline if the request named one.',
  ),
} satisfies Record<string, CatalogueRow>;

/** `error.code` on the wire. */
export type ErrorCode = keyof typeof CATALOGUE;

/** Statuses whose responses carry Retry-After and retry-after-ms. */
export const WAIT_STATUSES: ReadonlySet<number> = new Set([429, 503, 504]);

/** The wait that is sent when no better estimate is known, ms. */
const DEFAULT_RETRY_AFTER_MS = 1000;

/** The longest wait for which clients are to retry by themselves, ms. The Stainless-made ones would sleep for hours, and cannot be woken. */
const MAX_RETRY_WAIT_MS = 60_000;

/** The longest message that docs/contract.md#error-object allows, in characters. */
const MAX_MESSAGE = 2048;

/** One error response. Only {@link contractError} makes it, so that status and type cannot disagree. */
export interface ContractError {
  readonly code: ErrorCode;
  readonly status: number;
  readonly type: ErrorType;
  /** 1 to 2,048 characters with advice; never content, keys or stack traces. */
  readonly message: string;
  /** JSON path into the request, or null. */
  readonly param: string | null;
  /** Whether clients are to send the same request again by themselves. */
  readonly retryable: boolean;
  /** Milliseconds until a retry may succeed; set exactly on 429, 503 and 504. */
  readonly retryAfterMs?: number;
  /** Of a prompt that is too long for its model: tokens that it has at least, and those of the context. */
  readonly lengths?: { readonly prompt: number; readonly context: number };
  /** Of an image that cannot be shown to the model. */
  readonly image?: true;
}

/** What Retry-After says, and the message: whole seconds. */
export function retrySeconds(retryAfterMs: number): number {
  return Math.max(0, Math.ceil(retryAfterMs / 1000));
}

/**
 * Builds an error from its catalogue row. `status` picks one of the row's other statuses; anything else throws (a bug). A message whose
 * status carries Retry-After ends with that time, in the words of OpenAI's API: a stream has no header, so that clients read it there.
 */
export function contractError(
  code: ErrorCode,
  message: string,
  options: { param?: string | null; status?: number; retryAfterMs?: number } = {},
): ContractError {
  const row: CatalogueRow = CATALOGUE[code];
  const status = options.status ?? row.status;
  if (status !== row.status && !row.also?.includes(status)) throw new RangeError(`${code} has no status ${status}`);
  const retryAfterMs = WAIT_STATUSES.has(status) ? (options.retryAfterMs ?? DEFAULT_RETRY_AFTER_MS) : undefined;
  const wait = retryAfterMs === undefined ? '' : ` Please try again in ${retrySeconds(retryAfterMs)}s.`;
  return {
    code,
    status,
    type: row.type,
    message: `${message}${wait}`.slice(0, MAX_MESSAGE),
    param: options.param ?? null,
    retryable: row.retryable && (retryAfterMs ?? 0) <= MAX_RETRY_WAIT_MS,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

/**
 * A chat's prompt and completion are longer than the model's context. Agents and their frameworks find this out by the words of OpenAI's
 * API and then shorten the conversation: `maximum context length is N tokens`, `reduce the length of the messages`, and
 * `context_length_exceeded`, which is the code there, and here under `contract: compatible`. `prompt`, `completion`: tokens, with
 * `least` at least so many of the prompt, and at least so many of the completion; no completion where the prompt alone is too long.
 */
export function overContextError(
  context: number,
  {
    prompt,
    least = false,
    completion,
  }: { readonly prompt: number; readonly least?: boolean; readonly completion?: number },
  param: string,
  compatible: boolean,
): ContractError {
  const asked = completion === undefined ? '' : ` and at least ${completion} are asked for the completion`;
  const less = completion === undefined ? '' : ' or ask for fewer tokens';
  return {
    ...contractError(
      compatible ? 'context_length_exceeded' : 'bad_request',
      `This model's maximum context length is ${context} tokens. The prompt has ${least ? 'at least ' : ''}${prompt}${asked}: ` +
        `reduce the length of the messages${less} (context_length_exceeded).`,
      { param },
    ),
    lengths: { prompt, context },
  };
}

/** An image of a user's message that cannot be shown to the model. */
export function imageError(message: string, param: string): ContractError {
  return { ...contractError('bad_request', message, { param }), image: true };
}

/** The error object (docs/contract.md#error-object) as JSON: the body of an error response, and the payload of an error frame. */
export function errorBody(error: ContractError): string {
  return JSON.stringify({ error: { message: error.message, type: error.type, code: error.code, param: error.param } });
}

/** Codes of a denial: those of the catalogue with 401, 402, 403 and 429 that are about the caller. */
export const DENIALS = [
  'invalid_api_key',
  'expired_api_key',
  'revoked_api_key',
  'model_not_entitled',
  'not_in_cohort',
  'account_frozen',
  'unattributed_key',
  'insufficient_credit',
  'user_rate_limited',
  'quota_exceeded',
] as const satisfies readonly ErrorCode[];
