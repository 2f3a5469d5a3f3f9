/**
 * How long callers wait before they leave, and how long a request may therefore wait.
 *
 * Both the patience of callers and the time that a seat takes to answer are estimated by the product-limit estimator (E. Kaplan and
 * P. Meier, 1958) over bins: the chance of leaving in a bin is those who left in it over those who were still there at its start. A
 * caller who was served counts as there until then and is not counted after it (censored). From both estimates follows the expected
 * use of a seat after a wait, and from that the waits past which a seat is better given to a newer request.
 *
 * An account's callers are judged by its own observations once some are known, mixed with the pool of all callers. Time is time under
 * load (Standing.fullMs), so that nights without requests make nothing forgotten. An observation is O(bins), and so is a fit, after
 * FIT_MS at the earliest.
 */
import type { Awaited } from './types.js';

/** Bins of a histogram of times: the first ends here, ms, and each other one is wider than the one before by this factor. */
const FIRST_MS = 50;
const RATIO = 1.16;
/** The last bin begins at 9 minutes, which is longer than the OpenAI clients wait for a reply where they set no time. */
const BINS = 64;

const LOG_RATIO = Math.log(RATIO);

/** Weights grow with time instead of all earlier ones shrinking; past this they are brought back to 1. */
const LARGEST_WEIGHT = 1e9;

/** Where each bin ends, ms. */
export const BIN_ENDS: readonly number[] = Array.from({ length: BINS }, (_, bin) => FIRST_MS * RATIO ** bin);

/** The bin of a time, ms. */
export function binOf(ms: number): number {
  return ms < FIRST_MS ? 0 : Math.min(BINS - 1, 1 + Math.floor(Math.log(ms / FIRST_MS) / LOG_RATIO));
}

function startOf(bin: number): number {
  return bin === 0 ? 0 : (BIN_ENDS[bin - 1] ?? 0);
}

/** What holds before the first fit, shared by all that were never fitted. */
const NONE_LEAVE = new Float32Array(BINS);
const ALL_STAY = new Float32Array(BINS).fill(1);
const ALL_THERE = Float32Array.from(BIN_ENDS);

/** Hazards that are believed before anything is seen: the chance of leaving in each bin, and how many callers that counts as. */
interface Prior {
  readonly callers: number;
  /** Undefined if no caller leaves. */
  readonly hazardOf: ((bin: number) => number) | undefined;
}

/** How a wait came out. */
export interface Observation {
  /** From the request's entry, ms. */
  readonly ms: number;
  /** The caller left then, without what it waited for. */
  readonly left: boolean;
}

/**
 * The estimate of how long callers wait before they leave. What was seen loses half its weight every `halfMs`. Memory: two numbers a bin,
 * five once it was fitted.
 */
export class Survival {
  readonly #left = new Float32Array(BINS);
  readonly #stayed = new Float32Array(BINS);
  #hazards = NONE_LEAVE;
  /** The chance of being there still at the end of each bin. */
  #survivals = ALL_STAY;
  /** Time until the end of each bin that a caller is there for on average, ms. */
  #there = ALL_THERE;
  #weight = 1;
  #at = 0;
  #count = 0;
  #leavers = 0;

  /** What was seen, each with the weight that it has at `now`. */
  count(now: number, halfMs: number): number {
    this.#age(now, halfMs);
    return this.#count / this.#weight;
  }

  /** The same of the callers who left. */
  leavers(now: number, halfMs: number): number {
    this.#age(now, halfMs);
    return this.#leavers / this.#weight;
  }

  /** A caller left after `ms`, or was served or refused then. */
  observe(now: number, halfMs: number, { ms, left }: Observation): void {
    this.#age(now, halfMs);
    const bin = binOf(ms);
    const bins = left ? this.#left : this.#stayed;
    bins[bin] = (bins[bin] ?? 0) + this.#weight;
    this.#count += this.#weight;
    if (left) this.#leavers += this.#weight;
  }

  /** Adds what `other` has seen, with `part` of its weight; takes it away if that is less than 0. O(bins). */
  add(now: number, halfMs: number, other: Survival, part: number): void {
    this.#age(now, halfMs);
    other.#age(now, halfMs);
    const scale = (part * this.#weight) / other.#weight;
    // Less than 0 remains by rounding only, and where the two forgot at different speeds.
    const plus = (value = 0, more = 0): number => Math.max(0, value + scale * more);
    for (let bin = 0; bin < BINS; bin += 1) {
      this.#left[bin] = plus(this.#left[bin], other.#left[bin]);
      this.#stayed[bin] = plus(this.#stayed[bin], other.#stayed[bin]);
    }
    this.#count = plus(this.#count, other.#count);
    this.#leavers = plus(this.#leavers, other.#leavers);
  }

  /** Computes the probabilities again. O(bins). */
  fit(now: number, halfMs: number, { callers, hazardOf }: Prior): void {
    this.#age(now, halfMs);
    if (this.#hazards === NONE_LEAVE) {
      this.#hazards = new Float32Array(BINS);
      this.#survivals = new Float32Array(BINS);
      this.#there = new Float32Array(BINS);
    }
    const believed = callers * this.#weight;
    let atRisk = 0;
    for (let bin = BINS - 1; bin >= 0; bin -= 1) {
      const left = this.#left[bin] ?? 0;
      const stayed = this.#stayed[bin] ?? 0;
      // Those who were served in this bin were there for half of it.
      const there = atRisk + left + stayed / 2 + believed;
      this.#hazards[bin] = there > 0 ? (left + believed * (hazardOf?.(bin) ?? 0)) / there : 0;
      atRisk += left + stayed;
    }
    let survival = 1;
    let there = 0;
    for (let bin = 0; bin < BINS; bin += 1) {
      const before = survival;
      survival *= 1 - (this.#hazards[bin] ?? 0);
      this.#survivals[bin] = survival;
      there += ((before + survival) / 2) * ((BIN_ENDS[bin] ?? 0) - startOf(bin));
      this.#there[bin] = there;
    }
  }

  /** Of the callers who are there at its start, the share that leaves in a bin; as of the last fit. */
  hazardOf(bin: number): number {
    return this.#hazards[bin] ?? 0;
  }

  /** The share of callers that waits longer than `ms`, as of the last fit; between two bin ends in a straight line. */
  after(ms: number): number {
    const bin = binOf(ms);
    const from = startOf(bin);
    const before = bin === 0 ? 1 : (this.#survivals[bin - 1] ?? 0);
    const behind = this.#survivals[bin] ?? 0;
    return before + (behind - before) * Math.min(1, (ms - from) / ((BIN_ENDS[bin] ?? Infinity) - from));
  }

  /** The share of callers that was not seen to leave, and when the last of the others left, ms; as of the last fit. */
  get last(): { readonly share: number; readonly ms: number } {
    const share = this.#survivals[BINS - 1] ?? 1;
    const bin = this.#survivals.findIndex((survival) => survival <= share);
    return { share, ms: BIN_ENDS[bin] ?? 0 };
  }

  /** How much of the time until `ms` a caller is there for on average, ms; as of the last fit. */
  thereFor(ms: number): number {
    const bin = binOf(ms);
    const from = startOf(bin);
    const before = bin === 0 ? 0 : (this.#there[bin - 1] ?? 0);
    return before + ((this.#there[bin] ?? 0) - before) * Math.min(1, (ms - from) / ((BIN_ENDS[bin] ?? 0) - from));
  }

  /** The time, ms, by which this share of callers has left, linear between two bin ends; undefined if fewer are known to leave. */
  timeOf(share: number): number | undefined {
    const bin = this.#survivals.findIndex((survival) => survival <= 1 - share);
    if (bin < 0) return undefined;
    const from = startOf(bin);
    const before = bin === 0 ? 1 : (this.#survivals[bin - 1] ?? 0);
    const behind = this.#survivals[bin] ?? 0;
    return from + ((before - (1 - share)) / (before - behind)) * ((BIN_ENDS[bin] ?? 0) - from);
  }

  #age(now: number, halfMs: number): void {
    const elapsedMs = now - this.#at;
    if (elapsedMs <= 0) return;
    this.#at = now;
    this.#weight *= 2 ** Math.min(elapsedMs / halfMs, 60);
    if (this.#weight < LARGEST_WEIGHT) return;
    for (let bin = 0; bin < BINS; bin += 1) {
      this.#left[bin] = (this.#left[bin] ?? 0) / this.#weight;
      this.#stayed[bin] = (this.#stayed[bin] ?? 0) / this.#weight;
    }
    this.#count /= this.#weight;
    this.#leavers /= this.#weight;
    this.#weight = 1;
  }
}

/**
 * Parts of the requests, shortest first, each represented by the time in its middle. The parts get finer towards the longest requests,
 * which are few and take much of the seat time.
 */
const PARTS: readonly number[] = [
  ...new Array<number>(12).fill(1 / 16),
  ...new Array<number>(4).fill(1 / 32),
  ...new Array<number>(4).fill(1 / 64),
  ...new Array<number>(8).fill(1 / 128),
];
const MIDDLES: readonly number[] = PARTS.map(
  (part, at) => PARTS.slice(0, at).reduce((sum, before) => sum + before, 0) + part / 2,
);

/** How long a seated caller waits for its answer, from the seat on. A caller who left earlier counts as one whose answer takes longer. */
export class ServiceTime {
  readonly #survival = new Survival();
  /** Times, ms, and how much of the requests take about as long, shortest first, as of the last fit; all 0 before. */
  readonly parts: readonly { ms: number; readonly weight: number }[] = PARTS.map((weight) => ({ ms: 0, weight }));

  /** A seated caller had its answer after `ms`, or had disconnected by then. */
  observe(now: number, halfMs: number, seen: { readonly ms: number; readonly answered: boolean }): void {
    this.#survival.observe(now, halfMs, { ms: seen.ms, left: seen.answered });
  }

  /** Computes the times again. */
  fit(now: number, halfMs: number): void {
    this.#survival.fit(now, halfMs, { callers: 0, hazardOf: undefined });
    // Times longer than callers stay were never observed: the estimate continues at the mean rate of the times that
    // were.
    const { share, ms } = this.#survival.last;
    this.parts.forEach((part, at) => {
      const shorter = MIDDLES[at] ?? 0;
      const known = this.#survival.timeOf(shorter);
      part.ms = known ?? (share < 1 ? (ms * Math.log(1 - shorter)) / Math.log(share) : 0);
    });
  }
}

/** The expected use of a seat after a wait. */
interface Outcome {
  /** The share of the seat's time that is spent on callers who get what they wait for: 0 to 1. */
  readonly good: number;
  /** The probability that a caller who begins to wait gets what it waits for: 0 to 1. */
  readonly served: number;
}

/** If fewer than this share of callers are still there, nothing is known about them. */
const GONE = 0.02;

/** The expected use of a seat after `waitMs`. `wholeMs`: seat time of a stream; undefined if it ends with what is waited for. O(parts). */
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

/** An observation loses half of its weight in this much time under load, or in the time of HALF_HOLDS requests if that is longer. */
const HALF_MS = 15_000;
const HALF_HOLDS = 2;

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

/** If fewer callers than this share leave, no wait is too long. */
const LEAST_SHARE = 0.001;

/** The patience of one account's callers, or of all callers, who wait for the same thing. */
export class Patience {
  readonly survival = new Survival();
  /** An account's: the part of each of its callers' weight that the pool has. */
  inPool = 0;
  /** The longest wait that wastes no seat time, as of the last fit, ms. */
  freshMs = Infinity;
  /** The longest wait after which a caller is likely enough to be there, as of the last fit, ms. */
  longestMs = Infinity;
  /** The wait past which a newer request makes more of a seat, as of the last fit, ms. */
  hopelessMs = Infinity;
  #fittedAt = -Infinity;
  #seen = 0;

  observed(): void {
    this.#seen += 1;
  }

  /** Whether probabilities have to be computed again at this time, with `count` observations. */
  isStale(now: number, count: number): boolean {
    const elapsedMs = now - this.#fittedAt;
    return (elapsedMs >= FIT_MS && this.#seen > NEW_PART * count) || elapsedMs >= HALF_MS;
  }

  /** The survival was fitted: computes the waits. `wholeMs`: as of {@link outcomeOf}. O(bins x parts). */
  fitted(now: number, service: ServiceTime, wholeMs: number | undefined): void {
    this.#fittedAt = now;
    this.#seen = 0;
    this.freshMs = this.hopelessMs = this.longestMs = Infinity;
    // The usual case, and the longest way through the loop.
    if (this.survival.last.share > 1 - LEAST_SHARE) return;
    const best = outcomeOf(this.survival, service, 0, wholeMs);
    let before = 0;
    for (const waitMs of BIN_ENDS) {
      const { good, served } = outcomeOf(this.survival, service, waitMs, wholeMs);
      if (good < FRESH * best.good) this.freshMs = Math.min(this.freshMs, before);
      if (good < HOPE * best.good) this.hopelessMs = Math.min(this.hopelessMs, before);
      if (served < WORTH * best.served) this.longestMs = Math.min(this.longestMs, before);
      // Later waits may look better again: few are left then, and they are the patient ones.
      if (Math.max(this.hopelessMs, this.longestMs) < Infinity) return;
      before = waitMs;
    }
  }
}

/** An account's own patience, by what its callers wait for; made once something was seen. */
export type OwnPatience = Partial<Record<Awaited, Patience>>;

/** `now`: time under load; `holdMs`: what a request takes. */
export interface Times {
  readonly now: number;
  readonly holdMs: number;
}

/** An account with fewer observed callers than this is judged by the callers of all accounts together, the pool. */
const KNOWN_CALLERS = 4;

/** The weight of callers who left from which on the pool judges an account that is not known: one who left counts for 30 s of load. */
const A_LEAVER = 0.25;

/**
 * How many callers of the pool are added to an account's own observations, and how many accounts whose callers never leave are added to the
 * pool.
 */
const PRIOR_CALLERS = 2;
const PRIOR_ACCOUNTS = 2;

/**
 * The callers of all accounts. Each account counts as one caller at most, and the account of which the most callers left is not counted: so
 * one account alone cannot make the pool look impatient, whatever its callers do.
 */
class Pool extends Patience {
  /** The callers of all accounts, without leaving one out. */
  readonly all = new Survival();
  #mostLeft: Patience | undefined;

  /** An account's caller was observed. O(bins). */
  add(account: Patience, seen: Observation, now: number, halfMs: number): void {
    const { survival } = account;
    this.all.add(now, halfMs, survival, -account.inPool);
    survival.observe(now, halfMs, seen);
    account.inPool = 1 / Math.max(1, survival.count(now, halfMs));
    this.all.add(now, halfMs, survival, account.inPool);
    if (leaversInPool(account, now, halfMs) >= leaversInPool(this.#mostLeft, now, halfMs)) this.#mostLeft = account;
    this.observed();
  }

  /** Computes the probabilities again, of all callers and of those of all accounts but one. O(bins). */
  fit(now: number, halfMs: number): void {
    const prior = { callers: PRIOR_ACCOUNTS, hazardOf: undefined };
    this.all.fit(now, halfMs, prior);
    this.survival.add(now, halfMs, this.survival, -1);
    this.survival.add(now, halfMs, this.all, 1);
    if (this.#mostLeft) this.survival.add(now, halfMs, this.#mostLeft.survival, -this.#mostLeft.inPool);
    this.survival.fit(now, halfMs, prior);
  }
}

/** How much of an account's part of the pool left. */
function leaversInPool(account: Patience | undefined, now: number, halfMs: number): number {
  return account === undefined ? 0 : account.inPool * account.survival.leavers(now, halfMs);
}

/** What is known of the patience of all callers. In the pool each account weighs as much as any other, however much it sends. */
export class PatienceBook {
  readonly #pool: Record<Awaited, Pool> = { 'first-token': new Pool(), end: new Pool() };
  readonly #service: Record<Awaited, ServiceTime> = { 'first-token': new ServiceTime(), end: new ServiceTime() };
  /** Never fitted: no wait is too long. */
  readonly #trusted = new Patience();

  /** A wait came out. */
  observe(own: OwnPatience, awaited: Awaited, seen: Observation, { now, holdMs }: Times): void {
    const account = (own[awaited] ??= new Patience());
    account.observed();
    this.#pool[awaited].add(account, seen, now, halfLife(holdMs));
  }

  /** A seated caller got what it waited for after this time on its seat, or left without it, or neither happened by then. */
  served(awaited: Awaited, seen: { readonly ms: number; readonly answered: boolean }, { now, holdMs }: Times): void {
    this.#service[awaited].observe(now, halfLife(holdMs), seen);
  }

  /**
   * What is known of this account's callers, as of the last fit, which is made again if need be. `alone`: it has only one request
   * waiting, which the pool does not judge unless one of the account's own callers left. Otherwise one attacker with many accounts
   * could have the requests of all small accounts refused.
   */
  of(own: OwnPatience, awaited: Awaited, times: Times, alone = false): Patience {
    const { now, holdMs } = times;
    const halfMs = halfLife(holdMs);
    const pool = this.#fittedPool(awaited, times);
    const account = own[awaited];
    const count = account?.survival.count(now, halfMs) ?? 0;
    if (account === undefined || count < KNOWN_CALLERS) {
      const isTrusted = alone && (account?.survival.leavers(now, halfMs) ?? 0) < A_LEAVER;
      return isTrusted ? this.#trusted : pool;
    }
    if (account.isStale(now, count)) {
      account.survival.fit(now, halfMs, { callers: PRIOR_CALLERS, hazardOf: (bin) => pool.survival.hazardOf(bin) });
      account.fitted(now, this.#service[awaited], wholeMs(awaited, holdMs));
    }
    return account;
  }

  /** How long the callers of all accounts stay, as of the last fit, which is made again if need be. */
  ofAll(awaited: Awaited, times: Times): Survival {
    return this.#fittedPool(awaited, times).all;
  }

  #fittedPool(awaited: Awaited, { now, holdMs }: Times): Pool {
    const halfMs = halfLife(holdMs);
    const pool = this.#pool[awaited];
    if (pool.isStale(now, pool.all.count(now, halfMs))) {
      const service = this.#service[awaited];
      service.fit(now, halfMs);
      pool.fit(now, halfMs);
      pool.fitted(now, service, wholeMs(awaited, holdMs));
    }
    return pool;
  }
}

/** Seat time of a whole stream, ms; undefined if a reply ends with what is waited for. */
function wholeMs(awaited: Awaited, holdMs: number): number | undefined {
  return awaited === 'first-token' ? holdMs : undefined;
}

/** In how much time an observation loses half of its weight, ms. */
function halfLife(holdMs: number): number {
  return Math.max(HALF_MS, HALF_HOLDS * holdMs);
}
