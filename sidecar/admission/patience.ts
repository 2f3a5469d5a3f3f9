import { BIN_ENDS, BINS, Survival } from './survival.js';

/** What a caller waits for: the first token of a stream, or the end of a whole reply. */
export type Awaited = 'first-token' | 'end';

export const AWAITED: readonly Awaited[] = ['first-token', 'end'];

/** What was seen loses half of its weight in so much time under load; where requests take long, in so many of them. */
const HALF_MS = 15_000;
const HALF_HOLDS = 2;

/**
 * Callers of the pool that an account's own are held against before it is judged by its own: below that few are known.
 * In the pool accounts are what is counted, and as many that never leave are taken to be there besides: so no account alone
 * brings the pool's callers down to the share that admission asks for.
 */
const PRIOR_CALLERS = 4;
const PRIOR_ACCOUNTS = 2;

/** Where fewer than this share of callers are still there a wait is worth nothing, though it costs no seat. */
const GONE = 0.5;

/** Chances are worked out anew once so much time has passed under load, and something was seen. */
const FIT_MS = 500;

/** A wait is too long when this share, or less, of those who would be served at once is served after it. */
const WORTH = 0.7;

/** A seat is given to another after a wait that leaves less than this share of its time good, of that without a wait. */
const HOPE = 0.75;

/** What is known of one account's callers, or of all, that wait for the same thing. */
export class Patience {
  readonly survival = new Survival();
  #fittedAt = -Infinity;
  #seen = 0;
  #fitted = 0;
  #longestMs = Infinity;
  #hopelessMs = Infinity;

  /** Something was seen. */
  observed(): void {
    this.#seen += 1;
  }

  /** Whether chances are to be worked out anew at this time. */
  stale(now: number): boolean {
    return now - this.#fittedAt >= FIT_MS && (this.#seen !== this.#fitted || now - this.#fittedAt >= HALF_MS);
  }

  /** The longest wait that leaves a caller likely enough to be there, as of the last fit, ms. */
  get longestMs(): number {
    return this.#longestMs;
  }

  /** The wait past which a seat would be for nothing, as of the last fit, ms. */
  get hopelessMs(): number {
    return this.#hopelessMs;
  }

  /**
   * The survival was fitted. `service`: from the seat to what is waited for. `wholeMs`: seat time of a stream; undefined: it
   * ends with what is waited for.
   */
  fitted(now: number, service: Survival, wholeMs: number | undefined): void {
    this.#fittedAt = now;
    this.#fitted = this.#seen;
    const fresh = this.served(0, service);
    this.#longestMs = lastBefore((waitMs) => this.served(waitMs, service) < WORTH * fresh);
    const best = goodOf(this.survival, service, 0, wholeMs);
    this.#hopelessMs = lastBefore((waitMs) => goodOf(this.survival, service, waitMs, wholeMs) < HOPE * best);
  }

  /** The chance that a caller who begins to wait now has what it waits for, where its seat comes after `waitMs`. O(bins). */
  served(waitMs: number, service: Survival): number {
    let sum = 0;
    let before = 1;
    let from = 0;
    for (let bin = 0; bin < BINS; bin += 1) {
      const to = BIN_ENDS[bin] ?? 0;
      const behind = service.after(to);
      if (before - behind > 1e-4) sum += (before - behind) * this.survival.after(waitMs + (from + to) / 2);
      before = behind;
      from = to;
      if (before < 1e-3) break;
    }
    return sum;
  }
}

/** For how much of a seat's time a caller who waited so long had what it waited for. */
function goodOf(survival: Survival, service: Survival, waitMs: number, wholeMs: number | undefined): number {
  let good = 0;
  let vain = 0;
  let before = 1;
  let from = 0;
  for (let bin = 0; bin < BINS && before > 1e-3; bin += 1) {
    const to = BIN_ENDS[bin] ?? 0;
    const behind = service.after(to);
    const ms = (from + to) / 2;
    if (before - behind > 1e-4) {
      const stays = survival.after(waitMs + ms);
      good += (before - behind) * stays * (wholeMs ?? ms);
      // Who leaves before the end leaves at any time until then.
      vain += ((before - behind) * (1 - stays) * ms) / 2;
    }
    before = behind;
    from = to;
  }
  return good + vain > 0 ? good / (good + vain) : 1;
}

/** An account's own patience, by what its callers wait for; made once something was seen. */
export type OwnPatience = Partial<Record<Awaited, Patience>>;

/** How a wait came out. */
export interface Seen {
  /** From the request's entry, ms. */
  readonly ms: number;
  /** The caller left then, without what it waited for. */
  readonly left: boolean;
}

/**
 * What callers endure. An account's are held against its own; few of them say little, so they are mixed with the pool. In
 * the pool each account weighs as much as any other, however much it sends. Time is that under load (StandingQueue.fullMs):
 * nights without requests are not forgotten over.
 */
export class PatienceBook {
  readonly #pool: Record<Awaited, Patience> = { 'first-token': new Patience(), end: new Patience() };
  /** From the seat to what is waited for. */
  readonly #service: Record<Awaited, Survival> = { 'first-token': new Survival(), end: new Survival() };

  /** A wait came out. `holdMs`: what a request takes. */
  observe(own: OwnPatience, awaited: Awaited, seen: Seen, { now, holdMs }: Times): void {
    const halfMs = half(holdMs);
    const account = (own[awaited] ??= new Patience());
    account.survival.observe(now, halfMs, seen);
    account.observed();
    const pool = this.#pool[awaited];
    pool.survival.observe(now, halfMs, { ...seen, weight: 1 / Math.max(1, account.survival.count(now, halfMs)) });
    pool.observed();
  }

  /** A seated caller had what it waited for after so much time on its seat, or left without. */
  served(awaited: Awaited, { ms, left }: Seen, { now, holdMs }: Times): void {
    this.#service[awaited].observe(now, half(holdMs), { ms, left: !left });
    this.#service[awaited].fit(now, half(holdMs), { callers: 0, hazardOf: undefined });
  }

  /** The longest wait for a seat that callers of this account endure, ms; Infinity: none is known to be too long. */
  longestMs(own: OwnPatience, awaited: Awaited, times: Times): number {
    return this.#of(own, awaited, times).longestMs;
  }

  /** After such a wait few callers of this account stay for what they wait for, ms. */
  hopelessMs(own: OwnPatience, awaited: Awaited, times: Times): number {
    return this.#of(own, awaited, times).hopelessMs;
  }

  /** For how much of a seat's time callers who waited so long have what they waited for, all accounts alike: 0 to 1. */
  goodAfter(awaited: Awaited, waitMs: number, times: Times): number {
    const { survival } = this.#of({}, awaited, times);
    const there = survival.after(waitMs);
    if (there < GONE) return 0;
    return goodOf(survival, this.#service[awaited], waitMs, awaited === 'first-token' ? times.holdMs : undefined);
  }

  /** The pool's, or the account's own where there is one, worked out anew if need be. */
  of(own: OwnPatience, awaited: Awaited, times: Times): Survival {
    return this.#of(own, awaited, times).survival;
  }

  #of(own: OwnPatience, awaited: Awaited, { now, holdMs }: Times): Patience {
    const pool = this.#pool[awaited];
    const service = this.#service[awaited];
    const wholeMs = awaited === 'first-token' ? holdMs : undefined;
    if (pool.stale(now)) {
      pool.survival.fit(now, half(holdMs), { callers: PRIOR_ACCOUNTS, hazardOf: undefined });
      pool.fitted(now, service, wholeMs);
    }
    const account = own[awaited];
    if (account === undefined) return pool;
    if (account.stale(now)) {
      const hazardOf = (bin: number): number => pool.survival.hazardOf(bin);
      account.survival.fit(now, half(holdMs), { callers: PRIOR_CALLERS, hazardOf });
      account.fitted(now, service, wholeMs);
    }
    return account;
  }
}

/** `now`: time under load; `holdMs`: what a request takes. */
export interface Times {
  readonly now: number;
  readonly holdMs: number;
}

function half(holdMs: number): number {
  return Math.max(HALF_MS, HALF_HOLDS * holdMs);
}

/** The end of the last bin before the first whose end is too long; Infinity: none is. */
function lastBefore(tooLong: (ms: number) => boolean): number {
  let low = 0;
  let high = BINS;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tooLong(BIN_ENDS[middle] ?? 0)) high = middle;
    else low = middle + 1;
  }
  if (low === BINS) return Infinity;
  return low === 0 ? 0 : (BIN_ENDS[low - 1] ?? 0);
}
