import type { RequestHead } from './exchange.js';

/** A header field, name and value. */
export type Field = readonly [name: string, value: string];

/** Response fields that a browser's script may read when a response carries them; docs/contract.md#response-headers. */
const READABLE = ['x-request-id', 'Retry-After', 'Server-Timing'];

/**
 * Headers that a cross-origin request may have, besides the SDKs' `x-stainless-…`. OpenAI's client and the AI SDK set
 * `user-agent`: Chromium drops it, Firefox and Safari ask for it.
 */
const SENDABLE: ReadonlySet<string> = new Set([
  'authorization',
  'content-type',
  'idempotency-key',
  'user-agent',
  'x-request-id',
]);
const SENDABLE_BY_SDK = /^x-stainless-[a-z0-9-]{1,64}$/;

/** Two hours, the longest time that Chromium caches a preflight's answer. */
const PREFLIGHT_MAX_AGE_S = 7200;

/**
 * Which web pages may send requests. Keys are in a header and never in cookies, so credentials mode is not supported.
 */
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
    const readable = READABLE.filter((name) => carried.has(name.toLowerCase()));
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
