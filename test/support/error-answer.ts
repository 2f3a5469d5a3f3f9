import type { Test } from 'tap';
import type { RawResponse } from './raw-http.js';

/** What an error answer is to be; docs/contract.md#errors. */
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

/** The error of a body, whatever else is wrong with it. */
export function errorOf(response: Pick<RawResponse, 'body'>): Envelope['error'] {
  return (JSON.parse(response.body) as Envelope).error;
}

/** Holds an error response to all that is promised of one. */
export function holdError(t: Test, name: string, response: RawResponse, expected: Expected): void {
  const { status, type, code, retry, param } = expected;
  const body = JSON.parse(response.body) as Envelope;
  const { error } = body;
  t.equal(response.status, status, `${name}: status`);
  t.strictSame(Object.keys(body), ['error'], `${name}: closed`);
  t.strictSame(Object.keys(error).sort(), ['code', 'message', 'param', 'type'], `${name}: closed inside`);
  t.equal(error.code, code, `${name}: code`);
  t.equal(error.type, type, `${name}: type`);
  t.match(error.message, /^[^]{1,2048}$/, `${name}: message`);
  if (param !== undefined) t.equal(error.param, param, `${name}: param`);
  t.ok(error.param === null || /^[^]{1,256}$/.test(error.param), `${name}: param is short`);
  t.equal(response.field('content-type'), 'application/json', `${name}: content type`);
  t.match(response.field('x-request-id'), /^[^]{1,256}$/, `${name}: request id`);
  t.equal(response.field('x-should-retry'), retry ? undefined : 'false', `${name}: x-should-retry`);
  holdWait(t, name, response);
  const carried = ['x-request-id', 'Retry-After', 'Server-Timing'].filter(
    (field) => response.field(field) !== undefined,
  );
  t.equal(response.field('access-control-expose-headers'), carried.join(', '), `${name}: exposed`);
}

function holdWait(t: Test, name: string, response: RawResponse): void {
  const seconds = response.field('retry-after');
  const ms = response.field('retry-after-ms');
  if (![429, 503, 504].includes(response.status)) {
    t.strictSame([seconds, ms], [undefined, undefined], `${name}: no wait`);
    return;
  }
  t.match(seconds, /^\d{1,5}$/, `${name}: Retry-After`);
  t.match(ms, /^\d{1,8}$/, `${name}: retry-after-ms`);
  t.equal(Number(seconds), Math.ceil(Number(ms) / 1000), `${name}: they agree`);
}
