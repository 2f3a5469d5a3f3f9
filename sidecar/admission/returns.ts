/**
 * Times to retry at that an account's share can keep. Where more requests come than the seats can serve, not all that
 * retry can be served, whatever their Retry-After: seat time is conserved. So times are reserved like appointments: at
 * a part of the rate at which the account's class is given seats, so that a seat is free for each request that retries.
 * A request that comes again at its time, known by its account and body, is admitted before all others of its class.
 * Once the next such time is too far ahead, the others are given a long time that reserves nothing.
 */
import type { Demand } from './demand.js';

/** The part of the seats given to an account's class that may be reserved; the rest serves first requests. */
const PROMISED_SHARE = 0.5;

/** Above this load a predicted wait does not decide which request is admitted after it: others come meanwhile. */
const OVERLOAD = 1.1;

const SOONEST_MS = 1000;
/** Clients do not wait longer by themselves: the OpenAI ones wait up to a minute. */
export const LONGEST_MS = 59_000;
/** Header Retry-After has whole seconds, so that its reader comes up to one later. */
const ROUNDED_MS = 1000;

/** How much too early and too late a request may come and still counts as one that waited its time, ms. */
const EARLY_MS = 50;
const LATE_MS = 5000;

/** Reserved times that are remembered. Beyond it none is reserved until one has passed. */
const MAX_PROMISES = 20_000;

/** A time to come back after: one that is reserved, or a long one that is not. */
export interface Retry {
  readonly kind: 'reserved' | 'none';
  readonly ms: number;
}

interface Promised {
  readonly key: string;
  readonly at: number;
}

/** The last time that was reserved for a class of an account. */
export interface Appointments {
  /** Requests that come for each that is seated. */
  readonly load: number;
  readonly demand: Pick<Demand, 'everyMs'>;
  reservedAt: number;
}

export class Returns {
  /** By account and body. Not a Map, since entries come and go with requests (lib/id-map.ts). */
  readonly #promises: Record<string, number> = {};
  /** In the order in which they were given out, from `#from` on; each passes at most LONGEST_MS + LATE_MS later. */
  #order: Promised[] = [];
  #from = 0;
  readonly #counts = { reserved: 0, none: 0, kept: 0 };

  /** Times given out, refusals without one, and requests that came at theirs. */
  get counts(): { readonly reserved: number; readonly none: number; readonly kept: number } {
    return { ...this.#counts };
  }

  /** Times that are remembered. */
  get size(): number {
    return this.#order.length - this.#from;
  }

  /** A time for a refused request of this class; undefined: its load is not above what its seats serve. */
  offer(appointments: Appointments, key: string | undefined, now: number): Retry | undefined {
    if (appointments.load <= OVERLOAD) return undefined;
    this.#forget(now);
    const everyMs = appointments.demand.everyMs / PROMISED_SHARE;
    const at = Math.max(appointments.reservedAt + everyMs, now + SOONEST_MS);
    const ms = Math.ceil(at - now);
    if (key === undefined || ms > LONGEST_MS - ROUNDED_MS || this.size >= MAX_PROMISES) {
      this.#counts.none += 1;
      return { kind: 'none', ms: LONGEST_MS };
    }
    this.#counts.reserved += 1;
    appointments.reservedAt = at;
    this.#promises[key] = at;
    this.#order.push({ key, at });
    return { kind: 'reserved', ms };
  }

  /** Whether this request comes at the time that it was given. The time is used up by it. */
  redeem(key: string | undefined, now: number): boolean {
    const at = key === undefined ? undefined : this.#promises[key];
    if (key === undefined || at === undefined || now < at - EARLY_MS) return false;
    Reflect.deleteProperty(this.#promises, key);
    if (now > at + LATE_MS) return false;
    this.#counts.kept += 1;
    return true;
  }

  /** Removes what is past from the head. */
  #forget(now: number): void {
    for (let first = this.#order[this.#from]; first !== undefined; first = this.#order[this.#from]) {
      if (now <= first.at + LATE_MS) break;
      if (this.#promises[first.key] === first.at) Reflect.deleteProperty(this.#promises, first.key);
      this.#from += 1;
    }
    // Half of the array is past: amortized O(1).
    if (this.#from < 64 || this.#from * 2 < this.#order.length) return;
    this.#order = this.#order.slice(this.#from);
    this.#from = 0;
  }
}
