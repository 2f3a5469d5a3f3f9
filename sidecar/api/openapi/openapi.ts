/** The OpenAPI 3.1 document of the public listener. Pure and deterministic: the same code gives the same bytes. */
import { CATALOGUE, WAIT_STATUSES, type CatalogueRow, type ErrorCode } from '../../domain/errors.js';
import { REQUEST_HEADERS, RESPONSE_HEADERS, type ResponseHeader } from './headers.js';
import { routesOf, type Contract, type RouteReference } from './routes.js';
import { componentSchemas, reference, type Schema } from './schemas.js';

/** The chat interface's version (docs/contract.md#versioning); the decisions contract has its own. */
const VERSION = '2.0.0';

const DESCRIPTION = `Chat completions and decisions on hosted models. The decisions contract is at version 1.1.0.

Bodies are JSON in UTF-8 without a byte order mark, nested at most 64 levels deep, of at most 262,144 values, with no
name twice in one object and no half of a surrogate pair. Lengths are in Unicode code points. Request objects are closed unless said otherwise.`;

/** The whole document of a sidecar with this contract. Takes milliseconds: made once at the start. */
export function openApiDocument(contract: Contract = 'strict'): object {
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
      { name: 'service', description: 'The server itself.' },
    ],
    paths: Object.fromEntries(routesOf(contract).map((route) => [route.path, { [route.method]: operation(route) }])),
    components: {
      securitySchemes: {
        key: { type: 'http', scheme: 'bearer', description: 'An API key, as `Authorization: Bearer <API_KEY>`.' },
      },
      parameters: Object.fromEntries(
        REQUEST_HEADERS.map(({ id, name, description, schema }) => [
          id,
          { name, in: 'header', required: false, description, schema },
        ]),
      ),
      headers: Object.fromEntries(
        Object.entries(RESPONSE_HEADERS).map(([name, { description, schema }]) => [name, { description, schema }]),
      ),
      schemas: { ...componentSchemas(), OpenApi: { type: 'object', description: 'An OpenAPI 3.1 document.' } },
    },
  };
}

/** The statuses of a route's errors, in order, each with its codes. */
export function refusalsOf({ errors, request }: RouteReference): ReadonlyMap<number, readonly ErrorCode[]> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of errors) {
    const { status, also = [] }: CatalogueRow = CATALOGUE[code];
    // The content type of a body that is not required is not checked.
    const statuses = [status, ...also].filter((each) => each !== 415 || request !== undefined);
    for (const each of statuses) byStatus.set(each, [...(byStatus.get(each) ?? []), code]);
  }
  return new Map([...byStatus].sort(([a], [b]) => a - b));
}

const PATH_ID = {
  name: 'id',
  in: 'path',
  required: true,
  description: 'The model’s id.',
  schema: { type: 'string', minLength: 1, maxLength: 128 },
} as const;

function operation(route: RouteReference): object {
  const { id, tag, summary, description, key, request, other } = route;
  const taken = REQUEST_HEADERS.filter(({ withBody }) => !withBody || request !== undefined);
  return {
    operationId: id,
    tags: [tag],
    summary,
    description,
    ...(!key && { security: [] }),
    parameters: [
      ...(route.path.endsWith('{id}') ? [PATH_ID] : []),
      ...taken.map((header) => ({ $ref: `#/components/parameters/${header.id}` })),
    ],
    ...(request !== undefined && { requestBody: { required: true, content: json(request) } }),
    responses: {
      ...(route.answer !== undefined && { 200: success(route, route.answer) }),
      ...Object.fromEntries([...refusalsOf(route)].map(([status, codes]) => [status, refusal(status, codes)])),
      ...(other && { [other[0]]: { description: other[2], headers: headers([]), content: json(other[1]) } }),
    },
  };
}

function success({ request, frames }: RouteReference, answer: string): object {
  return {
    description: frames === undefined ? 'The answer.' : 'The answer, whole or as a stream.',
    headers: headers(request === undefined ? [] : ['Server-Timing']),
    content: {
      ...json(answer),
      ...(frames !== undefined && { 'text/event-stream': { schema: { oneOf: frames.map(reference) } } }),
    },
  };
}

function refusal(status: number, codes: readonly ErrorCode[]): object {
  return {
    description: codes.map((code) => `\`${code}\`: ${CATALOGUE[code].meaning}`).join('\n\n'),
    headers: headers([
      ...(WAIT_STATUSES.has(status) ? (['Retry-After', 'retry-after-ms'] as const) : []),
      ...(WAIT_STATUSES.has(status) || codes.some((code) => !CATALOGUE[code].retryable)
        ? (['x-should-retry'] as const)
        : []),
      ...(status === 429 ? (['Server-Timing'] as const) : []),
    ]),
    content: json('Error'),
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
