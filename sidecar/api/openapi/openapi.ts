/** The OpenAPI 3.1 document of the public listener. Pure and deterministic: the same code gives the same bytes. */
import { messageErrorStatus } from '../../contracts/message-answers.js';
import { LEAST_LIFE_S, MOST_LIFE_S } from '../../contracts/batch-schemas.js';
import { CATALOGUE, WAIT_STATUSES, type CatalogueRow, type ErrorCode } from '../../domain/errors.js';
import type { RouteReference } from '../route.js';
import { componentSchemas, reference, type Schema } from './schemas.js';

/** The chat interface's version (docs/contract.md#versioning); the decisions contract has its own. */
const VERSION = '2.0.0';

const DESCRIPTION = `Chat completions, decisions, embeddings and rankings on hosted models. The decisions contract is at version 1.1.0.

Bodies are JSON in UTF-8 without a byte order mark, nested at most 64 levels deep, of at most 262,144 values, with no
name twice in one object and no half of a surrogate pair. Lengths are in Unicode code points. Request objects are closed unless said otherwise.`;

/** The whole document of a sidecar with these routes. */
export function openApiDocument(routes: readonly RouteReference[]): object {
  return {
    openapi: '3.1.0',
    info: {
      title: 'ra-sidecar',
      version: VERSION,
      description: DESCRIPTION,
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/', description: 'The server that this description was read from.' }],
    security: [{ key: [] }],
    tags: [
      { name: 'chat', description: 'Conversations.' },
      { name: 'decisions', description: 'Questions about an input, answered with probabilities.' },
      { name: 'embeddings', description: 'Vectors of inputs, and scores of documents.' },
      { name: 'batches', description: 'Many requests at once, answered within a day.' },
      { name: 'service', description: 'The server itself.' },
    ],
    paths: pathsOf(routes),
    components: {
      securitySchemes: {
        key: { type: 'http', scheme: 'bearer', description: 'An API key, as `Authorization: Bearer <API_KEY>`.' },
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: 'The same key, by the Messages API.' },
      },
      parameters: Object.fromEntries(
        REQUEST_HEADERS.map(({ id, name, description, schema }) => [
          id,
          { name, in: 'header', required: false, description, schema },
        ]),
      ),
      headers: RESPONSE_HEADERS,
      schemas: { ...componentSchemas(), OpenApi: { type: 'object', description: 'An OpenAPI 3.1 document.' } },
    },
  };
}

function pathsOf(routes: readonly RouteReference[]): object {
  const paths = new Map<string, object>();
  for (const route of routes) paths.set(route.path, { ...paths.get(route.path), [route.method]: operation(route) });
  return Object.fromEntries(paths);
}

/** The statuses of a route's errors, in order, each with its codes. */
export function refusalsOf({
  errors,
  request,
  messageErrors,
  method,
  compatibleOnly,
}: RouteReference): ReadonlyMap<number, readonly ErrorCode[]> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of errors) {
    const { status, also = [] }: CatalogueRow = CATALOGUE[code];
    // 412 is operators'. The content type of a body that is not required is not checked.
    const posted = compatibleOnly === true && method === 'post';
    const statuses = [status, ...also].filter(
      (each) => each !== 412 && (each !== 415 || request !== undefined) && (each !== 426 || posted),
    );
    const sent = statuses.map((each) => (messageErrors === true ? messageErrorStatus({ code, status: each }) : each));
    for (const each of new Set(sent)) byStatus.set(each, [...(byStatus.get(each) ?? []), code]);
  }
  return new Map([...byStatus].sort(([a], [b]) => a - b));
}

const PATH_ID = {
  name: 'id',
  in: 'path',
  required: true,
  description: 'The id of what is asked for.',
  schema: { type: 'string', minLength: 1, maxLength: 128 },
} as const;

function operation(route: RouteReference): object {
  const { id, tag, summary, description, key, request, other, messageErrors } = route;
  const taken = REQUEST_HEADERS.filter(({ withBody }) => !withBody || request !== undefined);
  return {
    operationId: id,
    tags: [tag],
    summary,
    description,
    ...(!key && { security: [] }),
    ...(messageErrors === true && { security: [{ key: [] }, { apiKey: [] }] }),
    parameters: [
      ...(route.path.includes('{id}') ? [PATH_ID] : []),
      ...taken.map((header) => ({ $ref: `#/components/parameters/${header.id}` })),
    ],
    ...(request !== undefined && { requestBody: { required: true, content: json(request) } }),
    ...(route.form !== undefined && { requestBody: { required: true, content: { [route.form]: { schema: FORM } } } }),
    responses: {
      200: success(route),
      ...Object.fromEntries([...refusalsOf(route)].map(([status, codes]) => [status, refusal(status, codes, route)])),
      ...(other && { [other[0]]: { description: other[2], headers: headers([]), content: json(other[1]) } }),
    },
  };
}

/** The form of POST /files. */
const FORM = {
  type: 'object',
  required: ['file', 'purpose'],
  properties: {
    file: { type: 'string', format: 'binary' },
    purpose: { const: 'batch' },
    'expires_after[anchor]': { const: 'created_at' },
    'expires_after[seconds]': { type: 'integer', minimum: LEAST_LIFE_S, maximum: MOST_LIFE_S },
  },
} as const;

/** The answer that is a file. */
const CONTENT = { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } } as const;

function success({ request, answer, frames, key, messageErrors }: RouteReference): object {
  return {
    description: frames === undefined ? 'The answer.' : 'The answer, whole or as a stream.',
    headers: {
      ...headers([
        ...(request === undefined ? [] : (['Server-Timing'] as const)),
        ...(key && messageErrors !== true ? LIMIT_HEADERS : []),
      ]),
      ...(messageErrors === true && MESSAGE_HEADERS),
    },
    content: {
      ...(answer === 'Content' ? CONTENT : json(answer)),
      ...(frames !== undefined && { 'text/event-stream': { schema: { oneOf: frames.map(reference) } } }),
    },
  };
}

function refusal(status: number, codes: readonly ErrorCode[], { messageErrors, key }: RouteReference): object {
  const waits = WAIT_STATUSES.has(status) || codes.some((code) => WAIT_STATUSES.has(CATALOGUE[code].status));
  return {
    description: codes.map((code) => `\`${code}\`: ${CATALOGUE[code].meaning}`).join('\n\n'),
    headers: {
      ...headers([
        ...(waits ? (['Retry-After', 'retry-after-ms'] as const) : []),
        ...(waits || codes.some((code) => !CATALOGUE[code].retryable) ? (['x-should-retry'] as const) : []),
        ...(status === 429 ? (['Server-Timing'] as const) : []),
        ...(codes.includes('capacity_exceeded') ? (['x-queue-position', 'x-expected-wait-ms'] as const) : []),
        ...(key && messageErrors !== true ? LIMIT_HEADERS : []),
      ]),
      ...(messageErrors === true && MESSAGE_HEADERS),
    },
    content: json(messageErrors === true ? 'MessageError' : 'Error'),
  };
}

function json(schema: string): Readonly<Record<string, { readonly schema: Schema }>> {
  return { 'application/json': { schema: reference(schema) } };
}

/** Those that every response carries, and further ones. */
function headers(further: readonly ResponseHeader[]): object {
  const all: ResponseHeader[] = ['x-request-id', 'Access-Control-Expose-Headers', 'endpoint-load-metrics', ...further];
  return Object.fromEntries(all.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** Header fields beyond HTTP's own, in requests and in responses (docs/contract.md#headers). */

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
    description: 'The caller’s own id of the request, returned on its response; a malformed one is replaced by a UUID.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9._:-]{1,128}$' },
    withBody: false,
  },
  {
    id: 'IdempotencyKey',
    name: 'Idempotency-Key',
    description:
      'Sent again with the same key, a request that ran or runs is refused and not run twice (docs/contract.md#idempotency-key).',
    schema: { type: 'string', minLength: 1 },
    withBody: true,
  },
  {
    id: 'Queue',
    name: 'x-ra-queue',
    description:
      '`1`: a stream that waits for a seat gets its place in comments, the first of which sends the 200 (docs/admission.md#place-in-the-queue).',
    schema: { type: 'string' },
    withBody: true,
  },
  {
    id: 'LoadMetricsFormat',
    name: 'endpoint-load-metrics-format',
    description:
      'For proxies: `text` or `json`, the format of `endpoint-load-metrics`, where the operator has turned load reports on.',
    schema: { type: 'string' },
    withBody: false,
  },
];

interface HeaderForm {
  readonly description: string;
  readonly schema: Schema;
}

function count(description: string): HeaderForm {
  return { description, schema: { type: 'integer', minimum: 0 } };
}

function line(description: string): HeaderForm {
  return { description, schema: { type: 'string', minLength: 1, maxLength: 1024 } };
}

const LIMIT_REQUESTS = 'requests of the key in any minute, for this group of routes';
const LIMIT_TOKENS = 'tokens, of the quota with the fewest left';
const LIMIT_LEFT = count('How many of them are left.');
const LIMIT_RESET = line('Until all are there again, as in `1m30s`.');

export const RESPONSE_HEADERS = {
  'x-request-id': {
    description: 'Names the request in logs and usage records. Clients must not depend on it on a 200.',
    schema: { type: 'string', minLength: 1, maxLength: 256 },
  },
  'Access-Control-Expose-Headers': line('The fields of this list that a web page may read.'),
  'Server-Timing': line(
    'Milliseconds, W3C format: `authorize`, `ra-queue`, `ra-admit` (docs/contract.md#server-timing). More names may come.',
  ),
  'Retry-After': count('Seconds to wait before the request is sent again.'),
  'retry-after-ms': count('The same in milliseconds.'),
  'x-queue-position': count(
    'On refusals for want of seats: how many waiting requests would be seated before this one; 1,000 stands for more.',
  ),
  'x-expected-wait-ms': count('How long it would then wait, in milliseconds.'),
  'endpoint-load-metrics': line(
    'For proxies, where the operator has turned it on: an ORCA load report (docs/kubernetes.md#load-reports).',
  ),
  'x-ratelimit-limit-requests': count(`If there is this limit: the most ${LIMIT_REQUESTS}.`),
  'x-ratelimit-remaining-requests': LIMIT_LEFT,
  'x-ratelimit-reset-requests': LIMIT_RESET,
  'x-ratelimit-limit-tokens': count(`If there is this limit: the most ${LIMIT_TOKENS}.`),
  'x-ratelimit-remaining-tokens': LIMIT_LEFT,
  'x-ratelimit-reset-tokens': LIMIT_RESET,
  'x-should-retry': {
    description: '`false` on errors that a retry cannot mend, and where `Retry-After` is above a minute.',
    schema: { const: 'false' },
  },
} satisfies Readonly<Record<string, HeaderForm>>;

export type ResponseHeader = keyof typeof RESPONSE_HEADERS;

/** Those about limits. */
const LIMIT_HEADERS = (Object.keys(RESPONSE_HEADERS) as ResponseHeader[]).filter((name) =>
  name.startsWith('x-ratelimit-'),
);

/** Those of the Messages API: in the document of `contract: compatible` alone, and so not among its components. */
export const MESSAGE_HEADERS = {
  'request-id': line('As `x-request-id`.'),
  ...messageLimit('requests'),
  ...messageLimit('tokens'),
};

function messageLimit(of: string): Readonly<Record<string, HeaderForm>> {
  return {
    [`anthropic-ratelimit-${of}-limit`]: count(`As \`x-ratelimit-limit-${of}\`.`),
    [`anthropic-ratelimit-${of}-remaining`]: LIMIT_LEFT,
    [`anthropic-ratelimit-${of}-reset`]: line('When all are there again, by RFC 3339.'),
  };
}
