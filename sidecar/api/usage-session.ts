import { randomUUID } from 'node:crypto';
import { REQUEST_AHEAD_TOKENS, type ReplyLimit } from '../engine-client/engine.js';
import type { Reservation, Reserved as CreditReserved } from '../access/credit.js';
import type { Caller } from '../access/identity.js';
import type { FleetTokensReserved, TokenReservation } from '../access/quotas.js';
import type { ContractError } from '../domain/errors.js';
import { costOf, costsOf, NO_TOKENS, worstCostOf, type Costs, type TokenCounts } from '../domain/money.js';
import type { ServiceTier } from '../domain/service-class.js';
import type { Outcome, UsageRecord } from '../domain/usage-record.js';
import type { Tariff } from '../usage/prices.js';
import * as refusals from './refusals.js';
import type { BatchAttempt } from './batch-item.js';
import type { RequestContext } from './request-context.js';
import type { HostedModel, Services } from './services.js';

/**
 * A progress line is written after this many further completion tokens or this many ms, whichever is first. It bounds what is lost if the
 * process ends. Both are in docs/usage.md.
 */
export const PROGRESS_TOKENS = 256;
export const PROGRESS_MS = 5000;

/**
 * A request reserves its prompt and so many tokens of each reply, and as many more each time that a reply has nearly used them. Larger
 * parts would keep more from others that is never used, smaller ones would ask more often.
 */
export const PART_TOKENS = 256;

export interface Replies {
  readonly count: number;
  readonly maxTokens: number;
}

const NO_REPLIES: Replies = { count: 0, maxTokens: 0 };

/** A tier in which a request is served, and its price when the request began. */
export interface SoldTier {
  readonly name: ServiceTier;
  readonly tariff: Tariff;
}

/** The part of {@link Services} that a request's usage needs. */
export type UsageDeps = Pick<
  Services,
  'clock' | 'date' | 'spool' | 'pricing' | 'credit' | 'creditInParts' | 'quotas' | 'metrics'
>;

/**
 * One request's usage and its price. `reserve` is its last check, `open` is called before its dispatch, `close` at its end. Each attempt on
 * a lent seat has an id of its own. If it is still open when the context closes, it ends as failed, so that no reservation, timer or record
 * stays open.
 */
export class UsageSession {
  readonly #deps: UsageDeps;
  readonly #context: RequestContext;
  readonly #caller: Caller;
  readonly #model: HostedModel;
  readonly #tier: SoldTier | undefined;
  #fixed: Pick<UsageRecord, 'id' | 'requestId' | 'account' | 'keyId' | 'model' | 'route' | 'claim' | 'tier' | 'batch'>;
  #bill: Bill | undefined;
  #state: 'new' | 'open' | 'closed' = 'new';
  /** The counts of the last record. */
  #recorded: TokenCounts = NO_TOKENS;
  #cancelTimer = (): void => undefined;
  #replies = NO_REPLIES;
  /** Of each reply, the tokens that it may have so far. */
  #limit = Infinity;
  #isCut = false;
  #cutAt: number | undefined;
  /** More is reserved for the replies: a store is asked. */
  #extending: Promise<ReplyLimit> | undefined;
  /** Replies of this attempt that have ended. */
  #ended = { count: 0, tokens: 0 };

  /** `tier`: undefined: the default one. */
  constructor(
    deps: UsageDeps,
    context: RequestContext,
    caller: Caller,
    model: HostedModel,
    { route, claim }: Pick<UsageRecord, 'route' | 'claim'>,
    tier?: SoldTier,
  ) {
    this.#deps = deps;
    this.#context = context;
    this.#caller = caller;
    this.#model = model;
    this.#tier = tier;
    const { account, keyId } = caller;
    this.#fixed = {
      id: randomUUID(),
      requestId: context.exchange.head.requestId,
      account,
      keyId,
      model: model.id,
      route,
      ...(claim !== undefined && { claim }),
      ...(tier && { tier: tier.name }),
      ...(context.item && { batch: true }),
    };
    context.onClose(() => this.#end('failed'));
  }

  /**
   * Fixes the prices and reserves tokens of the quotas and the price of the request: of its prompt and of a part of each reply, the price
   * of whole ones unless credit is reserved in parts. Returns a refusal if that fails or the spool is unhealthy. A request through a gateway
   * is never refused: only its end is counted. A second call, for a prompt that was made again, replaces the first one. Waits only for the
   * store of a fleet.
   */
  reserve(
    promptTokens: number,
    replies: Replies = NO_REPLIES,
  ): ContractError | undefined | Promise<ContractError | undefined> {
    const refusal = this.#refusal();
    if (refusal) return refusal;
    this.#bill?.settle();
    const { pricing, quotas, date } = this.#deps;
    const tariff =
      this.#tier?.tariff ?? pricing.tariff(this.#model, date().getTime(), this.#context.item !== undefined);
    this.#bill = new Bill(tariff);
    const { count, maxTokens } = (this.#replies = replies);
    const part = Math.min(this.#context.item?.part ?? PART_TOKENS, maxTokens);
    const needed = promptTokens + count * part;
    // A gateway's caller is refused by no quota, but its account may have one, in which its tokens count.
    const { account, keyId, vouched } = this.#caller;
    const tokens = quotas.reserve(vouched ? { account, keyId } : this.#caller, needed);
    const pay = (reserved: FleetTokensReserved): ContractError | undefined | Promise<ContractError | undefined> =>
      this.#pay(tariff, promptTokens, part, reserved);
    return tokens instanceof Promise ? tokens.then(pay) : pay(tokens);
  }

  /** Reserves the price, once the tokens are reserved. `part`: of each reply. */
  #pay(
    tariff: Tariff,
    promptTokens: number,
    part: number,
    tokens: FleetTokensReserved,
  ): ContractError | undefined | Promise<ContractError | undefined> {
    if (tokens.kind !== 'reserved') return refusals.quotaExceeded(tokens);
    // It may have ended while the store was asked, also below.
    if (this.#isClosed) {
      tokens.reservation.settle(0);
      return undefined;
    }
    const { credit, creditInParts, metrics } = this.#deps;
    const { count, maxTokens } = this.#replies;
    const { account, vouched } = this.#caller;
    const reserved: Reserved = { tokens: tokens.reservation };
    this.#bill = new Bill(tariff, reserved);
    const isPrepaid = credit !== undefined && !vouched;
    this.#limit = tokens.limited || (isPrepaid && creditInParts === true) ? part : Infinity;
    if (!isPrepaid) return undefined;
    const completionTokens = count * (creditInParts ? part : maxTokens);
    const settle = (paid: CreditReserved): ContractError | undefined => {
      if (paid.kind === 'reserved') {
        if (this.#isClosed) paid.reservation.settle(0n);
        else this.#bill = new Bill(tariff, { credit: paid.reservation, ...reserved });
        return undefined;
      }
      tokens.reservation.settle(0);
      metrics.credit.refused(paid.kind);
      return paid.kind === 'insufficient' ? refusals.insufficientCredit() : refusals.creditUnavailable();
    };
    const paid = credit.reserve(account, worstCostOf(tariff.rates, promptTokens, completionTokens));
    return paid instanceof Promise ? paid.then(settle) : settle(paid);
  }

  /** How many tokens each reply may have before {@link extend} is called; undefined if all that it can have are reserved. */
  get limit(): number | undefined {
    return this.#limit < this.#replies.maxTokens ? this.#limit : undefined;
  }

  /** A reply has nearly used the `tokens` that it may have: reserves the next part for all running replies, or what is left if less. */
  extend(tokens: number): ReplyLimit | Promise<ReplyLimit> {
    const { maxTokens } = this.#replies;
    if (this.#extending) return this.#extending;
    // Another reply may have asked a moment before.
    if (this.#limit - tokens > REQUEST_AHEAD_TOKENS) return { tokens: this.#limit, last: this.#limit >= maxTokens };
    const wanted = Math.min(this.#limit + PART_TOKENS, maxTokens);
    const extended = this.#bill?.extend(this.#needs(wanted), this.#used(), this.#deps.creditInParts === true);
    if (!(extended instanceof Promise)) return this.#extended(wanted, extended);
    this.#extending = extended.then((most) => {
      this.#extending = undefined;
      return this.#extended(wanted, most);
    });
    return this.#extending;
  }

  /** `most`: so many tokens of all replies are reserved; undefined: all that are wanted. */
  #extended(wanted: number, most = Infinity): ReplyLimit {
    const running = this.#replies.count - this.#ended.count;
    const each = Math.floor((most - this.#ended.tokens) / Math.max(1, running));
    this.#isCut = each < wanted;
    // What they may have so far is reserved in any case.
    this.#limit = Math.max(this.#limit, Math.min(wanted, each));
    if (this.#isCut) this.#bill?.shrink(this.#needs(this.#limit), this.#used());
    return { tokens: this.#limit, last: this.#isCut || this.#limit >= this.#replies.maxTokens };
  }

  /** The tokens of all replies, if each that runs may have so many. */
  #needs(limit: number): TokenCounts {
    const completionTokens = this.#ended.tokens + (this.#replies.count - this.#ended.count) * limit;
    return { promptTokens: this.#context.promptTokens, cachedTokens: 0, completionTokens };
  }

  /** Whether the replies end at what is reserved for them, since no more could be. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Tokens of a reply that ended since no more could be reserved; undefined if none did. */
  get cutAt(): number | undefined {
    return this.#cutAt;
  }

  /** A reply has ended with so many tokens. */
  replied(tokens: number): void {
    this.#ended = { count: this.#ended.count + 1, tokens: this.#ended.tokens + tokens };
    if (this.#isCut && tokens >= this.#limit) this.#cutAt = tokens;
  }

  /** Appends the opening record, once, and again after each recall. Returns a refusal if the spool failed while the request waited. */
  open(): ContractError | undefined {
    // A request that runs already ends as it would have, also between two parts of its work.
    if (this.#state !== 'new') return undefined;
    const refusal = this.#refusal();
    if (refusal) return refusal;
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
    // A single reply may go on after all that it had. Of several, some may have ended far from the limit of the others.
    if (this.#ended.count > 0 && this.#limit < Infinity) this.#limit = Math.min(PART_TOKENS, this.#replies.maxTokens);
    this.#ended = { count: 0, tokens: 0 };
    this.#isCut = false;
    this.#cutAt = undefined;
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

  /** What the complete answer of a batch's line is recorded with; its record is closed by {@link closeKept}. */
  get attempt(): BatchAttempt {
    const used = this.#used();
    const price = this.#bill?.price({ outcome: 'done', used, delivered: true }).picodollars ?? '0';
    return { id: this.#fixed.id, used, picodollars: BigInt(price) };
  }

  /** Closes a line of a batch whose answer is durable. Resolves once that is durable too, however long it takes. */
  async closeKept(): Promise<void> {
    const record = this.#end('done');
    while (record && !(await this.#deps.spool.sync(record)));
  }

  /** Settles the price and appends the closing record; resolves as `sync` of the spool does. Only the first call counts. */
  async close(outcome: Outcome): Promise<void> {
    const record = this.#end(outcome);
    if (record) await this.#deps.spool.sync(record);
  }

  get #isClosed(): boolean {
    return this.#state === 'closed';
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
    const quota = this.#bill?.quota;
    this.#recorded = state.used;
    const record: UsageRecord = {
      kind,
      at: this.#deps.date().toISOString(),
      ...this.#fixed,
      ...state.used,
      ...(this.#bill && { price: this.#bill.price(state) }),
      ...(this.#bill?.prepaid === true && { prepaid: true }),
      ...(this.#bill?.prepaid === true && this.#deps.credit?.escrow && { escrow: true }),
      ...(quota !== undefined && { quota }),
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
interface PricedState {
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

/** What a request has reserved. */
interface Reserved {
  readonly tokens: TokenReservation;
  /** Absent: no credit is reserved. */
  readonly credit?: Reservation;
}

/** Prices one request at the rates of its start, and keeps what is reserved for it until it is settled. */
class Bill {
  readonly #tariff: Tariff;
  readonly #reserved: Reserved | undefined;

  /** Owns what is reserved; undefined if nothing is. */
  constructor(tariff: Tariff, reserved?: Reserved) {
    this.#tariff = tariff;
    this.#reserved = reserved;
  }

  /** Whether it is paid from prepaid credit. */
  get prepaid(): boolean {
    return this.#reserved?.credit !== undefined;
  }

  /** The number of its tokens in the store of a fleet. */
  get quota(): number | undefined {
    return this.#reserved?.tokens.request;
  }

  price(state: PricedState): NonNullable<UsageRecord['price']> {
    return { version: this.#tariff.version, picodollars: String(this.#cost(state)) };
  }

  /**
   * Reserves `wanted` tokens in all, and with `price` also their price. `used`: the tokens used by now. Returns how many completion tokens
   * are reserved then: fewer than wanted if the quota or the credit is too small.
   */
  extend(wanted: TokenCounts, used: TokenCounts, price: boolean): number | Promise<number> {
    const { tokens, credit } = this.#reserved ?? {};
    const { promptTokens } = wanted;
    const pay = (all: number): number | Promise<number> => {
      const most = Math.min(all - promptTokens, wanted.completionTokens);
      if (!price || !credit || most <= 0) return most;
      const costAt = (replies: number): bigint => worstCostOf(this.#tariff.rates, promptTokens, replies);
      const paid = credit.extend(costAt(most));
      return paid instanceof Promise ? paid.then((held) => within(held, costAt, most)) : within(paid, costAt, most);
    };
    const extended = tokens?.extend(sumOf(wanted), sumOf(used)) ?? sumOf(wanted);
    return extended instanceof Promise ? extended.then(pay) : pay(extended);
  }

  /** Releases the tokens past so many in all. */
  shrink(wanted: TokenCounts, used: TokenCounts): void {
    void this.#reserved?.tokens.extend(sumOf(wanted), sumOf(used));
  }

  /** Ends the reservations. Only the first call counts; without a state nothing is charged. */
  settle(state?: PricedState): void {
    const cost = state ? this.#cost(state) : 0n;
    this.#reserved?.credit?.settle(cost);
    // As usage/totals.ts counts its record, with which a start goes on.
    const isFree = state === undefined || (state.outcome === 'failed' && cost === 0n);
    this.#reserved?.tokens.settle(isFree ? 0 : sumOf(billable(state)));
  }

  /** The price by kind of tokens. */
  costs(state: PricedState): Costs {
    return costsOf(this.#tariff.rates, billable(state));
  }

  #cost(state: PricedState): bigint {
    return costOf(this.#tariff.rates, billable(state));
  }
}

/** The largest number, up to `most`, whose cost is not above `held`. */
function within(held: bigint, costAt: (tokens: number) => bigint, most: number): number {
  let [least, tooMany] = [0, most + 1];
  while (tooMany - least > 1) {
    const middle = Math.floor((least + tooMany) / 2);
    if (costAt(middle) <= held) least = middle;
    else tooMany = middle;
  }
  return least;
}

function sumOf({ promptTokens, completionTokens }: TokenCounts): number {
  return promptTokens + completionTokens;
}
