/**
 * Reserves times to retry. If more requests arrive than the seats can serve, not all that retry can be served, whatever their
 * Retry-After. So each class of an account reserves times at a part of the rate at which it is given seats: a retry
 * at its time, identified by its account and body, is admitted before its user's other requests. When the next such
 * time is too far ahead, requests get a long time that reserves nothing.
 */
import type { Demand } from './demand.js';

/** The part of a class's seats that may be reserved; the rest is for requests that arrive for the first time. */
const RESERVED_SHARE = 0.5;

/** Above this load a request that waits for the predicted time may still not be admitted, since others arrive meanwhile. */
const OVERLOAD = 1.1;

const SOONEST_MS = 1000;
/** Clients do not wait longer by themselves: the OpenAI ones wait up to a minute. */
export const LONGEST_MS = 59_000;
/** Retry-After has whole seconds, so a client may return up to one second later. */
const ROUNDED_MS = 1000;

/** How much earlier and later than its time a request may return, ms. */
const EARLY_MS = 50;
const LATE_MS = 5000;

/** Reserved times that are remembered. Beyond it none is reserved until one has passed. */
const MAX_RESERVATIONS = 20_000;

/** A time after which to retry: one that is reserved, or a long one that is not. */
export interface Retry {
  readonly kind: 'reserved' | 'none';
  readonly ms: number;
}

interface Reservation {
  readonly key: string;
  readonly at: number;
}

/** The last time that was reserved for a class of an account. */
export interface ReservableClass {
  /** Arrivals for each request that is seated. */
  readonly load: number;
  readonly demand: Pick<Demand, 'everyMs'>;
  reservedAt: number;
}

export class RetryReservations {
  /** By account and body. Not a Map, since entries come and go with requests (lib/id-map.ts). */
  readonly #reservations: Record<string, number> = {};
  /** In the order in which they were given out, from `#from` on; each passes at most LONGEST_MS + LATE_MS later. */
  #order: Reservation[] = [];
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

  /** A time for a refused request of this class; undefined: the class's load is low enough for a predicted wait. */
  offer(reservable: ReservableClass, key: string | undefined, now: number): Retry | undefined {
    if (reservable.load <= OVERLOAD) return undefined;
    this.#forget(now);
    // It comes before its time, or is a copy: a further time would only take one from another.
    const pending = key === undefined ? undefined : this.#reservations[key];
    if (pending !== undefined && pending > now) return { kind: 'reserved', ms: Math.ceil(pending - now) };
    const everyMs = reservable.demand.everyMs / RESERVED_SHARE;
    const at = Math.max(reservable.reservedAt + everyMs, now + SOONEST_MS);
    const ms = Math.ceil(at - now);
    if (key === undefined || ms > LONGEST_MS - ROUNDED_MS || this.size >= MAX_RESERVATIONS) {
      this.#counts.none += 1;
      return { kind: 'none', ms: LONGEST_MS };
    }
    this.#counts.reserved += 1;
    reservable.reservedAt = at;
    this.#reservations[key] = at;
    this.#order.push({ key, at });
    return { kind: 'reserved', ms };
  }

  /** Whether this request comes at the time that it was given. The time is used up by it. */
  redeem(key: string | undefined, now: number): boolean {
    const at = key === undefined ? undefined : this.#reservations[key];
    if (key === undefined || at === undefined || now < at - EARLY_MS) return false;
    Reflect.deleteProperty(this.#reservations, key);
    if (now > at + LATE_MS) return false;
    this.#counts.kept += 1;
    return true;
  }

  /** Removes what is past from the head. */
  #forget(now: number): void {
    for (let first = this.#order[this.#from]; first !== undefined; first = this.#order[this.#from]) {
      if (now <= first.at + LATE_MS) break;
      if (this.#reservations[first.key] === first.at) Reflect.deleteProperty(this.#reservations, first.key);
      this.#from += 1;
    }
    // Half of the array is past: amortized O(1).
    if (this.#from < 64 || this.#from * 2 < this.#order.length) return;
    this.#order = this.#order.slice(this.#from);
    this.#from = 0;
  }
}
