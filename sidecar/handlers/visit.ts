import { classOf, type Caller } from '../access/identity.js';
import type { Place } from '../access/limits.js';
import type { Lease, Refused, TicketOutcome } from '../admission/seat-queue.js';
import type { ContractError } from '../errors.js';
import type { EventStream, Exchange, Reply } from '../http/exchange.js';
import type { Log } from '../telemetry/logger.js';
import type { CancelPhase, ModelMeter } from '../telemetry/model-metrics.js';
import * as refusals from './refusals.js';
import type { SeatHolder } from './seat-board.js';
import type { Services } from './services.js';

/** What the log calls the routes. */
export type RouteName = 'chat' | 'decisions' | 'systemone' | 'models' | 'other';

/**
 * One request from its head to its last byte: when what happened, and how it ended. Whatever ends a request goes through
 * here, so that each is counted and logged exactly once.
 */
export class Visit {
  readonly exchange: Exchange;
  readonly log: Log;
  readonly #services: Services;
  readonly #route: RouteName;
  readonly #startedAt: number;
  #stream: EventStream | undefined;
  /** Clock reading since when it waits for a seat; undefined while it does not. */
  #waitingSince: number | undefined;
  #ended = false;
  #place: Place | undefined;
  #holding: SeatHolder | undefined;

  caller: Caller | undefined;
  model: string | undefined;
  /** Milliseconds that the identity check took. */
  authorizeMs: number | undefined;
  /** Clock reading at the body's last byte. */
  receivedAt: number | undefined;
  /** Clock reading past which the request is ended with `timeout`; undefined: never. */
  deadlineAt: number | undefined;
  /** Milliseconds between the last check and a seat. */
  queueMs = 0;
  /** Clock reading when the job went to the engine. */
  handedOverAt: number | undefined;
  firstTokenAt: number | undefined;
  /** Where the request is, for the count of callers that left. */
  phase: CancelPhase = 'waiting';
  promptTokens = 0;
  cachedTokens = 0;
  completionTokens = 0;

  constructor(exchange: Exchange, route: RouteName, services: Services) {
    this.exchange = exchange;
    this.#services = services;
    this.#route = route;
    this.#startedAt = services.clock.now();
    this.log = services.log.forRequest(exchange.head.requestId);
  }

  /** Whether the caller has the first token of a stream, which then cannot be taken back. */
  get delivered(): boolean {
    return this.#stream !== undefined && this.firstTokenAt !== undefined;
  }

  /** Where the model's requests are counted; undefined while no model is known. */
  get meter(): ModelMeter | undefined {
    if (this.model === undefined) return undefined;
    return this.#services.metrics.meter(this.#route === 'chat' ? 'chat' : 'decisions', this.model);
  }

  /** Milliseconds from the body's last byte to the first token. */
  get ttftMs(): number | undefined {
    if (this.firstTokenAt === undefined || this.receivedAt === undefined) return undefined;
    return this.firstTokenAt - this.receivedAt;
  }

  /** The Server-Timing header: what came before the model. `ra-admit` leaves the wait for a seat out. */
  serverTiming(): string {
    const now = this.#services.clock.now();
    const queueMs = this.#queuedMs(now);
    const until = this.handedOverAt ?? now;
    const admitMs = Math.max(0, until - (this.receivedAt ?? until) - queueMs);
    const authorize = this.authorizeMs === undefined ? '' : `authorize;dur=${ms(this.authorizeMs)}, `;
    return `${authorize}ra-queue;dur=${ms(queueMs)}, ra-admit;dur=${ms(admitMs)}`;
  }

  /** Milliseconds of waiting for a seat, those that were or are in vain included. */
  #queuedMs(now: number): number {
    return this.queueMs + (now - (this.#waitingSince ?? now));
  }

  /** The Server-Timing trailer, once there was a first token. */
  timingTrailer(): string | undefined {
    return this.ttftMs === undefined ? undefined : `ra-ttft;dur=${ms(this.ttftMs)}`;
  }

  /** Calls `fn` once the deadline has passed, if there is one and nobody calls what is returned before that. */
  atDeadline(fn: () => void): () => void {
    const { clock } = this.#services;
    return this.deadlineAt === undefined ? () => undefined : clock.after(this.deadlineAt - clock.now(), fn);
  }

  /** The job goes to the engine now. */
  handedOver(): void {
    this.handedOverAt = this.#services.clock.now();
  }

  /** The engine took it up. */
  prefilling(): void {
    this.phase = 'prefilling';
  }

  /** The first token, or what stands for it, came back from the engine. */
  firstToken(): void {
    if (this.firstTokenAt !== undefined) return;
    this.phase = 'decoding';
    this.firstTokenAt = this.#services.clock.now();
    this.meter?.firstToken(this.ttftMs ?? 0);
  }

  /** Answers with a whole body and ends the visit. */
  reply(reply: Reply): void {
    this.exchange.reply(reply);
    this.ended(reply.status);
  }

  /** The event stream, opened on the first call. From then on a failure can only be told in a frame. */
  stream(): EventStream {
    if (!this.#stream) {
      this.#stream = this.exchange.stream({ 'Server-Timing': this.serverTiming() });
      this.#services.metrics.http.streamOpened();
    }
    return this.#stream;
  }

  /** Ends the visit with an error: an ordinary response, or the one error frame of a stream that is open. */
  fail(error: ContractError): void {
    if (this.#stream) {
      this.#stream.fail(error, this.timingTrailer());
      this.ended(200, error);
      return;
    }
    this.exchange.fail(error, error.status === 429 ? { 'Server-Timing': this.serverTiming() } : {});
    this.ended(error.status, error);
  }

  /** The queue refused. */
  refused(refusal: Refused): void {
    if (this.model !== undefined) this.#services.metrics.refused(this.model, refusal.reason);
    this.fail(refusals.refused(refusal));
  }

  /** Waits for a seat. Undefined: refused or gone, and answered. */
  async awaitSeat(waiting: Promise<TicketOutcome>): Promise<Lease | undefined> {
    this.#waitingSince = this.#services.clock.now();
    const outcome = await waiting;
    if (outcome.kind === 'seated') {
      this.#waitingSince = undefined;
      this.queueMs = outcome.lease.waitedMs;
      this.#seated(outcome.lease);
      return outcome.lease;
    }
    if (outcome.kind === 'refused') this.refused(outcome);
    else this.left('waiting');
    return undefined;
  }

  #seated(lease: Lease): void {
    const { model, caller } = this;
    if (model === undefined || !caller) return;
    const { metrics, board, clock } = this.#services;
    const label = classOf(caller.weight);
    metrics.seated(model, { waitedMs: this.queueMs, predictedMs: lease.predictedMs, class: label });
    this.#leaveBoard();
    this.#holding = { model, account: caller.account, class: label, since: clock.now(), lease, visit: this };
    board.enter(this.#holding);
  }

  #leaveBoard(): void {
    if (this.#holding) this.#services.board.leave(this.#holding);
    this.#holding = undefined;
  }

  /** The caller left. */
  left(phase: CancelPhase): void {
    if (this.model !== undefined) this.#services.metrics.cancelled(this.model, phase);
    this.ended(499);
  }

  /** The visit keeps a place in its key's limits, from here until it ends. */
  holds(place: Place): void {
    this.#place = place;
  }

  /**
   * A request that an engine took up has run, however it ended, and counts against its key's minute and quota; so does
   * one that needs no engine and was answered. All others were refused, and use nothing.
   */
  #settle(answered: boolean): void {
    const ran = answered || this.phase !== 'waiting';
    this.#place?.end(ran);
    this.#place = undefined;
    if (ran && this.caller && !this.caller.vouched) {
      this.#services.quotas.charge(this.caller, this.promptTokens + this.completionTokens);
    }
  }

  /** After a fault that ended the request past this visit, which the server answers; otherwise it does nothing. */
  abandoned(): void {
    this.ended(this.#stream ? 200 : 500, refusals.internal());
  }

  /** The answer is complete, or nobody is there to read it. Only the first call counts. */
  ended(status: number, error?: ContractError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#leaveBoard();
    this.#settle(status === 200 && !error);
    if (this.#stream) this.#services.metrics.http.streamClosed();
    const durationMs = this.#services.clock.now() - this.#startedAt;
    this.meter?.ended(durationMs, status === 499 ? 'request_cancelled' : error?.code);
    this.log.info('request', {
      route: this.#route,
      status,
      durationMs: Math.round(durationMs),
      queueMs: Math.round(this.#queuedMs(this.#services.clock.now())),
      promptTokens: this.promptTokens,
      cachedTokens: this.cachedTokens,
      completionTokens: this.completionTokens,
      ...(error && { code: error.code }),
      ...(this.model !== undefined && { model: this.model }),
      ...(this.ttftMs !== undefined && { ttftMs: Math.round(this.ttftMs) }),
      ...(this.caller && { account: this.caller.account, keyId: this.caller.keyId }),
    });
  }
}

/** At most three decimals, as contract.md section 2 asks. */
function ms(value: number): string {
  return String(Math.round(value * 1000) / 1000);
}
