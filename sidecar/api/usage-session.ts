import { randomUUID } from 'node:crypto';
import type { Reservation } from '../access/credit.js';
import type { Caller } from '../access/identity.js';
import type { ContractError } from '../domain/errors.js';
import { costOf, costsOf, NO_TOKENS, worstCostOf, type Costs, type TokenCounts } from '../domain/money.js';
import type { Outcome, UsageRecord } from '../domain/usage-record.js';
import type { Tariff } from '../usage/prices.js';
import * as refusals from './refusals.js';
import type { RequestContext } from './request-context.js';
import type { HostedModel, Services } from './services.js';

/**
 * A progress line is written after so many further completion tokens, or so many ms, whichever is first. It bounds what is lost if
 * the process ends. Both are in docs/accounts.md#lines-in-the-spool.
 */
export const PROGRESS_TOKENS = 256;
export const PROGRESS_MS = 5000;

/** The part of {@link Services} that a request's usage needs. */
export type UsageDeps = Pick<Services, 'clock' | 'date' | 'spool' | 'pricing' | 'credit' | 'metrics'>;

/**
 * One request's usage and its price. `reserve` is its last check, `open` is called before its dispatch, `close` at its end. Each attempt
 * on a lent seat has an id of its own. If it is still open when the context closes, it ends as failed, so that no reservation, timer or record stays open.
 */
export class UsageSession {
  readonly #deps: UsageDeps;
  readonly #context: RequestContext;
  readonly #caller: Caller;
  readonly #model: HostedModel;
  #fixed: Pick<UsageRecord, 'id' | 'requestId' | 'account' | 'keyId' | 'model' | 'route'>;
  #bill: Bill | undefined;
  #state: 'new' | 'open' | 'closed' = 'new';
  /** The counts of the last record. */
  #recorded: TokenCounts = NO_TOKENS;
  #cancelTimer = (): void => undefined;

  constructor(deps: UsageDeps, context: RequestContext, caller: Caller, model: HostedModel, route: string) {
    this.#deps = deps;
    this.#context = context;
    this.#caller = caller;
    this.#model = model;
    const { account, keyId } = caller;
    this.#fixed = {
      id: randomUUID(),
      requestId: context.exchange.head.requestId,
      account,
      keyId,
      model: model.id,
      route,
    };
    context.onClose(() => this.#end('failed'));
  }

  /**
   * Fixes the prices and reserves the most that so many tokens cost. Returns a refusal if that fails or the spool is unhealthy. For
   * a request through a gateway nothing is reserved. A second call, for a prompt that was made again, replaces the first one.
   */
  reserve(promptTokens: number, completionTokens: number): ContractError | undefined {
    const refusal = this.#refusal();
    if (refusal) return refusal;
    this.#bill?.settle();
    const { pricing, credit, date, metrics } = this.#deps;
    const tariff = pricing.tariff(this.#model, date().getTime());
    if (!credit || this.#caller.vouched) {
      this.#bill = new Bill(tariff, undefined);
      return undefined;
    }
    const reserved = credit.reserve(this.#caller.account, worstCostOf(tariff.rates, promptTokens, completionTokens));
    if (reserved.kind === 'reserved') {
      this.#bill = new Bill(tariff, reserved.reservation);
      return undefined;
    }
    metrics.credit.refused(reserved.kind);
    return reserved.kind === 'insufficient' ? refusals.insufficientCredit() : refusals.creditUnavailable();
  }

  /**
   * Appends the opening record, once, and once more after each recall. Returns a refusal if the spool has become unhealthy while the request waited.
   */
  open(): ContractError | undefined {
    const refusal = this.#refusal();
    if (refusal) return refusal;
    if (this.#state !== 'new') return undefined;
    this.#state = 'open';
    this.#append('open');
    this.#wait();
    return undefined;
  }

  /**
   * Its attempt was stopped because its lent seat was needed. It is closed, with what it used, and costs nothing; the next `open` begins
   * another one. What is reserved stays so.
   */
  recalled(): void {
    if (this.#state !== 'open') return;
    this.#cancelTimer();
    this.#append('close', 'refused');
    this.#state = 'new';
    this.#recorded = NO_TOKENS;
    this.#fixed = Object.assign({}, this.#fixed, { id: randomUUID() });
  }

  /** What the complete answer costs; undefined before `reserve`. */
  get costs(): Costs | undefined {
    return this.#bill?.costs({ outcome: 'done', used: this.#used(), delivered: true });
  }

  /** The request's counts have grown. */
  countsGrew(): void {
    if (this.#context.completionTokens - this.#recorded.completionTokens >= PROGRESS_TOKENS) this.#progress();
  }

  /**
   * Closes a request whose answer is complete. Returns true once that is durable, or as late as the spool waits for that: the
   * caller must get the answer's last byte in the same turn of the event loop. Returns false if the caller disconnected before:
   * then the usage is closed as cancelled, for the same price, and the request has ended as cancelled. Only this function
   * decides that.
   */
  async closeAnswered(): Promise<boolean> {
    const { gone } = this.#context.exchange;
    let cancelled = gone.aborted;
    const record = this.#end(cancelled ? 'cancelled' : 'done');
    const cancel = (): void => {
      cancelled = true;
      this.#context.cancelled();
    };
    if (cancelled) cancel();
    if (!record) return !cancelled;
    const revise = (): void => {
      if (this.#deps.spool.revise(record, Object.assign({}, record, { outcome: 'cancelled' } as const))) cancel();
    };
    gone.addEventListener('abort', revise);
    await this.#deps.spool.sync(record);
    gone.removeEventListener('abort', revise);
    return !cancelled;
  }

  /** Settles the price and appends the closing record; resolves as `sync` of the spool does. Only the first call counts. */
  async close(outcome: Outcome): Promise<void> {
    const record = this.#end(outcome);
    if (record) await this.#deps.spool.sync(record);
  }

  #refusal(): ContractError | undefined {
    return this.#deps.spool.health.ok ? undefined : refusals.spoolUnhealthy();
  }

  #end(outcome: Outcome): UsageRecord | undefined {
    const opened = this.#state === 'open';
    if (this.#state === 'closed') return undefined;
    this.#state = 'closed';
    this.#cancelTimer();
    this.#bill?.settle(opened ? this.#pricedState(outcome) : undefined);
    return opened ? this.#append('close', outcome) : undefined;
  }

  #progress(): void {
    if (this.#state !== 'open') return;
    this.#append('progress');
    this.#wait();
  }

  /** Waits until the next record is due by time. No record repeats the previous counts, so a long prefill has one. */
  #wait(): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#deps.clock.after(PROGRESS_MS, () => {
      const { promptTokens, completionTokens } = this.#used();
      const news = promptTokens !== this.#recorded.promptTokens || completionTokens !== this.#recorded.completionTokens;
      if (news) this.#progress();
      else this.#wait();
    });
  }

  #append(kind: UsageRecord['kind'], outcome?: Outcome): UsageRecord {
    const state = this.#pricedState(outcome);
    this.#recorded = state.used;
    const record: UsageRecord = {
      kind,
      at: this.#deps.date().toISOString(),
      ...this.#fixed,
      ...state.used,
      ...(this.#bill && { price: this.#bill.price(state) }),
      ...(this.#bill?.prepaid === true && { prepaid: true }),
      ...(outcome && { outcome }),
    };
    this.#deps.spool.append(record);
    return record;
  }

  #pricedState(outcome: Outcome | undefined): PricedState {
    return { outcome, used: this.#used(), delivered: this.#context.delivered };
  }

  /** No tokens before the engine started the request. */
  #used(): TokenCounts {
    const { phase, promptTokens, cachedTokens, completionTokens } = this.#context;
    return phase === 'waiting' ? NO_TOKENS : { promptTokens, cachedTokens, completionTokens };
  }
}

/** The state of a request when it is priced. */
export interface PricedState {
  /** How it ended; undefined if it still runs. */
  readonly outcome: Outcome | undefined;
  /** Tokens that the engine worked on for it. */
  readonly used: TokenCounts;
  /** The caller has the first token of a stream. */
  readonly delivered: boolean;
}

/**
 * The tokens that are billed. After a disconnect or a missed deadline, all work so far is billed. After a fault of the service
 * a caller is billed only for what it received: for a stream its prompt and the tokens sent, for a whole reply nothing. A running
 * request is priced as after such a fault, since its progress record is billed only if this process ends without a close.
 * docs/accounts.md describes this for customers.
 */
function billable({ outcome, used, delivered }: PricedState): TokenCounts {
  switch (outcome) {
    case 'done':
    case 'cancelled':
    case 'timeout':
      return used;
    case 'failed':
    case undefined:
      return delivered ? used : NO_TOKENS;
    case 'refused':
      return NO_TOKENS;
  }
}

/** Prices one request at the rates of its start, and keeps its credit reservation until it is settled. */
export class Bill {
  readonly #tariff: Tariff;
  readonly #reservation: Reservation | undefined;

  /** Owns the reservation; undefined if no credit is reserved. */
  constructor(tariff: Tariff, reservation: Reservation | undefined) {
    this.#tariff = tariff;
    this.#reservation = reservation;
  }

  /** Whether it is paid from prepaid credit. */
  get prepaid(): boolean {
    return this.#reservation !== undefined;
  }

  price(state: PricedState): NonNullable<UsageRecord['price']> {
    return { version: this.#tariff.version, picodollars: String(this.#cost(state)) };
  }

  /** Ends the reservation. Only the first call counts; without a state nothing is charged. */
  settle(state?: PricedState): void {
    this.#reservation?.settle(state ? this.#cost(state) : 0n);
  }

  /** The price by kind of tokens. */
  costs(state: PricedState): Costs {
    return costsOf(this.#tariff.rates, billable(state));
  }

  #cost(state: PricedState): bigint {
    return costOf(this.#tariff.rates, billable(state));
  }
}
