/**
 * Limits of one key: concurrent requests, and requests in any 60 seconds.
 *
 *     take ──> held ──end(true):  it ran────────> counts until 60 s after it was taken
 *        │        └───end(false): it was refused──> not counted
 *        └──> limited: not counted
 *
 * A request has a permit from right after the key's check until its response has ended. It counts in the minute as
 * soon as it is taken, since counting at the end would admit any number at once; a request that is refused later is
 * removed again.
 *
 * Requests in flight are counted also without a limit, since one may be set while they run. Those of the minute are not,
 * since their number is unbounded then.
 *
 * Limits are per key, not per account: a rotated key starts at zero, and so does every key after a restart. Sidecars do
 * not share the counts.
 */
import type { Clock } from '../lib/clock.js';
import { SlidingWindow } from './window.js';

/** Routes that are counted together: both decision routes are one group. */
export const LIMIT_GROUPS = ['decisions', 'chat', 'models'] as const;
export type LimitGroup = (typeof LIMIT_GROUPS)[number];

/** 0: no limit. */
export interface Limit {
  /** Requests in flight at once. */
  readonly inFlight: number;
  /** Requests in any 60 seconds. */
  readonly perMinute: number;
}

/** A key's own limits; missing ones are as configured. */
export type KeyLimits = Readonly<Partial<Record<LimitGroup, Partial<Limit>>>>;

/** The key whose limits apply. */
export interface LimitedCaller {
  readonly account: string;
  readonly keyId: string;
  readonly limits?: KeyLimits;
}

/** A request's share of its key's limits. Its owner must end it. */
export interface Permit {
  /** The response has ended. `ran`: it counts in its minute; otherwise it was refused. Only the first call counts. */
  end(ran: boolean): void;
}

export type LimitResult =
  | { readonly kind: 'taken'; readonly permit: Permit }
  | {
      readonly kind: 'limited';
      readonly by: keyof Limit;
      /**
       * When a request would be admitted if no other of the key comes before it; an estimate for the limit in flight.
       */
      readonly retryAfterMs: number;
    };

const MINUTE_MS = 60_000;

/** The end of the requests in flight is unknown; clients wait a second by default. */
const IN_FLIGHT_RETRY_MS = 1000;

/**
 * Keys with counts of the last minute alone, in each group once. An authorizer may report a new key with each request; past this number
 * those that were checked longest ago are forgotten, and their next request is the first of its minute.
 */
export const MOST_KEYS = 65_536;

/** Keys that each request checks for removal: two per possibly new key keep the map from growing. */
const FORGET_STEPS = 2;

interface Usage {
  inFlight: number;
  readonly minute: SlidingWindow;
}

export class RequestLimits {
  readonly #clock: Clock;
  readonly #defaults: Readonly<Record<LimitGroup, Limit>>;
  /** By group and key. */
  readonly #usage = new Map<string, Usage>();
  /** Those that were checked longest ago; a Map's iterator also returns what is added later. */
  #unchecked = this.#usage.entries();

  /** `defaults`: for keys without limits of their own. */
  constructor(clock: Clock, defaults: Readonly<Record<LimitGroup, Limit>>) {
    this.#clock = clock;
    this.#defaults = defaults;
  }

  /** Number of remembered keys, by group: those of the last minute or in flight, and some more for a while. */
  get size(): number {
    return this.#usage.size;
  }

  /** Takes a permit for a request of this key, or returns how long to wait for one. */
  take({ account, keyId, limits }: LimitedCaller, group: LimitGroup): LimitResult {
    const { inFlight, perMinute } = { ...this.#defaults[group], ...limits?.[group] };
    this.#forget();
    const now = this.#clock.now();
    const usage = this.#usageOf(JSON.stringify([group, account, keyId]));
    const waitMs = perMinute === 0 ? 0 : usage.minute.waitUntilBelow(perMinute, now);
    if (waitMs > 0) return { kind: 'limited', by: 'perMinute', retryAfterMs: Math.ceil(waitMs) };
    if (inFlight > 0 && usage.inFlight >= inFlight) {
      return { kind: 'limited', by: 'inFlight', retryAfterMs: IN_FLIGHT_RETRY_MS };
    }
    return { kind: 'taken', permit: hold(usage, now, perMinute > 0) };
  }

  #usageOf(id: string): Usage {
    const known = this.#usage.get(id);
    if (known) return known;
    const usage: Usage = { inFlight: 0, minute: new SlidingWindow(MINUTE_MS) };
    this.#usage.set(id, usage);
    return usage;
  }

  /** Removes keys without counts, a few at a time, in turn. */
  #forget(): void {
    const now = this.#clock.now();
    for (let step = 0; step < FORGET_STEPS; step++) {
      let next = this.#unchecked.next();
      if (next.done === true) next = (this.#unchecked = this.#usage.entries()).next();
      if (next.done === true) return;
      const [id, usage] = next.value;
      const isKept = this.#usage.size < MOST_KEYS && usage.minute.countAt(now) > 0;
      if (usage.inFlight === 0 && !isKept) this.#usage.delete(id);
    }
  }
}

/** `counts`: whether it counts in the minute. */
function hold(usage: Usage, now: number, counts: boolean): Permit {
  const stamp = counts ? usage.minute.add(now) : undefined;
  usage.inFlight++;
  let over = false;
  return {
    end: (ran) => {
      if (over) return;
      over = true;
      usage.inFlight--;
      if (!ran && stamp) usage.minute.remove(stamp);
    },
  };
}
