import type { Caller, Credentials, Denied } from '../access/identity.js';
import type { LimitGroup, Permit } from '../access/limits.js';
import type { Lease, QueuePlace, Refused } from '../admission/types.js';
import type { ContractError, ErrorCode } from '../domain/errors.js';
import { REFUSALS } from '../domain/refusal-reasons.js';
import { classOf, type ServedTier } from '../domain/service-class.js';
import type { BodyPieces, EventStream, Exchange, FrameOptions, Reply } from '../http/exchange.js';
import { limitFields } from '../http/fields.js';
import type { Log } from '../telemetry/logger.js';
import type { ModelMeter, Operation, RequestPhase } from '../telemetry/model-metrics.js';
import type { RequestTrace } from '../telemetry/tracing.js';
import type { BatchItem } from './batch-item.js';
import * as refusals from './refusals.js';
import type { SeatHolder, Services } from './services.js';
import { Timeline } from './timeline.js';

/** Why a request ends without a complete answer. It is not answered yet: {@link RequestContext.stop} does that. */
export type Stop =
  | {
      readonly kind: 'failed';
      readonly error: ContractError;
      /** In the usage record, if it has one. */
      readonly outcome: 'failed' | 'timeout' | 'refused';
    }
  /** The caller disconnected. */
  | { readonly kind: 'cancelled' }
  /** The seat queue's refusal. */
  | Refused;

/** A stop with an error. `outcome`: `failed` where the service failed at work that it had begun. */
export function failed(error: ContractError, outcome?: 'failed'): Stop {
  return { kind: 'failed', error, outcome: outcome ?? refusedAs(error.code) };
}

/** What a usage record says of a request that ended so. */
export function outcomeOf(stop: Stop): 'cancelled' | 'failed' | 'timeout' | 'refused' {
  if (stop.kind === 'cancelled') return stop.kind;
  return stop.kind === 'failed' ? stop.outcome : refusedAs(REFUSALS[stop.reason].code);
}

function refusedAs(code: ErrorCode): 'timeout' | 'refused' {
  return code === 'timeout' ? code : 'refused';
}

/** What a context needs to know of its route. */
interface ContextRoute {
  /** In the log. */
  readonly name: string;
  /** In metrics and traces; absent: it uses no model. */
  readonly operation?: Operation;
  /** Its own names of a chat's fields, for the field that an error names. */
  readonly fieldNames?: Readonly<Record<string, string>>;
  /** A key is also taken from the field `x-api-key`. */
  readonly takesApiKey?: true;
}

/** One request from its head to its last byte. Every end is reported here, so that each is counted and logged exactly once. */
export class RequestContext {
  readonly exchange: Exchange;
  readonly log: Log;
  readonly #services: Services;
  readonly #route: ContextRoute;
  readonly #closers: (() => void)[] = [];
  #stream: EventStream | undefined;
  #pieces: BodyPieces | undefined;
  #ended = false;
  /** Its part of the key's limits is counted. */
  #settled = false;
  #permit: Permit | undefined;
  #holding: (SeatHolder & { readonly lease: Lease }) | undefined;
  #phase: RequestPhase = 'waiting';
  #reason: Refused['reason'] | undefined;

  readonly times: Timeline;
  /** Undefined if it is not traced. */
  readonly trace: RequestTrace | undefined;

  /** Set if it is a line of a batch. */
  readonly item: BatchItem | undefined;

  caller: Caller | undefined;
  /** The group of the key's limits in which it counts. Undefined for a gateway, which has limits of its own for its callers. */
  limitGroup: LimitGroup | undefined;
  /** The names of what was rejected in place of a caller, for the log. */
  rejected: Denied['known'];
  model: string | undefined;
  /** Clock reading at which the request ends with `timeout`; undefined if it never does. */
  deadlineAt: number | undefined;
  /** Whether a gateway set the deadline for this request. */
  urgent = false;
  /** Clock reading at which the client's own timeout ends; undefined if it sent none. */
  wantedUntil: number | undefined;
  promptTokens = 0;
  cachedTokens = 0;
  completionTokens = 0;
  /** Tokens that the engine drafted for its finished replies, and those of them that these have. */
  draftedTokens = 0;
  acceptedTokens = 0;
  /** The frames of its stream; set before it opens. */
  frames: FrameOptions = {};
  /** Headers of its answer, besides those of every answer; set before it begins. An error has none of them. */
  headers: Readonly<Record<string, string>> = {};

  /** Of the class that it has in the queue; set before it enters that. */
  weight = 0;
  /** The tier that it is served in; undefined if it asks for none. */
  tier: ServedTier | undefined;
  /** Its place in the queue. Returns undefined while it does not wait. */
  place: () => QueuePlace | undefined = () => undefined;

  constructor(exchange: Exchange, route: ContextRoute, services: Services, item?: BatchItem) {
    this.exchange = exchange;
    this.item = item;
    this.#services = services;
    this.#route = route;
    this.times = new Timeline(services.clock);
    this.trace = services.tracing?.begin(exchange.head, this.times.startedAt);
    this.log = services.log.forRequest(exchange.head.requestId);
  }

  /** What identifies the caller. A bearer token comes before the field `x-api-key`, where the route takes that. */
  get credentials(): Credentials {
    const { head } = this.exchange;
    const key = this.#route.takesApiKey === true ? head.header('x-api-key') : undefined;
    if (key === undefined || head.header('authorization') !== undefined) return head;
    const header = (name: string): string | undefined =>
      name === 'authorization' ? `Bearer ${key}` : head.header(name);
    return { address: head.address, header };
  }

  /** Where the request is. Until the engine has started it, it is `waiting` and has used no tokens. */
  get phase(): RequestPhase {
    return this.#phase;
  }

  /** Whether the caller has the first token of a stream, or the first piece of a body. */
  get delivered(): boolean {
    return (this.#stream !== undefined && this.times.begun) || this.#pieces !== undefined;
  }

  /** Where the model's requests are counted; undefined while no model is known. */
  get meter(): ModelMeter | undefined {
    const { operation } = this.#route;
    if (this.model === undefined || operation === undefined) return undefined;
    return this.#services.metrics.requests.meter(operation, this.model);
  }

  /** Calls `fn` when the caller disconnects or the deadline passes: at once if the caller has disconnected. Returns what takes it back. */
  onInterruption(fn: (kind: 'cancelled' | 'deadline') => void): () => void {
    const { gone } = this.exchange;
    const { clock } = this.#services;
    const cancel = (): void => fn('cancelled');
    if (gone.aborted) {
      cancel();
      return () => undefined;
    }
    const cancelTimer =
      this.deadlineAt === undefined ? undefined : clock.after(this.deadlineAt - clock.now(), () => fn('deadline'));
    gone.addEventListener('abort', cancel);
    return () => {
      gone.removeEventListener('abort', cancel);
      cancelTimer?.();
    };
  }

  seated(lease: Lease): void {
    this.times.seated(lease.waitedMs, lease.replica);
    const { model, caller } = this;
    if (model === undefined || !caller) return;
    // Once a request: after a lost engine it is seated again, and its wait includes the first one.
    if (this.times.lost.length === 0) {
      const { waitedMs, predictedMs } = lease;
      this.#services.metrics.queues.seated(model, { waitedMs, predictedMs, class: classOf(this.weight) });
    }
    this.seatedAgain(lease);
  }

  /** It has a seat for the next part of its work. */
  seatedAgain(lease: Lease): void {
    const { model, caller } = this;
    if (model === undefined || !caller) return;
    const { board, clock } = this.#services;
    const label = classOf(this.weight);
    this.#leaveBoard();
    this.#holding = { model, account: caller.account, class: label, since: clock.now(), lease, context: this };
    board.enter(this.#holding);
  }

  /** What it computed on a lent seat that was recalled does not count: it waits again, as if no engine had started it. */
  recalled(): void {
    this.#phase = 'waiting';
    this.cachedTokens = 0;
    this.completionTokens = 0;
    this.times.ran();
  }

  /** The engine has started it, with this many cached tokens of its prompt. */
  started(cachedTokens: number): void {
    this.cached(cachedTokens);
    this.#phase = 'prefilling';
  }

  /** Tokens of its prompt that the engine did not compute. An external server may report more than there are. */
  cached(tokens: number): void {
    this.cachedTokens = Math.min(tokens, this.promptTokens);
  }

  /** A chat's first token came from the engine. `streamed`: the caller gets it now. A decision has none: it stays `prefilling`. */
  firstToken(streamed: boolean): void {
    if (this.times.begun) return;
    this.#phase = 'decoding';
    if (streamed) this.#holding?.lease.begun();
    this.times.firstToken();
    const { prefillMs } = this.times;
    if (prefillMs !== undefined) this.#holding?.lease.prefilled(prefillMs, this.cachedTokens);
    this.meter?.firstToken(this.times.ttftMs ?? 0);
  }

  /** The mean time of a token of its reply, ms. */
  observeTokenMs(ms: number): void {
    this.#holding?.lease.observeTokenMs(ms);
  }

  /** Answers with a whole body and ends the request. */
  reply({ status, headers, body }: Reply): void {
    this.exchange.reply({
      status,
      headers: this.#withLimits(Object.assign({}, this.headers, headers)),
      ...(body !== undefined && { body }),
    });
    this.ended(status);
  }

  /** An answer tells what is left of the limits of its key, if it is counted in them. */
  #withLimits(headers: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> {
    const { caller, limitGroup } = this;
    if (!caller || limitGroup === undefined) return headers;
    const { keyLimits, quotas, date } = this.#services;
    // Read first, so that the time of a reset is never after the midnight that it is.
    const now = date();
    // One header names one quota: of those of tokens, the one with the fewest left.
    const [tokens] = quotas.left(caller).sort((a, b) => a.remaining - b.remaining || b.resetMs - a.resetMs);
    const left = { requests: keyLimits.remaining(caller, limitGroup), tokens };
    if (!left.requests && !left.tokens) return headers;
    const { answerForm } = this.exchange;
    return Object.assign({}, headers, answerForm ? answerForm.limitFields(left, now) : limitFields(left));
  }

  /** The event stream, opened on the first call. From then on a failure can only be reported in a frame. */
  stream(): EventStream {
    if (!this.#stream) {
      const headers = Object.assign({ 'Server-Timing': this.times.header() }, this.headers);
      this.#stream = this.exchange.stream(this.#withLimits(headers), this.frames);
      // A keep-alive of a request that has ended opens none.
      if (!this.#ended) this.#services.metrics.http.streamOpened();
    }
    return this.#stream;
  }

  /** Sends a waiting request's place as a comment of its stream; returns whether it waits. Undefined if the caller does not ask. */
  get tellPlace(): (() => boolean) | undefined {
    if (this.exchange.head.header('x-ra-queue') !== '1') return undefined;
    return () => {
      const place = this.place();
      if (place === undefined) return false;
      const { position, expectedWaitMs: ms } = place;
      this.stream().comment(`queue position=${position}${ms === undefined ? '' : ` wait_ms=${Math.ceil(ms)}`}`);
      return true;
    };
  }

  /** The answer's body in pieces, opened on the first call. From then on a failure closes the connection. */
  pieces(): BodyPieces {
    return (this.#pieces ??= this.exchange.pieces(
      this.#withLimits({ 'Server-Timing': this.times.header(), ...this.headers }),
    ));
  }

  /** Ends the request with the error of `stop`, or as cancelled where the caller has disconnected. */
  stop(stop: Stop): void {
    if (stop.kind === 'failed') this.#fail(stop.error);
    else if (stop.kind === 'cancelled') this.cancelled();
    else {
      if (this.model !== undefined) this.#services.metrics.queues.refused(this.model, stop.reason, stop.retry);
      this.#reason = stop.reason;
      const starting = this.#stillLoads(stop);
      if (starting) this.#fail(starting);
      else this.#fail(refusals.refused(stop), stop.place && placeFields(stop.place));
    }
  }

  /** The error of a request that waited for its model to load, and for whose seat it waits no more. */
  #stillLoads({ reason }: Refused): ContractError | undefined {
    const engine = this.#services.models.get(this.model ?? '')?.engine;
    return (reason === 'wait' || reason === 'no-engine') && engine && engine.state !== 'ready'
      ? refusals.starting(engine)
      : undefined;
  }

  /** An ordinary response, or the one error frame of a stream that is open. It names the field as the caller sent it. */
  #fail(found: ContractError, headers: Readonly<Record<string, string>> = {}): void {
    const param = found.param === null ? undefined : this.#route.fieldNames?.[found.param];
    const error = param === undefined ? found : Object.assign({}, found, { param });
    if (this.#stream) {
      this.#stream.fail(error, this.times.trailer());
      this.ended(200, error);
      return;
    }
    // Nothing of a batch's line is sent before its end.
    if (this.#pieces && !this.item) {
      this.#pieces.abort();
      this.ended(200, error);
      return;
    }
    this.#settle(false);
    const timing = error.status === 429 ? { 'Server-Timing': this.times.header() } : {};
    this.exchange.fail(error, this.#withLimits(Object.assign({}, timing, headers)));
    this.ended(this.exchange.answerForm?.statusOf(error) ?? error.status, error);
  }

  /** The caller disconnected. */
  cancelled(): void {
    if (this.model !== undefined) this.#services.metrics.requests.cancelled(this.model, this.#phase);
    this.ended(499);
  }

  /** Keeps the permit of the key's limits until the request ends. */
  holdsPermit(permit: Permit): void {
    // A store's answer may come after the request has failed.
    if (this.#settled) permit.end(false);
    else this.#permit = permit;
  }

  /**
   * A request that an engine started counts against its key's limit per minute, however it ended; so does an answered request that
   * needs no engine. Refused requests do not count. Only the first call counts.
   */
  #settle(answered: boolean): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#permit?.end(answered || this.#phase !== 'waiting');
    this.#permit = undefined;
  }

  #leaveBoard(): void {
    if (this.#holding) this.#services.board.leave(this.#holding);
    this.#holding = undefined;
  }

  /** Calls `fn` when the route is done with the request; functions are called in reverse order. */
  onClose(fn: () => void): void {
    this.#closers.push(fn);
  }

  /**
   * The route is done: releases what the request still holds. If the request has not ended by now, the handler failed, and the server
   * answers with an internal error, as which it is counted. Idempotent.
   */
  close(): void {
    for (const fn of this.#closers.splice(0).reverse()) fn();
    this.#pieces?.abort();
    this.ended((this.#stream ?? this.#pieces) ? 200 : 500, refusals.internal());
  }

  /** Its answer is over, though what is recorded of it may still be written. */
  get hasEnded(): boolean {
    return this.#ended;
  }

  /** The answer is complete, or its caller has disconnected (499). Only the first call counts. */
  ended(status: number, error?: ContractError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#leaveBoard();
    this.#settle(status === 200 && !error);
    if (this.#stream) this.#services.metrics.http.streamClosed();
    const endedAt = this.#services.clock.now();
    const code = status === 499 ? 'request_cancelled' : error?.code;
    this.meter?.ended(endedAt - this.times.startedAt, code);
    this.#report({ status, error, code, endedAt });
  }

  /** Writes its one log line and ends its trace. */
  #report({ status, error, code, endedAt }: RequestEnd): void {
    const { log, times, caller, rejected, trace, model, promptTokens, cachedTokens, completionTokens } = this;
    const { draftedTokens, acceptedTokens } = this;
    const { name, operation } = this.#route;
    log.info('request', {
      route: name,
      status,
      durationMs: Math.round(endedAt - times.startedAt),
      queueMs: Math.round(times.waitedMs(endedAt)),
      promptTokens,
      cachedTokens,
      completionTokens,
      ...(draftedTokens > 0 && { draftedTokens, acceptedTokens }),
      ...(code !== undefined && { code }),
      ...(model !== undefined && { model }),
      ...(times.ttftMs !== undefined && { ttftMs: Math.round(times.ttftMs) }),
      ...(caller && { account: caller.account, keyId: caller.keyId }),
      ...(rejected?.account !== undefined && { account: rejected.account }),
      ...(rejected?.keyId !== undefined && { keyId: rejected.keyId }),
      ...trace?.ids,
    });
    const { method, scheme, route } = this.exchange.head;
    trace?.ended({
      method,
      scheme,
      route,
      operation,
      model,
      startedAt: times.startedAt,
      authorized: times.authorization,
      receivedAt: times.receivedAt,
      lost: times.lost,
      last: times.last,
      endedAt,
      // The 200 of an answer that was begun is sent, however it ended.
      status: this.#stream === undefined && this.#pieces === undefined ? status : 200,
      outcome: status === 499 ? 'cancelled' : traceOutcome(error),
      code,
      reason: this.#reason,
      promptTokens,
      cachedTokens,
      completionTokens,
    });
  }
}

function placeFields({ position, expectedWaitMs: ms }: QueuePlace): Readonly<Record<string, string>> {
  return { 'x-queue-position': `${position}`, ...(ms !== undefined && { 'x-expected-wait-ms': `${Math.ceil(ms)}` }) };
}

interface RequestEnd {
  /** 499: the caller disconnected. */
  readonly status: number;
  readonly error: ContractError | undefined;
  readonly code: ErrorCode | undefined;
  /** Clock reading. */
  readonly endedAt: number;
}

/** Statuses from 500 on are faults of the service, as OpenTelemetry's conventions for servers define. */
function traceOutcome(error: ContractError | undefined): 'done' | 'refused' | 'failed' {
  if (!error) return 'done';
  return error.status < 500 ? 'refused' : 'failed';
}
