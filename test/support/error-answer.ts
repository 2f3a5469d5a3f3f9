import type { Test } from 'tap';
import type { RawResponse } from './raw-http.js';

/** The expected error answer; docs/contract.md#errors. */
export interface Expected {
  readonly status: number;
  readonly type: string;
  readonly code: string;
  readonly retry: boolean;
  readonly param?: string | null;
}

interface Envelope {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly code: string;
    readonly param: string | null;
  };
}

/** An error in the form of the Messages API. */
export interface MessageError {
  readonly type: 'error';
  readonly error: {
    readonly type: string;
    readonly message: string;
    readonly details: { readonly error_code: string; readonly param: string | null };
  };
  readonly request_id: string;
}

/** The error of a body, in either form, whatever else is wrong with it. */
export function errorOf(response: Pick<RawResponse, 'body'>): Envelope['error'] {
  const body = JSON.parse(response.body) as Envelope | MessageError;
  if (!('type' in body)) return body.error;
  const { type, message, details } = body.error;
  return { type, message, code: details.error_code, param: details.param };
}

/** `fits` if the text matches the pattern, otherwise the text, so that a failed comparison shows it. */
function shape(text: string | null | undefined, pattern: RegExp): string | null | undefined {
  return typeof text === 'string' && pattern.test(text) ? 'fits' : text;
}

/** What pages in a browser may read of an error. */
const READABLE = [
  ...['x-request-id', 'Retry-After', 'Server-Timing', 'x-queue-position', 'x-expected-wait-ms'],
  ...['requests', 'tokens'].flatMap((limit) =>
    ['limit', 'remaining', 'reset'].map((what) => `x-ratelimit-${what}-${limit}`),
  ),
];

/**
 * Checks everything that the contract says of an error response with one assertion, which shows each part that differs.
 */
export function holdError(t: Test, name: string, response: RawResponse, expected: Expected): void {
  const { status, type, code, retry, param } = expected;
  const body = JSON.parse(response.body) as Envelope;
  const { error } = body;
  const carried = READABLE.filter((field) => response.field(field) !== undefined);
  const waits = [429, 503, 504].includes(response.status);
  const seconds = response.field('retry-after');
  const ms = response.field('retry-after-ms');
  const found = {
    status: response.status,
    fields: Object.keys(body),
    fieldsOfError: Object.keys(error).sort(),
    code: error.code,
    type: error.type,
    message: shape(error.message, /^[^]{1,2048}$/),
    says: / Please try again in (\d+)s\.$/.exec(error.message)?.[1],
    param: param === undefined ? undefined : error.param,
    shortParam: error.param === null ? 'fits' : shape(error.param, /^[^]{1,256}$/),
    contentType: response.field('content-type'),
    requestId: shape(response.field('x-request-id'), /^[^]{1,256}$/),
    shouldRetry: response.field('x-should-retry'),
    seconds: waits ? shape(seconds, /^\d{1,5}$/) : seconds,
    ms: waits ? shape(ms, /^\d{1,8}$/) : ms,
    agree: !waits || Number(seconds) === Math.ceil(Number(ms) / 1000),
    exposed: response.field('access-control-expose-headers'),
  };
  t.strictSame(
    found,
    {
      status,
      fields: ['error'],
      fieldsOfError: ['code', 'message', 'param', 'type'],
      code,
      type,
      message: 'fits',
      says: waits ? seconds : undefined,
      param,
      shortParam: 'fits',
      contentType: 'application/json',
      requestId: 'fits',
      // Nor after a wait of more than a minute.
      shouldRetry: retry && !(waits && Number(ms) > 60_000) ? undefined : 'false',
      seconds: waits ? 'fits' : undefined,
      ms: waits ? 'fits' : undefined,
      agree: true,
      exposed: carried.join(', '),
    },
    name,
  );
}
