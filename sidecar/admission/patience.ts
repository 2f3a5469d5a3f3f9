import type { ServiceTime } from './service-time.js';
import { BIN_ENDS, Survival } from './survival.js';

/** An observation loses half of its weight in this much time under load, or in a longer one (patience-book.ts). */
export const HALF_MS = 15_000;

/** What a caller waits for: the first token of a stream, or the end of a whole reply. */
export type Awaited = 'first-token' | 'end';

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
  /** An account's: the part of each of its callers' weight that the pool has. */
  inPool = 0;
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
