/**
 * What one key may use: requests at once, and requests in any 60 seconds ({@link RequestLimits}). Its tokens are in quotas.ts.
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
 * All of it is counted by key, not by account: a rotated key starts at zero. The counts are in memory: every key starts at
 * zero after a restart, and sidecars share them only through a store (store/limits.ts).
 */
import type { LimitLeft } from '../domain/limit-left.js';
import type { Clock } from '../lib/clock.js';

/** Routes that are counted together: both decision routes are one group, and so are embeddings and rerank. */
export const LIMIT_GROUPS = ['decisions', 'chat', 'embeddings', 'models'] as const;
export type LimitGroup = (typeof LIMIT_GROUPS)[number];

/** 0: no limit. */
export interface Limit {
  readonly inFlight: number;
  /** Requests in any 60 seconds. */
  readonly perMinute: number;
}

/** A key's own limits; missing ones are as configured. */
export type KeyLimits = Readonly<Partial<Record<LimitGroup, Partial<Limit>>>>;

/** The most tokens, of prompts and of completions, in a time; at least 1. Absent: no quota. */
export interface TokenLimits {
  /** In any 60 seconds. */
  readonly tokensPerMinute?: number;
  /** From one midnight UTC to the next. */
  readonly tokensPerDay?: number;
  /** In a calendar month, UTC. */
  readonly tokensPerMonth?: number;
}

export const TOKEN_LIMITS = [
  'tokensPerMinute',
  'tokensPerDay',
  'tokensPerMonth',
] as const satisfies readonly (keyof TokenLimits)[];

/** The quotas among the fields of a key or an account. */
export function tokenLimitsOf(from: TokenLimits): TokenLimits {
  const limits: Partial<Record<keyof TokenLimits, number>> = {};
  for (const name of TOKEN_LIMITS) {
    const most = from[name];
    if (most !== undefined) limits[name] = most;
  }
  return limits;
}

/** The key whose limits and quotas apply. */
export interface LimitedCaller extends TokenLimits {
  readonly account: string;
  readonly keyId: string;
  /** Its own limits over the configured ones. */
  readonly limits?: KeyLimits;
  /** Quotas of all keys of the account together; absent: none. */
  readonly accountTokens?: TokenLimits;
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
      /** When a request would be admitted if no other of the key comes before it; an estimate for the limit in flight. */
      readonly retryAfterMs: number;
    };

/** What a store of a fleet's counts answers: it may not answer. */
export type FleetLimitResult = LimitResult | { readonly kind: 'unavailable'; readonly retryAfterMs: number };

/** Requests of each key: of this process ({@link RequestLimits}), or of a fleet (store/limits.ts). Never throws or rejects. */
export interface KeyLimiter {
  /** Takes a permit for a request of this key, or returns how long to wait for one. */
  take(caller: LimitedCaller, group: LimitGroup): LimitResult | Promise<FleetLimitResult>;
  /** Of a key's requests in any 60 seconds, those in flight counted; undefined if there is no limit. */
  remaining(caller: LimitedCaller, group: LimitGroup): LimitLeft | undefined;
  /** Of a key's requests at once; undefined if there is no limit. */
  inFlightLeft(caller: LimitedCaller, group: LimitGroup): Omit<LimitLeft, 'resetMs'> | undefined;
}

/** The limits of a key: its own over the configured ones. */
export function limitOf(
  { limits }: LimitedCaller,
  group: LimitGroup,
  defaults: Readonly<Record<LimitGroup, Limit>>,
): Limit {
  return Object.assign({}, defaults[group], limits?.[group]);
}

const MINUTE_MS = 60_000;

/** The end of the requests in flight is unknown; clients wait a second by default. */
const IN_FLIGHT_RETRY_MS = 1000;

/** Keys with counts, since an authorizer may report a new key with each request. Who counts them says which ones it forgets past it. */
export const MOST_KEYS = 65_536;

/** Keys that each request checks for removal: two per possibly new key keep the map from growing. */
const FORGET_STEPS = 2;

interface Usage {
  inFlight: number;
  readonly minute: SlidingWindow;
}

/**
 * Requests of each key, in flight and in the last minute, by group. Past {@link MOST_KEYS} idle keys, those checked longest ago are
 * forgotten: their next request is the first of its minute.
 */
export class RequestLimits implements KeyLimiter {
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

  take(caller: LimitedCaller, group: LimitGroup): LimitResult {
    const { inFlight, perMinute } = limitOf(caller, group, this.#defaults);
    this.#forget();
    const now = this.#clock.now();
    const usage = this.#usageOf(groupedId(caller, group));
    const waitMs = perMinute === 0 ? 0 : usage.minute.waitUntilBelow(perMinute, now);
    if (waitMs > 0) return { kind: 'limited', by: 'perMinute', retryAfterMs: Math.ceil(waitMs) };
    if (inFlight > 0 && usage.inFlight >= inFlight) {
      return { kind: 'limited', by: 'inFlight', retryAfterMs: IN_FLIGHT_RETRY_MS };
    }
    return { kind: 'taken', permit: hold(usage, now, perMinute > 0) };
  }

  remaining(caller: LimitedCaller, group: LimitGroup): LimitLeft | undefined {
    const { perMinute } = limitOf(caller, group, this.#defaults);
    if (perMinute === 0) return undefined;
    const now = this.#clock.now();
    const minute = this.#usage.get(groupedId(caller, group))?.minute;
    const used = minute?.countAt(now) ?? 0;
    const resetMs = minute?.waitUntilBelow(1, now) ?? 0;
    return { limit: perMinute, remaining: Math.max(0, perMinute - used), resetMs };
  }

  inFlightLeft(caller: LimitedCaller, group: LimitGroup): Omit<LimitLeft, 'resetMs'> | undefined {
    const { inFlight: limit } = limitOf(caller, group, this.#defaults);
    if (limit === 0) return undefined;
    const used = this.#usage.get(groupedId(caller, group))?.inFlight ?? 0;
    return { limit, remaining: Math.max(0, limit - used) };
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

/** Names what is counted together: the requests of one key at one group of routes. */
export function groupedId({ account, keyId }: LimitedCaller, group: LimitGroup): string {
  return JSON.stringify([group, account, keyId]);
}

/** A counted event, or several of one time; {@link SlidingWindow.remove} removes it, once. */
export interface Stamp {
  /** Clock reading. */
  readonly at: number;
  readonly events: number;
  older: Stamp | undefined;
  newer: Stamp | undefined;
  /** Whether it is in the window, as of the last check. */
  counted: boolean;
}

/**
 * Number of events in the last `spanMs`: exact, since each has its own time.
 *
 *     oldest ─ ○ ─ ○ ─ ○ ─ newest        expired at the oldest end, added at the newest, removed anywhere
 *
 * A linked list rather than a ring buffer, since removals then leave no gap: memory is proportional to the counted
 * events only. A stamp counts from its own time for exactly `spanMs`. The clock must never go back.
 */
export class SlidingWindow {
  readonly #spanMs: number;
  #oldest: Stamp | undefined;
  #newest: Stamp | undefined;
  #count = 0;

  constructor(spanMs: number) {
    this.#spanMs = spanMs;
  }

  /** Number of events that count at `now`. Each expires once, so the amortized cost is constant. */
  countAt(now: number): number {
    while (this.#oldest && this.#oldest.at + this.#spanMs <= now) this.remove(this.#oldest);
    return this.#count;
  }

  /** Adds an event, or several. `now` must not be before any that was added. */
  add(now: number, events = 1): Stamp {
    const stamp: Stamp = { at: now, events, older: this.#newest, newer: undefined, counted: true };
    if (this.#newest) this.#newest.newer = stamp;
    else this.#oldest = stamp;
    this.#newest = stamp;
    this.#count += events;
    return stamp;
  }

  /** Removes an event; does nothing if it has expired or was removed. */
  remove(stamp: Stamp): void {
    if (!stamp.counted) return;
    stamp.counted = false;
    if (stamp.older) stamp.older.newer = stamp.newer;
    else this.#oldest = stamp.newer;
    if (stamp.newer) stamp.newer.older = stamp.older;
    else this.#newest = stamp.older;
    // So that a kept stamp does not keep others alive.
    stamp.older = stamp.newer = undefined;
    this.#count -= stamp.events;
  }

  /** Milliseconds from `now` until fewer than `limit` (at least 1) count, if none is added. O(those that must expire before). */
  waitUntilBelow(limit: number, now: number): number {
    let over = this.countAt(now) - limit;
    let last = over < 0 ? undefined : limit === 1 ? this.#newest : this.#oldest;
    for (; last?.newer && over >= last.events; last = last.newer) over -= last.events;
    return last === undefined ? 0 : last.at + this.#spanMs - now;
  }
}
