import type { Caller, Denied } from '../access/identity.js';
import type { Permit } from '../access/limits.js';
import type { Lease, Refused, TicketOutcome } from '../admission/seat-queue.js';
import { contractError, type ContractError } from '../domain/errors.js';
import type { EventStream, Exchange, FrameOptions, Reply } from '../http/exchange.js';
import { classOf } from '../domain/service-class.js';
import type { Log } from '../telemetry/logger.js';
import type { RequestPhase, ModelMeter } from '../telemetry/model-metrics.js';
import type { RequestTrace } from '../telemetry/tracing.js';
import * as refusals from './refusals.js';
import { OPERATIONS, reportEnd, type RouteName } from './request-report.js';
import type { SeatHolder } from './seat-board.js';
import type { Services } from './services.js';
import { Timeline } from './timeline.js';

/** Why a request ends before its job ran. It is not answered yet: the route passes it to {@link RequestContext.stop}. */
export type Stop =
  | { readonly kind: 'failed'; readonly error: ContractError }
  /** The caller disconnected. */
  | { readonly kind: 'cancelled' }
  /** The seat queue's refusal. */
  | Refused;

/**
 * One request from its head to its last byte: its times, and how it ended. Every end of a request is reported here, so that
 * each is counted and logged exactly once.
 */
export class RequestContext {
  readonly exchange: Exchange;
  readonly log: Log;
  readonly #services: Services;
  readonly #route: RouteName;
  readonly #closers: (() => void)[] = [];
  #stream: EventStream | undefined;
  #ended = false;
  #permit: Permit | undefined;
  #holding: (SeatHolder & { readonly lease: Lease }) | undefined;
  /** Why the queue refused. */
  #reason: Refused['reason'] | undefined;

  /** The times of its phases. */
  readonly times: Timeline;
  /** Undefined: it is not traced. */
  readonly trace: RequestTrace | undefined;

  caller: Caller | undefined;
  /** The known key that was rejected in place of a caller, for the log. */
  rejected: Denied['known'];
  model: string | undefined;
  /** Clock reading at which the request ends with `timeout`; undefined: never. */
  deadlineAt: number | undefined;
  /** Whether a gateway set the deadline for this request. */
  urgent = false;
  /** Clock reading at which the client's own timeout ends; undefined: it sent none. */
  wantedUntil: number | undefined;
  /** Where the request is. Until the engine has started it, it is `waiting` and has used no tokens. */
  phase: RequestPhase = 'waiting';
  promptTokens = 0;
  cachedTokens = 0;
  completionTokens = 0;
  /** The route's own names of a chat's fields, for the field that an error names. */
  fieldNames: Readonly<Record<string, string>> = {};
  /** The frames of its stream; set before it opens. */
  frames: FrameOptions = {};

  constructor(exchange: Exchange, route: RouteName, services: Services) {
    this.exchange = exchange;
    this.#services = services;
    this.#route = route;
    this.times = new Timeline(services.clock);
    this.trace = services.tracing?.begin(exchange.head, this.times.startedAt);
    this.log = services.log.forRequest(exchange.head.requestId);
  }

  /** Whether the caller has the first token of a stream. */
  get delivered(): boolean {
    return this.#stream !== undefined && this.times.begun;
  }

  /** Where the model's requests are counted; undefined while no model is known. */
  get meter(): ModelMeter | undefined {
    if (this.model === undefined) return undefined;
    return this.#services.metrics.meter(OPERATIONS[this.#route] ?? 'decisions', this.model);
  }

  /** Calls `fn` once the deadline has passed, if there is one and the returned function was not called before that. */
  atDeadline(fn: () => void): () => void {
    const { clock } = this.#services;
    return this.deadlineAt === undefined ? () => undefined : clock.after(this.deadlineAt - clock.now(), fn);
  }

  /** Tokens of its prompt that the engine did not compute. An external server may report more than there are. */
  cached(tokens: number): void {
    this.cachedTokens = Math.min(tokens, this.promptTokens);
  }

  /** The engine has started it, with this many cached tokens of its prompt. */
  started(cachedTokens: number): void {
    this.cached(cachedTokens);
    this.phase = 'prefilling';
  }

  /** A chat's first token came from the engine. A decision has none: it stays `prefilling`. */
  firstToken(): void {
    if (this.times.begun) return;
    this.phase = 'decoding';
    this.times.firstToken();
    this.meter?.firstToken(this.times.ttftMs ?? 0);
  }

  /** Answers with a whole body and ends the request. */
  reply(reply: Reply): void {
    this.exchange.reply(reply);
    this.ended(reply.status);
  }

  /** The event stream, opened on the first call. From then on a failure can only be reported in a frame. */
  stream(): EventStream {
    if (!this.#stream) {
      this.#stream = this.exchange.stream({ 'Server-Timing': this.times.header() }, this.frames);
      // A keep-alive of a request that has ended opens none.
      if (!this.#ended) this.#services.metrics.http.streamOpened();
    }
    return this.#stream;
  }

  /** Ends the request with an error: an ordinary response, or the one error frame of a stream that is open. */
  fail(found: ContractError): void {
    const error = this.#named(found);
    if (this.#stream) {
      this.#stream.fail(error, this.times.trailer());
      this.ended(200, error);
      return;
    }
    this.exchange.fail(error, error.status === 429 ? { 'Server-Timing': this.times.header() } : {});
    this.ended(error.status, error);
  }

  #named(error: ContractError): ContractError {
    const param = error.param === null ? undefined : this.fieldNames[error.param];
    return param === undefined ? error : contractError(error.code, error.message, { param });
  }

  /** Ends the request with the error of `stop`, or as cancelled where the caller has disconnected. */
  stop(stop: Stop): void {
    if (stop.kind === 'failed') this.fail(stop.error);
    else if (stop.kind === 'cancelled') this.cancelled('waiting');
    else {
      if (this.model !== undefined) this.#services.metrics.refused(this.model, stop.reason, stop.retry);
      this.#reason = stop.reason;
      this.fail(this.#stillLoads(stop) ?? refusals.refused(stop));
    }
  }

  /** The error of a request that waited for its model to load, and for whose seat it waits no more. */
  #stillLoads({ reason }: Refused): ContractError | undefined {
    const engine = this.#services.models.get(this.model ?? '')?.engine;
    return (reason === 'wait' || reason === 'no-engine') && engine && engine.state !== 'ready'
      ? refusals.starting(engine)
      : undefined;
  }

  /** Waits for a seat and records the wait. Returns the lease, which the route must end, or why there is none. */
  async awaitSeat(waiting: Promise<TicketOutcome>): Promise<Lease | Stop> {
    this.times.waits();
    const outcome = await waiting;
    if (outcome.kind === 'refused') return outcome;
    if (outcome.kind === 'cancelled') return outcome;
    this.times.seated(outcome.lease.waitedMs, outcome.lease.replica);
    this.#seated(outcome.lease);
    return outcome.lease;
  }

  #seated(lease: Lease): void {
    const { model, caller } = this;
    if (model === undefined || !caller) return;
    const { metrics, board, clock } = this.#services;
    const label = classOf(caller.weight);
    // Once a request: after a lost engine it is seated again, and its wait includes the first one.
    if (this.times.lost.length === 0)
      metrics.seated(model, { waitedMs: lease.waitedMs, predictedMs: lease.predictedMs, class: label });
    this.#leaveBoard();
    this.#holding = { model, account: caller.account, class: label, since: clock.now(), lease, context: this };
    board.enter(this.#holding);
  }

  /** The mean time of a token of its reply, ms. */
  observeTokenMs(ms: number): void {
    this.#holding?.lease.observeTokenMs(ms);
  }

  #leaveBoard(): void {
    if (this.#holding) this.#services.board.leave(this.#holding);
    this.#holding = undefined;
  }

  /** The caller disconnected. */
  cancelled(phase: RequestPhase): void {
    if (this.model !== undefined) this.#services.metrics.cancelled(this.model, phase);
    this.ended(499);
  }

  /** Keeps the permit of the key's limits until the request ends. */
  holdsPermit(permit: Permit): void {
    this.#permit = permit;
  }

  /**
   * A request that an engine started counts against its key's limit per minute and quota, however it ended; so does an answered
   * request that needs no engine. Refused requests do not count.
   */
  #settle(answered: boolean): void {
    const ran = answered || this.phase !== 'waiting';
    this.#permit?.end(ran);
    this.#permit = undefined;
    if (ran && this.caller && !this.caller.vouched) {
      this.#services.quotas.charge(this.caller, this.promptTokens + this.completionTokens);
    }
  }

  /** Calls `fn` when the route is done with the request; functions are called in reverse order. */
  onClose(fn: () => void): void {
    this.#closers.push(fn);
  }

  /**
   * The route is done: releases what the request still holds. If the request has not ended by now, the handler failed, and the
   * server answers with an internal error, as which it is counted. Idempotent.
   */
  close(): void {
    for (const fn of this.#closers.splice(0).reverse()) fn();
    this.ended(this.#stream ? 200 : 500, refusals.internal());
  }

  /** The answer is complete, or its caller has disconnected. Only the first call counts. */
  ended(status: number, error?: ContractError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#leaveBoard();
    this.#settle(status === 200 && !error);
    if (this.#stream) this.#services.metrics.http.streamClosed();
    const endedAt = this.#services.clock.now();
    const code = status === 499 ? 'request_cancelled' : error?.code;
    this.meter?.ended(endedAt - this.times.startedAt, code);
    reportEnd(this, {
      route: this.#route,
      status,
      error,
      code,
      reason: this.#reason,
      endedAt,
      streamed: this.#stream !== undefined,
    });
  }
}
