import { HALF_MS, Patience, type Awaited, type Observation, type OwnPatience, type Times } from './patience.js';
import { ServiceTime } from './service-time.js';
import { Survival } from './survival.js';

/** An observation loses half of its weight in HALF_MS under load, or in the time of this many requests if that is longer. */
const HALF_HOLDS = 2;

/** An account with fewer observed callers than this is judged by the callers of all accounts together, the pool. */
const KNOWN_CALLERS = 4;

/** The weight of callers who left from which on the pool judges an account that is not known: one who left counts for 30 s of load. */
const A_LEAVER = 0.25;

/**
 * How many callers of the pool are added to an account's own observations, and how many accounts whose callers never leave are added
 * to the pool.
 */
const PRIOR_CALLERS = 2;
const PRIOR_ACCOUNTS = 2;

/**
 * The callers of all accounts. Each account counts as one caller at most, and the one of which the most left is left out: so one account
 * alone cannot make the pool look impatient, whatever its callers do.
 */
class Pool extends Patience {
  /** The callers of all accounts, without leaving one out. */
  readonly all = new Survival();
  #most: Patience | undefined;

  /** An account's caller was observed. O(bins). */
  add(account: Patience, seen: Observation, now: number, halfMs: number): void {
    const { survival } = account;
    this.all.add(now, halfMs, survival, -account.inPool);
    survival.observe(now, halfMs, seen);
    account.inPool = 1 / Math.max(1, survival.count(now, halfMs));
    this.all.add(now, halfMs, survival, account.inPool);
    if (leavers(account, now, halfMs) >= leavers(this.#most, now, halfMs)) this.#most = account;
    this.observed();
  }

  /** Computes the probabilities again, of all and of those that are left. O(bins). */
  fit(now: number, halfMs: number): void {
    const prior = { callers: PRIOR_ACCOUNTS, hazardOf: undefined };
    this.all.fit(now, halfMs, prior);
    this.survival.add(now, halfMs, this.survival, -1);
    this.survival.add(now, halfMs, this.all, 1);
    if (this.#most !== undefined) this.survival.add(now, halfMs, this.#most.survival, -this.#most.inPool);
    this.survival.fit(now, halfMs, prior);
  }
}

/** How much of an account's part of the pool left. */
function leavers(account: Patience | undefined, now: number, halfMs: number): number {
  return account === undefined ? 0 : account.inPool * account.survival.leavers(now, halfMs);
}

/**
 * What callers endure. An account's are judged by its own once some are known, mixed with the pool. In the pool each account
 * weighs as much as any other, however much it sends. Time is that under load (StandingQueues.fullMs), so that nights without
 * requests make nothing forgotten. An observation is O(bins), and so is a fit, after FIT_MS at the earliest.
 */
export class PatienceBook {
  readonly #pool: Record<Awaited, Pool> = { 'first-token': new Pool(), end: new Pool() };
  /** Never fitted: no wait is too long. */
  readonly #trusted = new Patience();
  readonly #service: Record<Awaited, ServiceTime> = { 'first-token': new ServiceTime(), end: new ServiceTime() };

  /** A wait came out. */
  observe(own: OwnPatience, awaited: Awaited, seen: Observation, { now, holdMs }: Times): void {
    const halfMs = half(holdMs);
    const account = (own[awaited] ??= new Patience());
    account.observed();
    this.#pool[awaited].add(account, seen, now, halfMs);
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
  of(own: OwnPatience, awaited: Awaited, times: Times, alone = false): Patience {
    const { now, holdMs } = times;
    const halfMs = half(holdMs);
    const pool = this.#fittedPool(awaited, times);
    const service = this.#service[awaited];
    const account = own[awaited];
    const count = account?.survival.count(now, halfMs) ?? 0;
    if (account === undefined || count < KNOWN_CALLERS) {
      const trusted = alone && (account?.survival.leavers(now, halfMs) ?? 0) < A_LEAVER;
      return trusted ? this.#trusted : pool;
    }
    if (account.stale(now, count)) {
      account.survival.fit(now, halfMs, { callers: PRIOR_CALLERS, hazardOf: (bin) => pool.survival.hazardOf(bin) });
      account.fitted(now, service, wholeMs(awaited, holdMs));
    }
    return account;
  }

  /** How long the callers of all accounts stay, as of the last fit, which is made again if need be. */
  ofAll(awaited: Awaited, times: Times): Survival {
    return this.#fittedPool(awaited, times).all;
  }

  #fittedPool(awaited: Awaited, { now, holdMs }: Times): Pool {
    const halfMs = half(holdMs);
    const pool = this.#pool[awaited];
    if (pool.stale(now, pool.all.count(now, halfMs))) {
      const service = this.#service[awaited];
      service.fit(now, halfMs);
      pool.fit(now, halfMs);
      pool.fitted(now, service, wholeMs(awaited, holdMs));
    }
    return pool;
  }
}

/** Seat time of a whole stream, ms; undefined: a reply ends with what is waited for. */
function wholeMs(awaited: Awaited, holdMs: number): number | undefined {
  return awaited === 'first-token' ? holdMs : undefined;
}

/** In how much time an observation loses half of its weight, ms. */
function half(holdMs: number): number {
  return Math.max(HALF_MS, HALF_HOLDS * holdMs);
}
