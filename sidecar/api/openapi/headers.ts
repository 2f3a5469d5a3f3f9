/** Header fields beyond HTTP's own, in requests and in responses (docs/contract.md#headers). */
import type { Schema } from './schemas.js';

export interface RequestHeader {
  /** Its name among the document's parameters. */
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly schema: Schema;
  /** Only where a model is asked to work. */
  readonly withBody: boolean;
}

export const REQUEST_HEADERS: readonly RequestHeader[] = [
  {
    id: 'RequestId',
    name: 'x-request-id',
    description:
      'The caller’s own id of the request, returned on its response. Anything malformed is replaced by a UUID.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9._:-]{1,128}$' },
    withBody: false,
  },
  {
    id: 'IdempotencyKey',
    name: 'Idempotency-Key',
    description:
      'A key of the caller’s for this request alone: sent again with it, a request that ran or runs is refused and not ' +
      'run twice. 1 to 255 visible ASCII characters, bare or in double quotes; per account; remembered for 24 hours ' +
      'unless the operator sets another time.',
    schema: { type: 'string', minLength: 1 },
    withBody: true,
  },
  {
    id: 'LoadMetricsFormat',
    name: 'endpoint-load-metrics-format',
    description:
      'For proxies: the format, `text` or `json`, of `endpoint-load-metrics` on the response. Without effect unless the ' +
      'operator has turned load reports on.',
    schema: { type: 'string' },
    withBody: false,
  },
];

const SECONDS = { type: 'integer', minimum: 0 } as const;
const LINE = { type: 'string', minLength: 1, maxLength: 1024 } as const;

export const RESPONSE_HEADERS = {
  'x-request-id': {
    description: 'Names the request in logs and usage records. Clients must not depend on it on a 200.',
    schema: { type: 'string', minLength: 1, maxLength: 256 },
  },
  'Access-Control-Expose-Headers': {
    description: 'Those of `x-request-id`, `Retry-After` and `Server-Timing` that the response carries.',
    schema: LINE,
  },
  'Server-Timing': {
    description:
      'Milliseconds, W3C format: `authorize` (the key’s check), `ra-queue` (waiting for a seat), `ra-admit` (the ' +
      'server’s own work before the model). More names may come.',
    schema: LINE,
  },
  'Retry-After': { description: 'Seconds to wait before the request is sent again.', schema: SECONDS },
  'retry-after-ms': { description: 'The same in milliseconds.', schema: SECONDS },
  'endpoint-load-metrics': {
    description:
      'For proxies, where the operator has turned it on: how busy this server is, an ORCA load report that begins with ' +
      '`TEXT ` or `JSON `. Not among the fields that pages in a browser may read.',
    schema: LINE,
  },
  'x-should-retry': {
    description:
      '`false` on errors that sending the same request again cannot mend, and where `Retry-After` is above a minute.',
    schema: { const: 'false' },
  },
} as const satisfies Readonly<Record<string, { readonly description: string; readonly schema: Schema }>>;

export type ResponseHeader = keyof typeof RESPONSE_HEADERS;
