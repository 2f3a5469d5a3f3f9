/** The refusals that routes make; those of bodies and images are made where these are read. Each says what the caller can do. */
import type { Claimed } from '../access/idempotency.js';
import type { Denied } from '../access/identity.js';
import type { Limit, TokenLimits } from '../access/limits.js';
import type { QuotaScope, TokensRefused } from '../access/quotas.js';
import type { Refused } from '../admission/types.js';
import { contractError, imageError, overContextError, type ContractError, type ErrorCode } from '../domain/errors.js';
import { REFUSALS } from '../domain/refusal-reasons.js';
import type { Engine, JobFault, ModelKind } from '../engine-client/engine.js';
import type { BodyEnd } from '../http/body.js';

/** A refusal whose message is always the same. */
function always(...refusal: Parameters<typeof contractError>): () => ContractError {
  return () => contractError(...refusal);
}

const INSUFFICIENT = 'The balance of the account cannot cover this request. Add credit, then send it again.';
const CREDIT_UNKNOWN = 'The credit of the account cannot be checked now.';

const NOT_IN_COHORT =
  'The model is open to a cohort that this key is not part of. Ask the operator for access, or use another model.';

/** The refusals of identity sources. */
const DENIALS: Partial<Record<ErrorCode, string>> = {
  invalid_api_key: 'The API key is missing, malformed or unknown. Send it as `Authorization: Bearer <API_KEY>`.',
  expired_api_key: 'The API key has expired. Use a current one.',
  revoked_api_key: 'The API key was revoked. Use another one.',
  account_frozen: 'The account is frozen. Contact the operator of this service.',
  unattributed_key: 'The API key belongs to no account. Contact the operator of this service.',
  insufficient_credit: INSUFFICIENT,
  model_not_entitled: 'This key may call no model in this environment. Have it entitled, or use another key.',
  not_in_cohort: NOT_IN_COHORT,
  user_rate_limited: 'Too many requests, or too many with keys that fail.',
  quota_exceeded: 'The quota of this entitlement is used up.',
  proxy_retired: 'This route or version was retired. See the documentation for what took its place.',
  gateway_unavailable: 'The identity source cannot answer now.',
  control_plane_overloaded: 'The identity source is overloaded.',
  credit_gate_unavailable: CREDIT_UNKNOWN,
};

export function denied({ code, retryAfterMs }: Denied): ContractError {
  const message = DENIALS[code] ?? 'The request is not allowed.';
  return contractError(code, message, retryAfterMs === undefined ? {} : { retryAfterMs });
}

const LIMITED: Record<keyof Limit, string> = {
  inFlight: 'This key has too many requests in flight: one of them has to end first.',
  perMinute: 'This key has sent too many requests within 60 seconds.',
};

export function limited(by: keyof Limit, retryAfterMs: number): ContractError {
  return contractError('user_rate_limited', LIMITED[by], { retryAfterMs });
}

/** The store of a fleet does not answer. */
function unknown(what: string): (retryAfterMs?: number) => ContractError {
  const message = `${what} now.`;
  return (retryAfterMs = USAGE_RETRY_MS) => contractError('control_plane_overloaded', message, { retryAfterMs });
}

export const limitsUnknown = unknown('The limits of this key cannot be checked');
export const keyUnknown = unknown('Whether the Idempotency-Key was used before cannot be checked');
export const sumsUnknown = unknown('What other sidecars have counted cannot be read');

const SCOPES: Record<QuotaScope, string> = { key: 'this key', account: 'the account of this key' };
const TIMES: Record<keyof TokenLimits, readonly [time: string, renewed: string]> = {
  tokensPerMinute: ['60 seconds', ''],
  tokensPerDay: ['a day', ' A new day begins at 00:00 UTC.'],
  tokensPerMonth: ['a month', ' A new month begins on its first day at 00:00 UTC.'],
};

/** A quota lacks tokens that a request needs, or is not known. */
export function quotaExceeded(problem: TokensRefused): ContractError {
  if (problem.kind === 'unknown') return usageUnknown();
  if (problem.kind === 'unavailable') return limitsUnknown(problem.retryAfterMs);
  const { scope, name, limit } = problem.quota;
  const [time, renewed] = TIMES[name];
  const quota = `the quota of ${SCOPES[scope]}, ${limit} tokens in ${time}`;
  if (problem.retryAfterMs === Infinity)
    return contractError(
      'bad_request',
      `The request needs more tokens than ${quota}. Shorten it, or have the quota raised.`,
    );
  const message = `Of ${quota}, too few are left for this request.${renewed}`;
  return contractError('quota_exceeded', message, { retryAfterMs: problem.retryAfterMs });
}

/** Files are deleted by their owners, or after days, ms. */
const FILE_RETRY_MS = 60_000;

/** A start reads 100,000 records of usage in about a second, ms. */
const USAGE_RETRY_MS = 1000;

/** After this time a retry should reach another sidecar instead of the one that drains, ms. */
export const DRAIN_RETRY_MS = 1000;

export function draining(retryAfterMs: number): ContractError {
  return refused({ reason: 'drain', retryAfterMs });
}

export const spoolUnhealthy = always(
  'spool_unhealthy',
  'Usage cannot be recorded durably now, so no new work is taken.',
);

export const wrongContentType = always('bad_request', 'The content type must be application/json.', { status: 415 });

export const encodedBody = always('bad_request', 'Send the body without Content-Encoding: it is not decoded.', {
  status: 415,
});

export const compatibleOnly = always(
  'not_found',
  'This path is served where the operator has set `contract` to `compatible` (RA_CONTRACT=compatible), and here it is `strict`. Chat is at POST /v1/chat/completions; GET /v1/models lists the models.',
);

/** `served`: method and path of each route that asks for a key. `slash`: the path would be one of theirs without a slash too many. */
export function notServed(served: readonly string[], slash: boolean): ContractError {
  const what = slash ? 'There is nothing at this path, which has a slash too many.' : 'There is nothing at this path.';
  return contractError('not_found', `${what} Served are ${served.join(', ')}; GET /v1/openapi.json describes them.`);
}

export const batchesOff = always(
  'not_found',
  'Files and batches are not served here: the operator has to set batch.store to memory or disk.',
);

export const tooManyUploads = always(
  'user_rate_limited',
  'Too many files are being uploaded at once: one of them has to end first.',
);

export function tooManyBatches(most: number): ContractError {
  const message = `The account has ${most} batches that have not ended: one of them has to end, or to be cancelled, first.`;
  return contractError('capacity_exceeded', message, { retryAfterMs: FILE_RETRY_MS });
}

const NO_FILE_ROOM = {
  account: [
    'bad_request',
    'The account has as many files, or as many bytes in files, as it may. Delete some, then send it again.',
  ],
  store: ['capacity_exceeded', 'There is no room for the file now.'],
} as const;

/** A file is not stored: the bound of its account, or of all, is reached. */
export function noFileRoom(why: keyof typeof NO_FILE_ROOM): ContractError {
  const [code, message] = NO_FILE_ROOM[why];
  return contractError(code, message, { retryAfterMs: FILE_RETRY_MS });
}

export const malformedForm = always(
  'bad_request',
  'The body must be a form (multipart/form-data) with the file in its field `file`, no field twice and none above 1,024 bytes.',
);

export const fileInUse = always(
  'bad_request',
  'A batch that has not ended reads this file. Cancel it first, or wait for its end.',
);

export function tooLarge(limitBytes: number): ContractError {
  return contractError(
    'payload_too_large',
    `The body is larger than the ${limitBytes} bytes that this route takes. Shorten the content or split the request.`,
  );
}

export const noRoom = always('capacity_exceeded', 'Too many request bytes are being held at once.');

export function noBody(kind: Exclude<BodyEnd['kind'], 'gone'>, limitBytes: number): ContractError {
  if (kind === 'too-large') return tooLarge(limitBytes);
  if (kind === 'no-room') return noRoom();
  return contractError(
    'bad_request',
    'The chunked body does not go on. Chunk extensions are not read: send the body without them, or with Content-Length.',
  );
}

/** The same for models that are not hosted and not entitled, so that a caller cannot find out which models exist. */
export function notEntitled(kind: ModelKind): ContractError {
  const hint =
    kind === 'decision'
      ? 'The operator knows the ids of decision models.'
      : 'GET /v1/models lists those that it may call.';
  const message = `The model is not served here, or this key may not call it. ${hint}`;
  return contractError('model_not_entitled', message, { param: 'model' });
}

export const notInCohort = always('not_in_cohort', NOT_IN_COHORT, { param: 'model' });

export const routeNotEntitled = always(
  'model_not_entitled',
  'This key may not call this route. Use another key, or have this one entitled.',
);

export function wrongEndpoint(kind: ModelKind): ContractError {
  return contractError('unsupported_endpoint', ENDPOINTS[kind], { param: 'model' });
}

const ENDPOINTS: Readonly<Record<ModelKind, string>> = {
  chat: 'This is a chat model: it does nothing else. Send it to /v1/chat/completions.',
  decision: 'This is a decision model: it does not chat. Send it to /v1/decisions or /v1/systemone.',
  embedding: 'This is an embedding model: it makes vectors and nothing else. Send it to /v1/embeddings.',
  rerank: 'This is a reranker: it scores documents and does nothing else. Send it to /v1/rerank.',
};

/** Retry-After for a model that was given up, ms: it needs an operator first, so callers should not retry every second. */
const LOST_RETRY_MS = 60_000;

const LOST =
  'What this request needs of the model cannot be served until the operator acts. Use another model meanwhile.';

/** The model is starting, or was given up. */
export function starting({ state, readyInMs }: Pick<Engine, 'state' | 'readyInMs'>): ContractError {
  return state === 'lost'
    ? contractError('cold', LOST, { retryAfterMs: LOST_RETRY_MS })
    : contractError('cold', 'The model is still loading.', { retryAfterMs: readyInMs });
}

export const malformedIdempotencyKey = always(
  'bad_request',
  'The header Idempotency-Key must be 1 to 255 visible ASCII characters, bare or in double quotes.',
);

const REUSED: Record<Exclude<Claimed['kind'], 'claimed'>, string> = {
  'in-flight':
    'A request with this Idempotency-Key is under way. It is not run a second time: ' +
    'send it again later with the same key: if that request failed, the key can be used again.',
  completed:
    'The request with this Idempotency-Key was completed. It is not run again and its reply is not kept: ' +
    'send a new key to run it anew.',
  'other-body': 'This Idempotency-Key was used with another body or route. Send a new key.',
};

export function keyReused(kind: keyof typeof REUSED): ContractError {
  return contractError('idempotency_key_reused', REUSED[kind], kind === 'other-body' ? { status: 422 } : {});
}

export function refused({ reason, retryAfterMs }: Pick<Refused, 'reason' | 'retryAfterMs'>): ContractError {
  const { code, message } = REFUSALS[reason];
  return contractError(code, message, { retryAfterMs });
}

/** `asked`: of the completion, tokens. */
export function overContext(
  { promptTokens, asked, context }: Readonly<Record<'promptTokens' | 'asked' | 'context', number>>,
  param: string,
  compatible: boolean,
): ContractError {
  return overContextError(context, { prompt: promptTokens, completion: asked }, param, compatible);
}

/** The prompt leaves room, but less than the caller asks for. Without the words by which agents detect a prompt that is too long. */
export function overCompletion(
  promptTokens: number,
  maxTokens: number,
  context: number,
  field: 'max_tokens' | 'max_completion_tokens',
): ContractError {
  return contractError(
    'bad_request',
    `${field} is ${maxTokens}, but the prompt has ${promptTokens} tokens and the model's context ${context}: ` +
      `reduce it to ${context - promptTokens} or less, or leave it out.`,
    { param: field },
  );
}

export function questionOverContext(question: number, tokens: number, context: number, param: string): ContractError {
  return contractError(
    'bad_request',
    `The prompt of question ${question} (input, question and template) has ${tokens} tokens, ` +
      `more than the ${context} that this model holds. Shorten the input or the question.`,
    { param },
  );
}

/** `width`: numbers of the model's vectors; `least`: the fewest that may be asked for; undefined if it may be no smaller. */
export function dimensions(width: number, least: number | undefined): ContractError {
  const what =
    least === undefined
      ? `dimensions must be ${width} for this model, or left out: its vectors cannot be cut.`
      : `dimensions must be from ${least} to ${width} for this model.`;
  return contractError('bad_request', what, { param: 'dimensions' });
}

/** Some of a list's vectors are of other weights than the others. */
export const weightsChanged = always(
  'bad_gateway',
  'The weights of the model were replaced while it worked on this list. Send it again.',
);

/** The message contains neither balance nor price, since the key's user may not be the account's owner. */
export const insufficientCredit = always('insufficient_credit', INSUFFICIENT);

export const creditUnavailable = always('credit_gate_unavailable', CREDIT_UNKNOWN);

/** `name`: of the parameter; `predicate`: what it must be. */
export function badQuery(name: string, predicate: string): ContractError {
  return contractError('bad_request', `${name} ${predicate}`, { param: name });
}

/** The sums of earlier usage are not known yet. */
export const usageUnknown = always('cold', 'The usage records are still being read.', {
  retryAfterMs: USAGE_RETRY_MS,
});

export function engineFault({ kind }: JobFault): ContractError {
  return kind === 'protocol'
    ? contractError(
        'upstream_contract_violation',
        'The engine broke its protocol and was restarted. Try again shortly.',
      )
    : contractError('bad_gateway', 'The engine failed while it worked on this request. Try again shortly.');
}

/** Not `draining`, which means that nothing ran, so that proxies would send the request again. */
export const shutDownError = always('bad_gateway', 'The server shut down while it worked on this request. Try again.');

export const timedOut = always(
  'timeout',
  'The deadline of the request passed before its answer was complete. ' +
    'Ask for fewer tokens, or name a later deadline if the request named one.',
);

export const internal = always(
  'internal',
  'A fault in this server. Quote the x-request-id of this response when you report it.',
);

/** The refusals of requests with images. */

export function noVision(param: string): ContractError {
  return imageError(`${param} is an image, and this model has no vision. Send text parts only.`, param);
}

export function imageTooLong(param: string, tokens: number, most: number): ContractError {
  return imageError(`${param} has an image of ${tokens} tokens; at most ${most} are taken. Send a smaller one.`, param);
}

export function imageUnreadable(param: string): ContractError {
  return imageError(`${param} has an image that cannot be decoded: its data is damaged.`, param);
}

export const imageFailed = always('bad_gateway', 'An image of this request could not be processed. Try again shortly.');
