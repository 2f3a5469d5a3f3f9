/** Error responses, built from the catalogue. */
import { CATALOGUE, WAIT_STATUSES, type CatalogueRow, type ErrorCode, type ErrorType } from './error-catalogue.js';

export type { ErrorCode, ErrorType } from './error-catalogue.js';

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
}

/** Builds an error from its catalogue row. `status` picks one of the row's other statuses; anything else throws (a bug). */
export function contractError(
  code: ErrorCode,
  message: string,
  options: { param?: string | null; status?: number; retryAfterMs?: number } = {},
): ContractError {
  const row: CatalogueRow = CATALOGUE[code];
  const status = options.status ?? row.status;
  if (status !== row.status && !row.also?.includes(status)) throw new RangeError(`${code} has no status ${status}`);
  const retryAfterMs = WAIT_STATUSES.has(status) ? (options.retryAfterMs ?? DEFAULT_RETRY_AFTER_MS) : undefined;
  return {
    code,
    status,
    type: row.type,
    message: message.length > MAX_MESSAGE ? message.slice(0, MAX_MESSAGE) : message,
    param: options.param ?? null,
    retryable: row.retryable && (retryAfterMs ?? 0) <= MAX_RETRY_WAIT_MS,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

/**
 * A chat's prompt and completion are longer than the model's context. Agent frameworks find this out by the words of OpenAI's API and
 * then shorten the conversation: `maximum context length is N tokens`, `reduce the length of the messages`, and
 * `context_length_exceeded`, which is a code there and none of the contract's. `prompt`, `completion`: how many tokens they
 * have at least, in words; no completion where the prompt alone is too long.
 */
export function overContextError(
  context: number,
  { prompt, completion }: { readonly prompt: string; readonly completion?: string },
  param: string,
): ContractError {
  const asked = completion === undefined ? '' : ` and ${completion} are asked for the completion`;
  const less = completion === undefined ? '' : ' or ask for fewer tokens';
  return contractError(
    'bad_request',
    `This model's maximum context length is ${context} tokens. The prompt has ${prompt}${asked}: ` +
      `reduce the length of the messages${less} (context_length_exceeded).`,
    { param },
  );
}

/**
 * The error object (docs/contract.md#error-object) as JSON: the body of an error response, and the payload of an error
 * frame.
 */
export function errorBody(error: ContractError): string {
  return JSON.stringify({
    error: { message: error.message, type: error.type, code: error.code, param: error.param },
  });
}
