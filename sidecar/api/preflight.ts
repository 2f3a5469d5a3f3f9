/**
 * The way in, the same for every route that uses a model: the checks of contract.md section 1 in their order, cheapest
 * first, down to a place in the model's queue, and from there to a seat. A refusal on the way answers the caller, gives
 * back what was taken and returns undefined.
 */
import { fingerprint, NO_CLAIM, parseIdempotencyKey, type Claim } from '../access/idempotency.js';
import { inCohort, mayCall, mayUse, type Caller } from '../access/identity.js';
import type { LimitGroup } from '../access/limits.js';
import type { Lease, Work } from '../admission/seat-queue.js';
import type { Params, Route } from '../contracts/requests.js';
import type { ContractError } from '../domain/errors.js';
import type { Body } from '../http/exchange.js';
import type { NoResult, OpenPrompt, Refusal, Tokenized } from '../prompts/prompt-host.js';
import { AbortHandle, type Signal } from '../lib/abort.js';
import { timeAllowed } from './deadline.js';
import * as refusals from './refusals.js';
import type { HostedModel, Services } from './services.js';
import type { RequestContext } from './request-context.js';

/** Whole request bodies on both decision routes (spec.md, Limits). */
export const DECISION_BODY_BYTES = 1024 * 1024;

/** A request that may run: its caller, its model, and its body, still open. */
export interface PreparedRequest<P extends Params> {
  readonly caller: Caller;
  readonly model: HostedModel;
  readonly params: P;
  readonly prompt: OpenPrompt;
  /** Body bytes. */
  readonly bytes: number;
  /** What its Idempotency-Key holds; the caller ends it. */
  readonly claim: Claim;
  /** Lets go of the body, which nothing needs once it is tokens. Idempotent; the caller sees to it. */
  release(): void;
}

export type Tokens = Exclude<Tokenized, Refusal | NoResult>;

type WholeBody = Extract<Body, { readonly kind: 'body' }>;

/** A job for the engine and what the queue is to know of it. */
export interface Planned<T> {
  readonly work: Work;
  readonly job: T;
}

/** Everything up to the place in the queue. Undefined: refused and answered. */
export async function preflight<P extends Params>(
  context: RequestContext,
  route: P['route'],
  services: Services,
): Promise<PreparedRequest<P> | undefined> {
  try {
    return await pass<P>(context, route, services);
  } catch (fault) {
    context.abandoned();
    throw fault;
  }
}

async function pass<P extends Params>(
  context: RequestContext,
  route: P['route'],
  services: Services,
): Promise<PreparedRequest<P> | undefined> {
  const shut = closed(services);
  if (shut) {
    context.fail(shut);
    return undefined;
  }
  const caller = await admit(context, route === 'chat' ? 'chat' : 'decisions', services);
  if (!caller) return undefined;
  const body = await readBody(context, route, services, caller);
  if (!body) return undefined;
  const prompt = services.prompts.open(route, body.bytes, caller);
  const release = (): void => {
    prompt.close();
    body.release();
  };
  const fit = await check<P>(context, route, services, caller, prompt);
  const claim = fit && (await claimKey(context, route, services, caller, body.bytes));
  if (!claim) {
    release();
    return undefined;
  }
  return { caller, prompt, bytes: body.bytes.byteLength, claim, release, ...fit };
}

/** Why no work is taken at all now. */
export function closed(services: Services): ContractError | undefined {
  if (services.draining()) return refusals.draining(refusals.DRAIN_RETRY_MS);
  return services.spool.health.ok ? undefined : refusals.spoolUnhealthy();
}

/** Checks the key. Undefined: refused and answered. */
async function identify(context: RequestContext, services: Services): Promise<Caller | undefined> {
  const from = services.clock.now();
  const found = await services.identity.resolve(context.exchange.head, context.trace?.headers);
  // Behind a gateway it is the gateway that authorized.
  const vouched = found.kind === 'caller' && found.vouched === true;
  if (!vouched) context.times.authorized(from);
  if (found.kind === 'denied') {
    context.fail(refusals.denied(found));
    return undefined;
  }
  context.caller = found;
  return found;
}

/**
 * Checks the key, and after it the key's limits: a place in them is the request's until it ends. Undefined: refused and
 * answered. A gateway that vouches for a caller has counted it already.
 */
export async function admit(
  context: RequestContext,
  group: LimitGroup,
  services: Services,
): Promise<Caller | undefined> {
  const caller = await identify(context, services);
  if (!caller || caller.vouched) return caller;
  const taken = services.keyLimits.take(caller, group);
  if (taken.kind === 'limited') {
    context.fail(refusals.limited(taken.by, taken.retryAfterMs));
    return undefined;
  }
  context.holds(taken.place);
  const waitMs = group === 'models' ? 0 : services.quotas.waitMs(caller);
  if (waitMs === 0) return caller;
  context.fail(refusals.quotaExceeded(waitMs));
  return undefined;
}

/** Content type and size. */
async function readBody(
  context: RequestContext,
  route: Route,
  services: Services,
  caller: Caller,
): Promise<WholeBody | undefined> {
  const { exchange } = context;
  if (!isJson(exchange.head.header('content-type'))) {
    context.fail(refusals.wrongContentType());
    return undefined;
  }
  const limit = route === 'chat' ? services.limits.chatBytes : DECISION_BODY_BYTES;
  const body = await exchange.body(limit);
  if (body.kind === 'body') {
    context.times.receivedAt = body.receivedAt;
    const timeMs = timeAllowed(exchange.head, caller, services.limits);
    if (timeMs !== undefined) context.deadlineAt = body.receivedAt + timeMs;
    return body;
  }
  if (body.kind === 'gone') context.left('waiting');
  else context.fail(body.kind === 'too-large' ? refusals.tooLarge(limit) : refusals.noRoom());
  return undefined;
}

/** Schema, entitlement, endpoint against the model's kind, cold. An unloaded model is woken by who may call it. */
async function check<P extends Params>(
  context: RequestContext,
  route: P['route'],
  services: Services,
  caller: Caller,
  prompt: OpenPrompt,
): Promise<Pick<PreparedRequest<P>, 'model' | 'params'> | undefined> {
  const checked = await prompt.check(context.exchange.gone);
  if (checked.kind === 'checked') {
    const model = services.models.get(checked.params.model);
    const denied = unentitled(caller, route, model);
    if (!model || denied) {
      context.fail(denied ?? refusals.notEntitled());
      return undefined;
    }
    // From here on the model's metrics tell of this request, whatever becomes of it.
    context.model = model.id;
    const error = unfit(route, model);
    // The route asked for is the route that was parsed.
    if (!error) return { model, params: checked.params as P };
    context.fail(error);
  } else if (checked.kind === 'aborted') context.left('waiting');
  else context.fail(checked.kind === 'invalid' ? checked.error : refusals.internal());
  return undefined;
}

function unentitled(caller: Caller, route: Route, model: HostedModel | undefined): ContractError | undefined {
  if (!model || !mayCall(caller.models, model.id)) return refusals.notEntitled();
  if (!inCohort(caller, model.cohort)) return refusals.notInCohort();
  return mayUse(caller, route) ? undefined : refusals.routeNotEntitled();
}

function unfit(route: Route, model: HostedModel): ContractError | undefined {
  if ((route === 'chat') !== (model.kind === 'chat')) return refusals.wrongEndpoint(model.kind);
  if (model.engine.state === 'ready') return undefined;
  model.engine.wake();
  return refusals.cold(model.engine);
}

/**
 * The Idempotency-Key, last before the place in the queue: a request that is refused for what it is never takes its key,
 * and one that was run already is told so however full the queue is.
 */
async function claimKey(
  context: RequestContext,
  route: Route,
  services: Services,
  caller: Caller,
  body: Uint8Array,
): Promise<Claim | undefined> {
  const header = context.exchange.head.header('idempotency-key');
  if (header === undefined) return NO_CLAIM;
  const key = parseIdempotencyKey(header);
  if (key === undefined) {
    context.fail(refusals.malformedIdempotencyKey());
    return undefined;
  }
  const claimed = services.idempotency.claim(caller.account, key, await fingerprint(route, body));
  if (claimed.kind === 'claimed') return claimed.claim;
  context.fail(refusals.keyReused(claimed.kind));
  return undefined;
}

/**
 * From a place to a seat. The place is taken before anything is tokenized and cannot be dispatched until `plan` has
 * passed the last check; the body is let go of before the wait. The lease returned is the caller's to end.
 */
export async function takeSeat<P extends Params, T>(
  context: RequestContext,
  arrival: PreparedRequest<P>,
  seatsWanted: number,
  plan: (tokens: Tokens) => Planned<T> | ContractError,
): Promise<{ readonly lease: Lease; readonly job: T } | undefined> {
  const { caller, model, params, prompt, bytes } = arrival;
  const ticket = model.queue.enter({
    account: caller.account,
    ...('user' in params && { user: params.user }),
    weight: caller.weight,
    bytes,
    ...(context.deadlineAt !== undefined && { deadlineAt: context.deadlineAt }),
    seatsWanted,
  });
  if ('kind' in ticket) {
    context.refused(ticket);
    return undefined;
  }
  // For as long as the request lives: a place that was given back waits a second time. Once seated it does nothing.
  const { gone } = context.exchange;
  if (gone.aborted) ticket.cancel();
  else gone.addEventListener('abort', () => ticket.cancel());
  // A place can be lost before it is ready: its deadline, a drain, a caller that left. Then its prompt is wanted no more.
  const over = new AbortHandle();
  let preparing = true;
  void ticket.outcome.then(() => preparing && over.abort());
  const planned = await prepare(prompt, over, plan);
  preparing = false;
  arrival.release();
  if ('status' in planned) {
    context.fail(planned);
    ticket.cancel();
    return undefined;
  }
  if ('job' in planned) ticket.ready(planned.work);
  else ticket.cancel();
  const lease = await context.awaitSeat(ticket.outcome);
  return lease && 'job' in planned ? { lease, job: planned.job } : undefined;
}

/** The prompt as a job, why there is none, or `aborted`: the signal fired. */
async function prepare<T>(
  prompt: OpenPrompt,
  signal: Signal,
  plan: (tokens: Tokens) => Planned<T> | ContractError,
): Promise<Planned<T> | ContractError | { readonly kind: 'aborted' }> {
  const tokens = await prompt.tokenize(signal);
  switch (tokens.kind) {
    case 'aborted':
      return tokens;
    case 'failed':
      return refusals.internal();
    case 'invalid':
      return tokens.error;
    default:
      return plan(tokens);
  }
}

export function isJson(contentType: string | undefined): boolean {
  return contentType !== undefined && /^application\/json\s*(;|$)/i.test(contentType.trim());
}
