/**
 * The checks before a request enters a model's queue, the same for every route that uses a model: those of
 * docs/contract.md#order-of-checks, cheapest first. The place in the queue follows in run.ts. Nothing is answered here: a refusal is
 * returned, and what was reserved before it is released when the context closes.
 */
import { hash } from 'node:crypto';
import { fingerprint, NO_CLAIM, parseIdempotencyKey, type Claim } from '../access/idempotency.js';
import { inCohort, mayCall, mayUse, type Caller } from '../access/identity.js';
import type { FleetLimitResult, LimitGroup } from '../access/limits.js';
import type { Params, BodyForm } from '../contracts/requests.js';
import type { ContractError } from '../domain/errors.js';
import { classOf, type ServedTier } from '../domain/service-class.js';
import type { Body } from '../http/body.js';
import type { RequestHead } from '../http/exchange.js';
import type {
  Failed,
  Checked,
  ModelPromptVersion,
  OpenBody,
  PromptMaker,
  RequestImage,
  Tokenized,
} from '../prompts/prompt-maker.js';
import * as refusals from './refusals.js';
import { failed, type RequestContext, type Stop } from './request-context.js';
import type { RouteChecks } from './route.js';
import type { HostedModel, Services } from './services.js';
import type { SoldTier } from './usage-session.js';
import type { Signal } from '../lib/abort.js';
import type { WeightedAccount } from '../lib/fair-share.js';

/** A request that may run: its caller, its model, and its body, still open. */
export interface PreparedRequest<P extends Params> {
  readonly kind: 'prepared';
  readonly caller: Caller;
  readonly model: HostedModel;
  readonly params: P;
  readonly body: RequestBody;
  /** The claim of its Idempotency-Key. */
  readonly claim: Claim;
}

/**
 * Runs all checks up to the place in the queue. Returns the prepared request, or why there is none. What it reserves for the request is
 * released when the context closes.
 */
export async function preflight<P extends Params>(
  context: RequestContext,
  route: RouteChecks,
  services: Services,
): Promise<PreparedRequest<P> | Stop> {
  const closed = notServing(services);
  if (closed) return failed(closed);
  const ofBatch = (context.caller = context.item?.caller);
  const caller = ofBatch ?? (await identify(context, services));
  if (caller.kind !== 'caller') return caller;
  const within = ofBatch ? undefined : checkLimits(context, route.operation, services, caller);
  const refused = within instanceof Promise ? undefined : within;
  if (refused) return refused;
  const receiving = readBody(context, route, services, caller);
  if (within instanceof Promise) {
    // A store answers while the body arrives, and comes before what may be wrong with the body. A refusal frees the body.
    receiving.catch(() => undefined);
    const limited = await within;
    if (limited) return limited;
  }
  const received = await receiving;
  if (received.kind !== 'body') return received;
  const body = new RequestBody(received, route.form(services), caller, services.prompts);
  context.onClose(() => body.free());
  const checked = await checkModel<P>(context, route, services, caller, body);
  if ('kind' in checked) return checked;
  const claim = await claimKey(context, route, services, caller, body);
  if ('kind' in claim) return claim;
  context.onClose(() => claim.release());
  return { kind: 'prepared', caller, body, claim, ...checked };
}

/** A stop for a body of which the prompt host made nothing. The log has the reason, the answer has none. */
export function promptFailed({ log }: RequestContext, { reason, fault }: Omit<Failed, 'kind'>): Stop {
  log.error('prompt failed', { reason, ...(fault && { childFault: fault }) });
  return failed(refusals.internal());
}

/** Why no request is accepted at present; undefined if requests are. */
function notServing(services: Services): ContractError | undefined {
  if (services.draining()) return refusals.draining(refusals.DRAIN_RETRY_MS);
  return services.spool.health.ok ? undefined : refusals.spoolUnhealthy();
}

/** Checks the key, and none of its limits. */
export async function identify(context: RequestContext, services: Services): Promise<Caller | Stop> {
  const from = services.clock.now();
  const found = await services.identity.resolve(context.credentials, context.trace?.headers);
  // A gateway has authorized its callers itself.
  const vouched = found.kind === 'caller' && found.vouched === true;
  if (!vouched) context.times.authorized(from);
  if (found.kind === 'denied') {
    context.rejected = found.known;
    return failed(refusals.denied(found));
  }
  context.caller = found;
  return found;
}

/**
 * Checks the key and then the key's limits; the request holds a permit of them until it ends. A gateway has already checked its callers'
 * limits.
 */
export async function authorize(
  context: RequestContext,
  group: LimitGroup,
  services: Services,
): Promise<Caller | Stop> {
  const caller = await identify(context, services);
  if (caller.kind !== 'caller') return caller;
  return (await checkLimits(context, group, services, caller)) ?? caller;
}

/** Why the key's limits refuse the request; undefined if they do not. A promise if a store counts them. */
function checkLimits(
  context: RequestContext,
  group: LimitGroup,
  services: Services,
  caller: Caller,
): Stop | undefined | Promise<Stop | undefined> {
  if (caller.vouched) return undefined;
  context.limitGroup = group;
  const within = (taken: FleetLimitResult): Stop | undefined => {
    if (taken.kind === 'unavailable') return failed(refusals.limitsUnknown(taken.retryAfterMs));
    if (taken.kind === 'limited') return failed(refusals.limited(taken.by, taken.retryAfterMs));
    context.holdsPermit(taken.permit);
    // What it needs is known once its prompt is made; a request for which nothing is left ends before its body is read.
    const problem = group === 'models' ? undefined : services.quotas.problem(caller, 1);
    return problem && failed(refusals.quotaExceeded(problem));
  };
  const taken = services.keyLimits.take(caller, group);
  return taken instanceof Promise ? taken.then(within) : within(taken);
}

/** Checks content type and size, and reads the body. */
async function readBody(
  context: RequestContext,
  route: RouteChecks,
  services: Services,
  caller: Caller,
): Promise<Body | Stop> {
  const { exchange } = context;
  if (!isJson(exchange.head.header('content-type'))) return failed(refusals.wrongContentType());
  if (isEncoded(exchange.head.header('content-encoding'))) return failed(refusals.encodedBody());
  const limit = route.maxBytes(services.limits);
  const body = await exchange.body(limit);
  if (body.kind === 'body') {
    context.times.receivedAt = body.receivedAt;
    const timeMs = timeAllowed(exchange.head, caller, services.limits);
    // A batch has a window of its own.
    if (timeMs !== undefined && !context.item) context.deadlineAt = body.receivedAt + timeMs;
    context.urgent = namesDeadline(exchange.head, caller);
    const clientMs = clientTimeoutMs(exchange.head);
    if (clientMs !== undefined) context.wantedUntil = body.receivedAt + clientMs;
    return body;
  }
  if (body.kind === 'gone') return { kind: 'cancelled' };
  return failed(refusals.noBody(body.kind, limit));
}

/** Checks the contract, the entitlement, the model's kind and its state. A request that may use an unloaded model loads it. */
async function checkModel<P extends Params>(
  context: RequestContext,
  route: RouteChecks,
  services: Services,
  caller: Caller,
  body: RequestBody,
): Promise<Pick<PreparedRequest<P>, 'model' | 'params'> | Stop> {
  const checked = await body.check(context.exchange.gone, context.item !== undefined);
  if (checked.kind === 'aborted') return { kind: 'cancelled' };
  if (checked.kind === 'failed') return promptFailed(context, checked);
  if (checked.kind === 'refused') return failed(checked.error);
  const model = entitledModel(caller, route, services, checked.params.model);
  if ('code' in model) return failed(model);
  // From here on the request counts in the model's metrics, however it ends.
  context.model = model.id;
  const error = modelProblem(route, model);
  // The body was parsed for this route.
  return error ? failed(error) : { model, params: checked.params as P };
}

/** The model of this id, or why the caller may not use it by this route. */
export function entitledModel(
  caller: Caller,
  { entitlement, kind }: Pick<RouteChecks, 'entitlement' | 'kind'>,
  { models }: Pick<Services, 'models'>,
  id: string,
): HostedModel | ContractError {
  const model = models.get(id);
  if (!model || !mayCall(caller.models, id)) return refusals.notEntitled(kind);
  if (!inCohort(caller, model.cohort)) return refusals.notInCohort();
  return mayUse(caller, entitlement) ? model : refusals.routeNotEntitled();
}

function modelProblem({ kind }: RouteChecks, model: HostedModel): ContractError | undefined {
  if (kind !== model.kind) return refusals.wrongEndpoint(model.kind);
  if (model.engine.state === 'ready') return undefined;
  model.engine.wake();
  const { state, readyInMs } = model.engine;
  return state === 'cold' && readyInMs <= (model.loadWaitMs ?? -1) ? undefined : refusals.starting(model.engine);
}

/**
 * Claims the Idempotency-Key, last before the place in the queue: a request that fails a check never uses up its key, and a repeated
 * request is refused as such however full the queue is.
 */
async function claimKey(
  context: RequestContext,
  { name }: RouteChecks,
  services: Services,
  caller: Caller,
  { received: { bytes } }: RequestBody,
): Promise<Claim | Stop> {
  const header = context.exchange.head.header('idempotency-key');
  if (header === undefined) return NO_CLAIM;
  const key = parseIdempotencyKey(header);
  if (key === undefined) return failed(refusals.malformedIdempotencyKey());
  if (bytes === undefined) return { kind: 'cancelled' };
  const claimed = await services.idempotency.claim(caller.account, key, await fingerprint(name, bytes));
  if (claimed.kind === 'unavailable') return failed(refusals.keyUnknown(claimed.retryAfterMs));
  return claimed.kind === 'claimed' ? claimed.claim : failed(refusals.keyReused(claimed.kind));
}

/** Whether a body has to be decoded first. A proxy that does so would see another body than this server. */
function isEncoded(contentEncoding = ''): boolean {
  return !['', 'identity'].includes(contentEncoding.toLowerCase());
}

export function isJson(contentType: string | undefined): boolean {
  return contentType !== undefined && /^application\/json\s*(;|$)/i.test(contentType.trim());
}

/** Whole milliseconds, at most a little over a day; 0 has passed already. */
const MILLISECONDS = /^(?:0|[1-9][0-9]{0,7})$/;

/**
 * How long a request may take from its body's last byte on, ms: the operator's limit, or that of a gateway in `x-ra-deadline-ms` if it is
 * shorter. Undefined if there is no limit. The header counts only on requests that come through a gateway, since a request with a short
 * deadline goes before others of its account.
 */
export function timeAllowed(
  head: Pick<RequestHead, 'header'>,
  { vouched }: Pick<Caller, 'vouched'>,
  { timeoutMs }: Pick<Services['limits'], 'timeoutMs'>,
): number | undefined {
  const asked = vouched === true ? askedFor(head) : undefined;
  const allowed = timeoutMs > 0 ? timeoutMs : undefined;
  if (asked === undefined || allowed === undefined) return asked ?? allowed;
  return Math.min(asked, allowed);
}

/** Whether a gateway set a deadline for this request, which then goes before others of its account. */
export function namesDeadline(head: Pick<RequestHead, 'header'>, { vouched }: Pick<Caller, 'vouched'>): boolean {
  return vouched === true && askedFor(head) !== undefined;
}

/** Seconds, with or without a fraction, below 12 days. */
const SECONDS = /^[0-9]{1,6}(?:\.[0-9]{1,6})?$/;

/**
 * How long the caller's client waits for its answer, ms, from the header that OpenAI's clients send if a call has a timeout. It is not
 * checked and does not change the order: it only bounds the request's time in the queue. Undefined if there is no such time, or it is less
 * than a second, which the clients round to 0.
 */
export function clientTimeoutMs(head: Pick<RequestHead, 'header'>): number | undefined {
  const value = head.header('x-stainless-timeout');
  const ms = value !== undefined && SECONDS.test(value) ? Number(value) * 1000 : 0;
  return ms > 0 ? ms : undefined;
}

/** Headers by which coding agents name their sessions: Claude Code, Codex, then others. Not `x-client-request-id`, which names one request. */
const SESSION_HEADERS = ['x-claude-code-session-id', 'session-id', 'x-session-id', 'x-opencode-session'];

/** Characters of base64url in a session's name: 132 bits, so that two of them never have the same one. */
const SESSION_NAME_LENGTH = 22;

/**
 * The name of the session that a request is a turn of, by the id that its client sends in the body or a header: the same for equal ids of
 * one account. The id itself is not kept. Undefined if it sends none.
 */
export function sessionNameOf(
  head: Pick<RequestHead, 'header'>,
  params: { readonly sessionId?: string },
  account: string,
): string | undefined {
  const id =
    params.sessionId ??
    SESSION_HEADERS.map((name) => head.header(name)).find((value) => value !== undefined && value !== '');
  if (id === undefined) return undefined;
  return hash('sha256', JSON.stringify([account, id]), 'base64url').slice(0, SESSION_NAME_LENGTH);
}

/** The tier that a request is served in; undefined: the default one, since it asks for none, or its key may not use it, or it has no price. */
export function tierFor(
  params: { readonly tier?: ServedTier },
  { tiers }: Pick<Caller, 'tiers'>,
  { id }: Pick<HostedModel, 'id'>,
  { pricing, date }: Pick<Services, 'pricing' | 'date'>,
): SoldTier | undefined {
  const { tier: name } = params;
  if (name === undefined || name === 'default' || tiers?.has(name) !== true) return undefined;
  const tariff = pricing.tierTariff(id, name, date().getTime());
  return tariff && { name, tariff };
}

/**
 * Whether nobody waits for this request, so that it may run on a lent seat (admission/lent.ts): its class is `batch`. A request for a stream
 * may not: when the seat is recalled, its caller has already received a part of the reply.
 */
export function canUseLentSeat({ weight }: Pick<Caller, 'weight'>, streams: boolean): boolean {
  return classOf(weight) === 'batch' && !streams;
}

/** Anything but whole milliseconds is ignored: the header is a gateway's and not part of the contract. */
function askedFor(head: Pick<RequestHead, 'header'>): number | undefined {
  const value = head.header('x-ra-deadline-ms');
  return value !== undefined && MILLISECONDS.test(value) ? Number(value) : undefined;
}

/** Bytes that are hashed at each end of a body; a shorter body is hashed whole. */
const END_BYTES = 32 * 1024;

/**
 * A request's body and the prompts made of it. The body is kept until an engine has begun a prompt: before that another replica, whose
 * tokenizer or template differs, may need a new prompt.
 */
class RequestBody {
  readonly received: Body;
  readonly #form: BodyForm;
  readonly #owner: WeightedAccount;
  readonly #prompts: PromptMaker;
  #open: OpenBody;
  /** Its prompt, if that was made as the body was checked. */
  #made: Tokenized | undefined;
  /** Equal for requests of one route with the same body. Of a long body only its ends and its length are compared. */
  readonly digest: string;

  /** `owner`: whose host time it is. */
  constructor(received: Body, form: BodyForm, owner: WeightedAccount, prompts: PromptMaker) {
    this.received = received;
    this.#form = form;
    this.#owner = owner;
    this.#prompts = prompts;
    this.#open = prompts.open(form, received, owner);
    this.digest = digestOf(form, received);
  }

  /** Parses and validates it. `apart`: not on the event loop. */
  async check(signal: Signal, apart: boolean): Promise<Checked> {
    const checked = await this.#open.check(signal, apart);
    if (checked.kind === 'checked') this.#made = checked.made;
    return checked;
  }

  /** Makes its prompt. Call it after `check` succeeded. From then on the body stays in memory only while there is room for it. */
  async tokenize(signal: Signal): Promise<Tokenized> {
    const made = this.#made ?? (await this.#open.tokenize(signal));
    this.#made = undefined;
    this.#open.close();
    this.received.setSpare();
    this.imagesHeld('images' in made ? made.images : []);
    return made;
  }

  /** Makes its prompt once more, of this version. Returns undefined if the body was freed. */
  async tokenizeAgain(wanted: ModelPromptVersion | undefined, signal: Signal): Promise<Tokenized | undefined> {
    if (!this.received.setNeeded()) return undefined;
    this.#open = this.#prompts.open(this.#form, this.received, this.#owner, wanted);
    return this.tokenize(signal);
  }

  /** Of the prompt's images these are still needed. Their files count as the body did. */
  imagesHeld(images: readonly RequestImage[]): void {
    this.received.countDerived(images.reduce((sum, { bytes }) => sum + bytes.byteLength, 0));
  }

  /** The request has ended. Idempotent. */
  free(): void {
    this.#open.close();
    this.received.free();
  }
}

function digestOf(form: BodyForm, { bytes, length }: Body): string {
  if (bytes === undefined) return '';
  if (length <= 2 * END_BYTES) return `${form} ${length} ${hash('sha256', bytes, 'base64url')}`;
  const ends = Buffer.concat([bytes.subarray(0, END_BYTES), bytes.subarray(-END_BYTES)]);
  const digest = hash('sha256', ends, 'base64url');
  ends.fill(0);
  return `${form} ${length} ${digest}`;
}
