import { ServiceTime } from './service-time.js';
import { BIN_ENDS, Survival } from './survival.js';

/** What a caller waits for: the first token of a stream, or the end of a whole reply. */
export type Awaited = 'first-token' | 'end';

/** What was seen loses half of its weight in so much time under load; where requests take long, in so many of them. */
const HALF_MS = 15_000;
const HALF_HOLDS = 2;

/** An account of whose callers fewer are known than this is judged by the pool. */
const KNOWN_CALLERS = 4;

/**
 * Callers of the pool that are mixed with an account's own. In the pool accounts are what is counted, and as many that never
 * leave are taken to be there besides: so no account alone brings the pool's callers down to the share that admission asks for.
 */
const PRIOR_CALLERS = 2;
const PRIOR_ACCOUNTS = 2;

/** Chances are worked out anew once so much time has passed under load, and this part of what is known is new. */
const FIT_MS = 500;
const NEW_PART = 1 / 8;

/** A wait costs nothing that leaves this share of a seat's time good, of that without a wait. */
const FRESH = 0.99;

/** A wait is too long when this share, or less, of those who would be served at once is served after it. */
const WORTH = 0.7;

/** After a wait that leaves less than this share of its time good, of that without a wait, a seat would be for nothing. */
const HOPE = 0.75;

/** Where fewer than this share of callers are still there, nothing is known of those. */
const GONE = 0.02;

/** Where fewer leave than this share, no wait is too long. */
const LEAST_SHARE = 0.001;

/** What is known of one account's callers, or of all, that wait for the same thing. */
export class Patience {
  readonly survival = new Survival();
  #fittedAt = -Infinity;
  #seen = 0;
  #freshMs = Infinity;
  #longestMs = Infinity;
  #hopelessMs = Infinity;

  /** Something was seen. */
  observed(): void {
    this.#seen += 1;
  }

  /** Whether chances are to be worked out anew at this time, where `count` are known. */
  stale(now: number, count: number): boolean {
    const passed = now - this.#fittedAt;
    return (passed >= FIT_MS && this.#seen > NEW_PART * count) || passed >= HALF_MS;
  }

  /** The longest wait that costs no seat time, as of the last fit, ms. */
  get freshMs(): number {
    return this.#freshMs;
  }

  /** The longest wait that leaves a caller likely enough to be there, as of the last fit, ms. */
  get longestMs(): number {
    return this.#longestMs;
  }

  /** The wait past which a seat would be for nothing, as of the last fit, ms. */
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

/** What comes of a seat after a wait. */
interface Outcome {
  /** For how much of the seat's time a caller who is still there gets what it waits for: 0 to 1. */
  readonly good: number;
  /** The chance that a caller who begins to wait gets what it waits for: 0 to 1. */
  readonly served: number;
}

/** What comes of a seat after `waitMs`. */
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
export interface Seen {
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
  readonly #service: Record<Awaited, ServiceTime> = { 'first-token': new ServiceTime(), end: new ServiceTime() };

  /** A wait came out. */
  observe(own: OwnPatience, awaited: Awaited, seen: Seen, { now, holdMs }: Times): void {
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

  /** What is known of this account's callers, as of the last fit, which is made anew if need be. */
  of(own: OwnPatience, awaited: Awaited, { now, holdMs }: Times): Patience {
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
    if (account === undefined) return pool;
    const count = account.survival.count(now, halfMs);
    if (count < KNOWN_CALLERS) return pool;
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
