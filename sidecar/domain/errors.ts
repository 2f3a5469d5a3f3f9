/** Error responses, built from the catalogue. */
import { CATALOGUE, WAIT_STATUSES, type CatalogueRow, type ErrorCode, type ErrorType } from './error-catalogue.js';

export type { ErrorCode, ErrorType } from './error-catalogue.js';

/** The wait that is sent when no better estimate is known, ms. */
const DEFAULT_RETRY_AFTER_MS = 1000;

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

/**
 * The error object (docs/contract.md#error-object) as JSON: the body of an error response, and the payload of an error
 * frame.
 */
export function errorBody(error: ContractError): string {
  return JSON.stringify({
    error: { message: error.message, type: error.type, code: error.code, param: error.param },
  });
}
