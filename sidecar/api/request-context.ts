import type { Caller } from '../access/identity.js';
import type { Permit } from '../access/limits.js';
import type { Lease, Refused, TicketOutcome } from '../admission/seat-queue.js';
import { errorBody, type ContractError } from '../domain/errors.js';
import type { EventStream, Exchange, Reply } from '../http/exchange.js';
import { classOf } from '../domain/service-class.js';
import type { Log } from '../telemetry/logger.js';
import type { CancelPhase, ModelMeter } from '../telemetry/model-metrics.js';
import type { RequestTrace } from '../telemetry/tracing.js';
import * as refusals from './refusals.js';
import { OPERATIONS, reportEnd, type RouteName } from './request-report.js';
import type { SeatHolder } from './seat-board.js';
import type { Services } from './services.js';
import { Timeline } from './timeline.js';

/** Why a request ends before its work does. Nothing was answered yet: the route hands it to {@link RequestContext.stop}. */
export type Stop =
  | { readonly kind: 'failed'; readonly error: ContractError }
  /** The caller disconnected. */
  | { readonly kind: 'cancelled' }
  /** The seat queue's refusal. */
  | Refused;

/**
 * One request from its head to its last byte: when what happened, and how it ended. Whatever ends a request goes through
 * here, so that each is counted and logged exactly once.
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
  #holding: SeatHolder | undefined;
  /** Why the queue refused. */
  #reason: Refused['reason'] | undefined;

  /** When what happened. */
  readonly times: Timeline;
  /** Undefined: none is kept. */
  readonly trace: RequestTrace | undefined;

  caller: Caller | undefined;
  model: string | undefined;
  /** Clock reading past which the request is ended with `timeout`; undefined: never. */
  deadlineAt: number | undefined;
  /** The deadline was named by a gateway for this request. */
  urgent = false;
  /** Clock reading past which the caller's client no longer waits, by its own word; undefined: it names no time. */
  wantedUntil: number | undefined;
  /** Where the request is, for the count of cancelled requests. */
  phase: CancelPhase = 'waiting';
  promptTokens = 0;
  cachedTokens = 0;
  completionTokens = 0;
  /** The last frame of a stream that ends early, where it is not the error object of all routes. */
  errorFrame: ((error: ContractError) => string) | undefined;

  constructor(exchange: Exchange, route: RouteName, services: Services) {
    this.exchange = exchange;
    this.#services = services;
    this.#route = route;
    this.times = new Timeline(services.clock);
    this.trace = services.tracing?.begin(exchange.head, this.times.startedAt);
    this.log = services.log.forRequest(exchange.head.requestId);
  }

  /** Whether the caller has the first token of a stream, which then cannot be taken back. */
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

  /** The engine has begun it, with so many tokens of its prompt cached. */
  started(cachedTokens: number): void {
    this.cachedTokens = cachedTokens;
    this.phase = 'prefilling';
  }

  /** The first token, or what stands for it, came back from the engine. */
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
      this.#stream = this.exchange.stream({ 'Server-Timing': this.times.header() }, (error) =>
        this.errorFrame === undefined ? errorBody(error) : this.errorFrame(error),
      );
      this.#services.metrics.http.streamOpened();
    }
    return this.#stream;
  }

  /** Ends the request with an error: an ordinary response, or the one error frame of a stream that is open. */
  fail(error: ContractError): void {
    if (this.#stream) {
      this.#stream.fail(error, this.times.trailer());
      this.ended(200, error);
      return;
    }
    this.exchange.fail(error, error.status === 429 ? { 'Server-Timing': this.times.header() } : {});
    this.ended(error.status, error);
  }

  /** Ends the request with the error of `stop`, or as cancelled where the caller has disconnected. */
  stop(stop: Stop): void {
    if (stop.kind === 'failed') this.fail(stop.error);
    else if (stop.kind === 'cancelled') this.cancelled('waiting');
    else {
      if (this.model !== undefined) this.#services.metrics.refused(this.model, stop.reason, stop.retry);
      this.#reason = stop.reason;
      this.fail(refusals.refused(stop));
    }
  }

  /** Waits for a seat, and counts the wait. Returns the lease, which the caller of this ends, or why there is none. */
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
    metrics.seated(model, { waitedMs: lease.waitedMs, predictedMs: lease.predictedMs, class: label });
    this.#leaveBoard();
    this.#holding = { model, account: caller.account, class: label, since: clock.now(), lease, context: this };
    board.enter(this.#holding);
  }

  #leaveBoard(): void {
    if (this.#holding) this.#services.board.leave(this.#holding);
    this.#holding = undefined;
  }

  /** The caller disconnected. */
  cancelled(phase: CancelPhase): void {
    if (this.model !== undefined) this.#services.metrics.cancelled(this.model, phase);
    this.ended(499);
  }

  /** The request has a permit of its key's limits, from here until it ends. */
  holdsPermit(permit: Permit): void {
    this.#permit = permit;
  }

  /**
   * A request that an engine took up has run, however it ended, and counts against its key's minute and quota; so does
   * one that needs no engine and was answered. All others were refused, and use nothing.
   */
  #settle(answered: boolean): void {
    const ran = answered || this.phase !== 'waiting';
    this.#permit?.end(ran);
    this.#permit = undefined;
    if (ran && this.caller && !this.caller.vouched) {
      this.#services.quotas.charge(this.caller, this.promptTokens + this.completionTokens);
    }
  }

  /** Calls `fn` when the route is done with the request, the last one given first. */
  onClose(fn: () => void): void {
    this.#closers.push(fn);
  }

  /**
   * The route is done: gives back what the request still holds. A request that has not ended by now met a fault of ours,
   * which the server answers; it counts as one. Idempotent.
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
