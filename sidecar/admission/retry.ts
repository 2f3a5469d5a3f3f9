/**
 * Overload rule "reservations". If more requests arrive than the seats can serve, not all that retry can be served, whatever their
 * Retry-After. So each class of an account reserves times at a part of the rate at which it is given seats: a retry
 * at its time, identified by its account and body, is admitted before its user's other requests. When the next such
 * time is too far ahead, requests get a long time that reserves nothing.
 *
 * The same holds, whatever the load, where seats are kept for sessions, since the end of a session cannot be predicted. There a class that
 * is given less than its account's fair share of the seats reserves times at that part of the fair share, from the end of its first keep.
 */
import type { AccountClass } from './accounts.js';

/** The part of a class's seats that may be reserved; the rest is for requests that arrive for the first time. */
const RESERVED_SHARE = 0.5;

/** Above this load a request that waits for the predicted time may still not be admitted, since others arrive meanwhile. */
const OVERLOAD = 1.1;

/** Retry-After at least and at most. Clients do not wait longer by themselves: the OpenAI ones wait up to a minute. */
const MIN_RETRY_MS = 1000;
export const MAX_RETRY_MS = 59_000;

/** Retries are spread over up to this share more than the estimate, so that the refused do not come back together. */
const JITTER = 0.25;

/** Retry-After has whole seconds, so a client may return up to one second later. */
const ROUNDED_MS = 1000;

/** How much earlier and later than its time a request may return, ms. */
const EARLY_MS = 50;
const LATE_MS = 5000;

/**
 * Two times of a class are at least so far apart, ms; where it may reserve more, retries share one. Clients cannot tell them apart, and
 * {@link RetryReservations.offer} visits all times of a class, at most (MAX_RETRY_MS + LATE_MS) / LEAST_STEP_MS.
 */
const LEAST_STEP_MS = 100;

/** The most reserved times that are remembered. Beyond it none is reserved until one has passed. */
const MAX_RESERVATIONS = 20_000;

type ReservedTimes = AccountClass['reservedTimes'];

/** A time after which to retry, in ms from now: one that is reserved, or a long one that is not. */
interface Retry {
  readonly kind: 'reserved' | 'none';
  readonly ms: number;
}

/** When to retry, if not before `afterMs`: whole ms from 1,000 to 59,000, spread by `random` (0 to 1). */
export function retryAfter(afterMs: number, random: number): number {
  return Math.ceil(Math.min(Math.max(afterMs, MIN_RETRY_MS) * (1 + JITTER * random), MAX_RETRY_MS));
}

export class RetryReservations {
  /** Times by account and body. Not a Map, since entries come and go with requests (lib/id-map.ts). */
  readonly #reservations: Record<string, number> = {};
  /** In the order in which they were given out, from `#from` on; each passes at most MAX_RETRY_MS + LATE_MS later. */
  #order: { readonly key: string; readonly at: number; readonly times: ReservedTimes }[] = [];
  #from = 0;
  readonly #counts = { reserved: 0, none: 0, kept: 0 };

  /** Times that were reserved, refusals without one, and retries at their time. */
  get counts(): { readonly reserved: number; readonly none: number; readonly kept: number } {
    return { ...this.#counts };
  }

  /** Times that are remembered. */
  get size(): number {
    return this.#order.length - this.#from;
  }

  /**
   * When a request of this class is to return. `key`: of its account and body; undefined: no time is reserved. `beside`: set while seats
   * are kept for sessions; the fair share of its account is one seat each `everyMs`, and the first keep ends at `from`. Returns undefined
   * if no seat is kept, and the load of the class is low enough for a predicted wait.
   */
  offer(
    reserving: Pick<AccountClass, 'load' | 'demand' | 'reservedTimes'>,
    key: string | undefined,
    now: number,
    beside: { readonly everyMs: number; readonly from: number } | false = false,
  ): Retry | undefined {
    if (!beside && reserving.load <= OVERLOAD) return undefined;
    this.#forgetPast(now);
    // It comes before its time, or is a copy: a further time would only take one from another.
    const pending = key === undefined ? undefined : this.#reservations[key];
    if (pending !== undefined && pending > now) return { kind: 'reserved', ms: Math.ceil(pending - now) };
    const { everyMs, from } = beside || { everyMs: Infinity, from: 0 };
    const leastMs = LEAST_STEP_MS / MAX_RESERVATIONS;
    const eachMs = Math.max(leastMs, Math.min(reserving.demand.everyMs, everyMs) / RESERVED_SHARE);
    const most = Math.max(1, Math.ceil(LEAST_STEP_MS / eachMs));
    const stepMs = most * eachMs;
    const latest = now + MAX_RETRY_MS - ROUNDED_MS;
    const mayReserve = key !== undefined && this.size < MAX_RESERVATIONS;
    const times = reserving.reservedTimes;
    // The first time that more retries may share, or to which none is closer than a step, if that is not past the latest.
    let at = mayReserve ? Math.max(now + MIN_RETRY_MS, Math.min(from, latest)) : Infinity;
    let shared: ReservedTimes[0] | undefined;
    for (const time of times) {
      if (at > latest || shared) break;
      if (Math.abs(time.at - at) >= stepMs) continue;
      if (time.at >= at && time.retries < most) shared = time;
      at = shared?.at ?? time.at + stepMs;
    }
    if (!mayReserve || at > latest) {
      this.#counts.none += 1;
      return { kind: 'none', ms: MAX_RETRY_MS };
    }
    this.#counts.reserved += 1;
    if (shared) shared.retries += 1;
    else times.splice(times.findLastIndex((time) => time.at < at) + 1, 0, { at, retries: 1 });
    this.#reservations[key] = at;
    this.#order.push({ key, at, times });
    return { kind: 'reserved', ms: Math.ceil(at - now) };
  }

  /** Whether this request comes at the time that was reserved for it. The time is used up by it. */
  redeem(key: string | undefined, now: number): boolean {
    const at = key === undefined ? undefined : this.#reservations[key];
    if (key === undefined || at === undefined || now < at - EARLY_MS) return false;
    Reflect.deleteProperty(this.#reservations, key);
    if (now > at + LATE_MS) return false;
    this.#counts.kept += 1;
    return true;
  }

  #forgetPast(now: number): void {
    for (let first = this.#order[this.#from]; first !== undefined; first = this.#order[this.#from]) {
      if (now <= first.at + LATE_MS) break;
      if (this.#reservations[first.key] === first.at) Reflect.deleteProperty(this.#reservations, first.key);
      // The last one stays: the next is a step later.
      const [oldest] = first.times;
      if (oldest && oldest.retries > 1) oldest.retries -= 1;
      else if (first.times.length > 1) first.times.shift();
      this.#from += 1;
    }
    // Half of the array is past: amortized O(1).
    if (this.#from < 64 || this.#from * 2 < this.#order.length) return;
    this.#order = this.#order.slice(this.#from);
    this.#from = 0;
  }
}
