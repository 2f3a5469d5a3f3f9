import { ServiceTime } from './service-time.js';
import { BIN_ENDS, Survival } from './survival.js';

/** What a caller waits for: the first token of a stream, or the end of a whole reply. */
export type Awaited = 'first-token' | 'end';

/** An observation loses half of its weight in this much time under load, or in the time of this many requests if that is longer. */
const HALF_MS = 15_000;
const HALF_HOLDS = 2;

/** An account with fewer observed callers than this is judged by the callers of all accounts together, the pool. */
const KNOWN_CALLERS = 4;

/** The weight of callers who left from which on the pool judges an account that is not known: one who left counts for 30 s of load. */
const A_LEAVER = 0.25;

/**
 * How many callers of the pool are added to an account's own observations. In the pool each account counts once, and PRIOR_ACCOUNTS
 * accounts whose callers never leave are added, so that one account alone cannot make the pool look impatient.
 */
const PRIOR_CALLERS = 2;
const PRIOR_ACCOUNTS = 2;

/** Probabilities are computed again after this much time under load, if this part of the observations is new. */
const FIT_MS = 500;
const NEW_PART = 1 / 8;

/** A wait wastes no seat time if the useful share of the seat's time stays above this part of the share without a wait. */
const FRESH = 0.99;

/** A wait is too long if at most this part of the callers who would be served without a wait are served after it. */
const WORTH = 0.7;

/**
 * A request has waited too long for a seat if the useful share of the seat's time would be below this part of the share without a
 * wait: under load a newer request makes more of the seat. Whole replies that take twice as long as their callers wait reach 0.96 of
 * the oracle and more with it (bench/results/patience.md), and less with 0.75.
 */
const HOPE = 0.92;

/** If fewer than this share of callers are still there, nothing is known about them. */
const GONE = 0.02;

/** If fewer callers than this share leave, no wait is too long. */
const LEAST_SHARE = 0.001;

/** The patience of one account's callers, or of all callers, who wait for the same thing. */
export class Patience {
  readonly survival = new Survival();
  #fittedAt = -Infinity;
  #seen = 0;
  #freshMs = Infinity;
  #longestMs = Infinity;
  #hopelessMs = Infinity;

  /** A caller was observed. */
  observed(): void {
    this.#seen += 1;
  }

  /** Whether probabilities have to be computed again at this time, with `count` observations. */
  stale(now: number, count: number): boolean {
    const passed = now - this.#fittedAt;
    return (passed >= FIT_MS && this.#seen > NEW_PART * count) || passed >= HALF_MS;
  }

  /** The longest wait that wastes no seat time, as of the last fit, ms. */
  get freshMs(): number {
    return this.#freshMs;
  }

  /** The longest wait after which a caller is likely enough to be there, as of the last fit, ms. */
  get longestMs(): number {
    return this.#longestMs;
  }

  /** The wait past which a newer request makes more of a seat, as of the last fit, ms. */
  get hopelessMs(): number {
    return this.#hopelessMs;
  }

  /** The survival was fitted. `wholeMs`: seat time of a stream; undefined: it ends with what is waited for. O(bins x parts). */
  fitted(now: number, service: ServiceTime, wholeMs: number | undefined): void {
    this.#fittedAt = now;
    this.#seen = 0;
    this.#freshMs = this.#hopelessMs = this.#longestMs = Infinity;
    // The usual case, and the longest way through the loop.
    if (this.survival.last.share > 1 - LEAST_SHARE) return;
    const best = outcomeOf(this.survival, service, 0, wholeMs);
    let before = 0;
    for (const waitMs of BIN_ENDS) {
      const { good, served } = outcomeOf(this.survival, service, waitMs, wholeMs);
      if (good < FRESH * best.good) this.#freshMs = Math.min(this.#freshMs, before);
      if (good < HOPE * best.good) this.#hopelessMs = Math.min(this.#hopelessMs, before);
      if (served < WORTH * best.served) this.#longestMs = Math.min(this.#longestMs, before);
      // Later waits may look better again: few are left then, and they are the patient ones.
      if (Math.max(this.#hopelessMs, this.#longestMs) < Infinity) return;
      before = waitMs;
    }
  }
}

/** The expected use of a seat after a wait. */
interface Outcome {
  /** The share of the seat's time that is spent on callers who get what they wait for: 0 to 1. */
  readonly good: number;
  /** The probability that a caller who begins to wait gets what it waits for: 0 to 1. */
  readonly served: number;
}

/** The expected use of a seat after `waitMs`. */
export function outcomeOf(
  survival: Survival,
  service: ServiceTime,
  waitMs: number,
  wholeMs: number | undefined,
): Outcome {
  const there = survival.after(waitMs);
  if (there < GONE) return { good: 0, served: 0 };
  const until = survival.thereFor(waitMs);
  let good = 0;
  let held = 0;
  let served = 0;
  for (const { ms, weight } of service.parts) {
    const stays = survival.after(waitMs + ms);
    const all = wholeMs ?? ms;
    served += weight * stays;
    good += weight * stays * all;
    // Until it gets what it waits for or leaves, whichever comes first, and for the rest of a stream.
    held += weight * (survival.thereFor(waitMs + ms) - until + stays * (all - ms));
  }
  return { good: held > 0 ? good / held : 1, served };
}

/** An account's own patience, by what its callers wait for; made once something was seen. */
export type OwnPatience = Partial<Record<Awaited, Patience>>;

/** How a wait came out. */
export interface Observation {
  /** From the request's entry, ms. */
  readonly ms: number;
  /** The caller left then, without what it waited for. */
  readonly left: boolean;
}

/** `now`: time under load; `holdMs`: what a request takes. */
export interface Times {
  readonly now: number;
  readonly holdMs: number;
}

/**
 * What callers endure. An account's are judged by its own once some are known, mixed with the pool. In the pool each account
 * weighs as much as any other, however much it sends. Time is that under load (StandingQueue.fullMs), so that nights without
 * requests make nothing forgotten. An observation is O(1); a fit is O(bins), after FIT_MS at the earliest.
 */
export class PatienceBook {
  readonly #pool: Record<Awaited, Patience> = { 'first-token': new Patience(), end: new Patience() };
  /** Never fitted: no wait is too long. */
  readonly #trusted = new Patience();
  readonly #service: Record<Awaited, ServiceTime> = { 'first-token': new ServiceTime(), end: new ServiceTime() };

  /** A wait came out. */
  observe(own: OwnPatience, awaited: Awaited, seen: Observation, { now, holdMs }: Times): void {
    const halfMs = half(holdMs);
    const account = (own[awaited] ??= new Patience());
    account.survival.observe(now, halfMs, seen);
    account.observed();
    const pool = this.#pool[awaited];
    pool.survival.observe(now, halfMs, { ...seen, weight: 1 / Math.max(1, account.survival.count(now, halfMs)) });
    pool.observed();
  }

  /** A seated caller got what it waited for after so much time on its seat, or left without, or neither came about. */
  served(awaited: Awaited, seen: { readonly ms: number; readonly answered: boolean }, { now, holdMs }: Times): void {
    this.#service[awaited].observe(now, half(holdMs), seen);
  }

  /**
   * What is known of this account's callers, as of the last fit, which is made again if need be. `alone`: it has only one request
   * waiting, which the pool does not judge unless one of the account's own callers left. Otherwise one attacker with many accounts
   * could have the requests of all small accounts refused.
   */
  of(own: OwnPatience, awaited: Awaited, { now, holdMs }: Times, alone = false): Patience {
    const halfMs = half(holdMs);
    const pool = this.#pool[awaited];
    const service = this.#service[awaited];
    const wholeMs = awaited === 'first-token' ? holdMs : undefined;
    if (pool.stale(now, pool.survival.count(now, halfMs))) {
      service.fit(now, halfMs);
      pool.survival.fit(now, halfMs, { callers: PRIOR_ACCOUNTS, hazardOf: undefined });
      pool.fitted(now, service, wholeMs);
    }
    const account = own[awaited];
    const count = account?.survival.count(now, halfMs) ?? 0;
    if (account === undefined || count < KNOWN_CALLERS) {
      const trusted = alone && (account?.survival.leavers(now, halfMs) ?? 0) < A_LEAVER;
      return trusted ? this.#trusted : pool;
    }
    if (account.stale(now, count)) {
      account.survival.fit(now, halfMs, { callers: PRIOR_CALLERS, hazardOf: (bin) => pool.survival.hazardOf(bin) });
      account.fitted(now, service, wholeMs);
    }
    return account;
  }
}

function half(holdMs: number): number {
  return Math.max(HALF_MS, HALF_HOLDS * holdMs);
}
