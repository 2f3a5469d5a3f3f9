/** The public listener's routes, as the documentation lists them. A test checks that the server answers just these. */
import { CATALOGUE, type ErrorCode } from '../../domain/errors.js';

/** The setting `contract`. */
export type Contract = 'strict' | 'compatible';

export interface RouteReference {
  readonly path: string;
  readonly method: 'get' | 'post';
  readonly id: string;
  readonly tag: 'chat' | 'decisions' | 'service';
  readonly summary: string;
  readonly description: string;
  /** Whether it asks for an API key. */
  readonly key: boolean;
  /** Named schema of the body. */
  readonly request?: string;
  /** The same under `contract: compatible`, where it differs. */
  readonly compatibleRequest?: string;
  /** Named schema of the 200's body, its media type where that is not `application/json`; absent: it only refuses. */
  readonly answer?: string;
  /** Named schemas of the frames of a streamed 200. */
  readonly frames?: readonly string[];
  /** A status other than 200 that carries no error: its named schema. */
  readonly other?: readonly [status: number, schema: string, description: string];
  readonly errors: readonly ErrorCode[];
}

/** What any request can meet: a malformed head, a method that the path does not take, a fault of ours. */
const ANY: readonly ErrorCode[] = ['bad_request', 'internal'];

/** What a source of identities may deny with. */
const KEYED: readonly ErrorCode[] = [
  'proxy_retired',
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
  'gateway_unavailable',
  'control_plane_overloaded',
  'credit_gate_unavailable',
];

/** The outcomes of work for a model. The answer to a cancelled request is never sent. */
const WORK = (Object.keys(CATALOGUE) as ErrorCode[]).filter(
  (code) => code !== 'not_found' && code !== 'request_cancelled',
);

export const ROUTES: readonly RouteReference[] = [
  {
    path: '/v1/chat/completions',
    method: 'post',
    id: 'createChatCompletion',
    tag: 'chat',
    summary: 'Continue a conversation',
    description:
      'One completion object, or with `stream: true` server-sent events: each frame is `data: ` and one chunk as JSON. ' +
      'A stream that went well ends with `data: [DONE]`; one that ends early ends with exactly one error object and no ' +
      '`[DONE]`. Comments (`: keep-alive`) may come between frames. The 200 goes out with the first token, or after one ' +
      'keep-alive interval without one; until then a failure is an ordinary error response. After the last frame of a ' +
      'stream whose request has `TE: trailers` the trailer field `Server-Timing: ra-ttft;dur=<milliseconds>` says how long after the request’s last byte ' +
      'its first token came; it is left out when no token was generated, and clients may ignore it.',
    key: true,
    request: 'ChatCompletionRequest',
    compatibleRequest: 'CompatibleChatRequest',
    answer: 'ChatCompletion',
    frames: ['ChatCompletionChunk', 'UsageChunk', 'Error'],
    errors: WORK,
  },
  {
    path: '/v1/completions',
    method: 'post',
    id: 'createCompletion',
    tag: 'chat',
    summary: 'Text completion, which is not served',
    description:
      'Always refuses: 404, or 400 `unsupported_endpoint` when the body names a decision model that the key may call.',
    key: true,
    errors: [...ANY, ...KEYED, 'not_found', 'unsupported_endpoint', 'draining', 'spool_unhealthy'],
  },
  {
    path: '/v1/models',
    method: 'get',
    id: 'listModels',
    tag: 'chat',
    summary: 'List the chat models that the key may call',
    description: 'The authority on what may be called with this key in this environment.',
    key: true,
    answer: 'ModelList',
    errors: [...ANY, ...KEYED],
  },
  {
    path: '/v1/decisions',
    method: 'post',
    id: 'decide',
    tag: 'decisions',
    summary: 'Answer questions about an input',
    description:
      'Yes/no, choice and score questions, each answered with a probability per answer. Nothing is generated. ' +
      'The body has at most 1 MiB.',
    key: true,
    request: 'DecisionsRequest',
    answer: 'Decisions',
    errors: WORK,
  },
  {
    path: '/v1/systemone',
    method: 'post',
    id: 'systemOne',
    tag: 'decisions',
    summary: 'The same in the shape of System One',
    description: 'Same models, limits and billing as /v1/decisions. The body has at most 1 MiB.',
    key: true,
    request: 'SystemOneRequest',
    answer: 'SystemOne',
    errors: WORK,
  },
  {
    path: '/v1/openapi.json',
    method: 'get',
    id: 'openapi',
    tag: 'service',
    summary: 'This description',
    description: 'OpenAPI 3.1, made from the schemas that requests are checked against.',
    key: false,
    answer: 'OpenApi',
    errors: ANY,
  },
  {
    path: '/healthz',
    method: 'get',
    id: 'health',
    tag: 'service',
    summary: 'Whether the process is alive',
    description: 'Its event loop turns.',
    key: false,
    answer: 'Health',
    errors: ANY,
  },
  {
    path: '/readyz',
    method: 'get',
    id: 'readiness',
    tag: 'service',
    summary: 'Whether the server takes work',
    description:
      'It does not drain, usage can be recorded, balances are known, prompt hosts have started and every model that is not ' +
      'lazy is loaded. Reasons are on the operators’ listener, under the same path.',
    key: false,
    answer: 'Readiness',
    other: [503, 'Readiness', 'Not ready.'],
    errors: ANY,
  },
  {
    path: '/health',
    method: 'get',
    id: 'healthState',
    tag: 'service',
    summary: 'The readiness, for load balancers and tools',
    description: 'As `/readyz` without the parts, under the path and with the `ok` of other servers of models.',
    key: false,
    answer: 'HealthState',
    other: [503, 'HealthState', 'Not ready.'],
    errors: ANY,
  },
];

/** Those that `contract: compatible` adds. */
export const FURTHER_ROUTES: readonly RouteReference[] = [
  {
    path: '/v1/responses',
    method: 'post',
    id: 'createResponse',
    tag: 'chat',
    summary: 'A chat in the form of the Responses API',
    description:
      'Served under `contract: compatible`. Without state: nothing is stored, and the whole conversation is sent as `input`. ' +
      'With `stream: true` server-sent events whose data has a `type`; the last is `response.completed`, `response.incomplete` ' +
      'or, for a stream that ends early, `error`. Limits, billing and times are those of chat.',
    key: true,
    request: 'ResponsesRequest',
    answer: 'Response',
    frames: ['ResponseEvent'],
    errors: WORK,
  },
  {
    path: '/v1/models/{id}',
    method: 'get',
    id: 'showModel',
    tag: 'chat',
    summary: 'One chat model that the key may call',
    description: 'Served under `contract: compatible`. A model that is not in the list is 403.',
    key: true,
    answer: 'Model',
    errors: [...ANY, ...KEYED],
  },
];

/** The routes of a sidecar with this contract. */
export function routesOf(contract: Contract): readonly RouteReference[] {
  if (contract === 'strict') return ROUTES;
  const routes = [...ROUTES, ...FURTHER_ROUTES];
  return routes.map((route) =>
    route.compatibleRequest === undefined ? route : { ...route, request: route.compatibleRequest },
  );
}
