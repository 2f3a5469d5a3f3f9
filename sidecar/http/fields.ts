/** The header fields of responses; docs/contract.md#response-headers. */
import { STATUS_CODES } from 'node:http';
import { retrySeconds, type ContractError } from '../domain/errors.js';
import type { LimitsLeft } from '../domain/limit-left.js';
import type { RequestHead } from './exchange.js';

export type Field = readonly [name: string, value: string];

/** nginx's code for a caller that disconnected, and Anthropic's for a service that is overloaded. */
const OTHER_CODES: Readonly<Record<number, string>> = { 499: 'Client Closed Request', 529: 'Overloaded' };

/** `200 OK`. */
export function statusLine(status: number): string {
  return `${status} ${STATUS_CODES[status] ?? OTHER_CODES[status] ?? 'Unknown'}`;
}

export function errorFields(error: ContractError): Record<string, string> {
  const fields: Record<string, string> = {};
  if (error.retryAfterMs !== undefined) {
    fields['Retry-After'] = String(retrySeconds(error.retryAfterMs));
    fields['retry-after-ms'] = String(Math.max(0, Math.ceil(error.retryAfterMs)));
  }
  if (!error.retryable) fields['x-should-retry'] = 'false';
  return fields;
}

const LIMITS = ['requests', 'tokens'] as const;

/** What is left of the limits of a key, in the fields of OpenAI's API; the time as in `1m30s`, up to whole seconds. */
export function limitFields(left: LimitsLeft): Record<string, string> {
  const fields: Record<string, string> = {};
  for (const name of LIMITS) {
    const limit = left[name];
    if (!limit) continue;
    fields[`x-ratelimit-limit-${name}`] = String(limit.limit);
    fields[`x-ratelimit-remaining-${name}`] = String(limit.remaining);
    fields[`x-ratelimit-reset-${name}`] = durationOf(limit.resetMs);
  }
  return fields;
}

/** As Go writes durations, which clients parse: `0s`, `59s`, `1m0s`, `24h0m0s`. */
function durationOf(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const rest = `${seconds % 60}s`;
  if (minutes === 0) return rest;
  return hours === 0 ? `${minutes}m${rest}` : `${hours}h${minutes % 60}m${rest}`;
}

/** A response's fields in order: `Content-Type` first, unless `own` has one or there is no body. Throws on a line break in a value. */
export function responseFields(
  contentType: string | undefined,
  own: Readonly<Record<string, string>>,
  requestId: string,
): { readonly fields: Field[]; readonly names: Set<string> } {
  const fields: Field[] = Object.entries(own);
  const names = new Set(fields.map(([name]) => name.toLowerCase()));
  if (contentType !== undefined && !names.has('content-type')) fields.unshift(['Content-Type', contentType]);
  fields.push(['x-request-id', requestId]);
  names.add('x-request-id');
  for (const [name, value] of fields) {
    if (/[\r\n\0]/.test(value)) throw new RangeError(`the value of ${name} holds a line break`);
  }
  return { fields, names };
}

/**
 * The value of `Keep-Alive` on an answer whose connection stays open: how long it may be idle, s. uWS closes it at its third look
 * after the answer, and looks every 4 s: after 8 to 12 s. One less, since a request may be on its way. Neither version has a setting for
 * this. In 20.51 `resume()` of the response that `App.filter` gives for a new connection starts the time again. That is not used: no call
 * says which connection has closed, so that the object may point to freed memory, and later versions clear it when the filter returns.
 */
export const KEEP_ALIVE = 'timeout=7';

/** The status line, `Content-Length`, `Date`, and `Keep-Alive` or `Connection`. */
const FIXED_BYTES = 200;

/** At least the bytes of a response's head with these fields. */
export function headBytes(fields: readonly Field[]): number {
  return fields.reduce((sum, [name, value]) => sum + name.length + Buffer.byteLength(value) + 4, FIXED_BYTES);
}

/** Whether the request has `TE: trailers`: what is between it and its caller takes them, or its caller does. */
export function asksForTrailers(head: Pick<RequestHead, 'header'>): boolean {
  return /(?:^|,)[ \t]*trailers[ \t]*(?:,|$)/i.test(head.header('te') ?? '');
}

/** The headers of an event stream, with the handler's own. `trailers`: it may end with some. */
export function streamHeaders(
  own: Readonly<Record<string, string>>,
  { closes, trailers }: { readonly closes: boolean; readonly trailers: boolean },
): Readonly<Record<string, string>> {
  return {
    'Cache-Control': 'no-cache',
    'X-Accel-Buffering': 'no',
    ...own,
    ...(trailers ? { Trailer: 'Server-Timing' } : {}),
    ...(closes ? { Connection: 'close' } : {}),
  };
}

/** Response fields that a browser's script may read when a response carries them; docs/contract.md#response-headers. */
const READABLE = [
  'x-request-id',
  'Retry-After',
  'Server-Timing',
  'x-queue-position',
  'x-expected-wait-ms',
  ...LIMITS.flatMap((limit) => ['limit', 'remaining', 'reset'].map((what) => `x-ratelimit-${what}-${limit}`)),
  ...LIMITS.flatMap((limit) => ['limit', 'remaining', 'reset'].map((what) => `anthropic-ratelimit-${limit}-${what}`)),
].map((name) => ({ name, key: name.toLowerCase() }));

/**
 * Headers that a cross-origin request may have, besides the SDKs' `x-stainless-…`. OpenAI's client and the AI SDK set `user-agent`:
 * Chromium drops it, Firefox and Safari ask for it.
 */
const SENDABLE: ReadonlySet<string> = new Set([
  'anthropic-beta',
  'anthropic-dangerous-direct-browser-access',
  'anthropic-version',
  'authorization',
  'content-type',
  'idempotency-key',
  'user-agent',
  'x-api-key',
  'x-ra-queue',
  'x-request-id',
]);
const SENDABLE_BY_SDK = /^x-stainless-[a-z0-9-]{1,64}$/;

/** Two hours, the longest time that Chromium caches a preflight's answer. */
const PREFLIGHT_MAX_AGE_S = 7200;

/** Which web pages may send requests. Keys are in a header and never in cookies, so credentials mode is not supported. */
export class Cors {
  readonly #any: boolean;
  readonly #origins: ReadonlySet<string>;

  /** Exact origins such as `https://app.example`, or `*` for all. */
  constructor(origins: readonly string[]) {
    this.#any = origins.includes('*');
    this.#origins = new Set(origins);
  }

  /** Fields for any response to `head`; `carried` are the lower-case names of its other fields, trailers included. */
  fields(head: RequestHead, carried: ReadonlySet<string>): Field[] {
    const readable = READABLE.filter(({ key }) => carried.has(key)).map(({ name }) => name);
    const fields: Field[] = [['Access-Control-Expose-Headers', readable.join(', ')]];
    const allowed = this.#allowed(head.header('origin'));
    // Without the second field the browser hides Server-Timing from PerformanceServerTiming, whatever headers may be
    // read.
    if (allowed !== undefined) {
      fields.push(['Access-Control-Allow-Origin', allowed], ['Timing-Allow-Origin', allowed]);
    }
    if (this.#origins.size > 0 && !this.#any) fields.push(['Vary', 'Origin']);
    return fields;
  }

  /** Further fields for the answer to OPTIONS, for a preflight from an allowed origin. */
  preflight(head: RequestHead, methods: string): Readonly<Record<string, string>> {
    const asked = head.header('access-control-request-method') !== undefined;
    if (!asked || this.#allowed(head.header('origin')) === undefined) return {};
    const sendable = (head.header('access-control-request-headers') ?? '')
      .split(',')
      .map((name) => name.trim().toLowerCase())
      .filter((name) => SENDABLE.has(name) || SENDABLE_BY_SDK.test(name));
    return {
      'Access-Control-Allow-Methods': methods,
      ...(sendable.length > 0 ? { 'Access-Control-Allow-Headers': sendable.join(', ') } : {}),
      'Access-Control-Max-Age': String(PREFLIGHT_MAX_AGE_S),
    };
  }

  #allowed(origin: string | undefined): string | undefined {
    if (origin === undefined) return undefined;
    if (this.#any) return '*';
    return this.#origins.has(origin) ? origin : undefined;
  }
}
