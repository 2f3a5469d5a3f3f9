/**
 * Quotas of tokens, of one key and of all keys of an account: in any 60 seconds, by day and by month (UTC).
 *
 *     limit ≥ settled + reserved
 *
 * A request reserves tokens before it is dispatched and more as its reply grows. At its end it settles the tokens that are billed, which
 * releases the rest. As with credit, all of it happens synchronously on one event loop, so two requests cannot use the same token.
 *
 * The day and the month of a request are those in which it ends, as in the totals of usage: what is reserved at midnight counts in the new
 * day. In the minute a token counts from the extension after it was generated, or from the request's end, for 60 seconds.
 *
 * A count begins at what the totals of usage have. The minute begins at zero with the process. Sidecars share their counts only through a
 * store (store/quotas.ts).
 */
import type { LimitLeft } from '../domain/limit-left.js';
import type { Clock } from '../lib/clock.js';
import { MOST_KEYS, SlidingWindow, TOKEN_LIMITS, type LimitedCaller, type Stamp, type TokenLimits } from './limits.js';

/** Whose tokens a quota counts. */
export type QuotaScope = 'key' | 'account';

/** A quota and what is left of it. */
export interface QuotaLeft extends LimitLeft {
  readonly scope: QuotaScope;
  readonly name: keyof TokenLimits;
}

/** Tokens reserved by one request. Its owner must settle it; only the first call counts. */
export interface TokenReservation<Extended = number | Promise<number>> {
  /** What the store of a fleet knows it by; the request's records have it as `quota`. Absent: it is counted in no store. */
  readonly request?: number;
  /** Changes it to `tokens` in all, of which `used` are used by now. Returns how many are reserved: fewer if a quota has no more. */
  extend(tokens: number, used: number): Extended;
  /** Settles the tokens that are billed; the rest is released. */
  settle(tokens: number): void;
}

export type TokensReserved<R = TokenReservation> =
  | {
      readonly kind: 'reserved';
      readonly reservation: R;
      /** A quota applies. */
      readonly limited: boolean;
    }
  | QuotaExceeded
  /** Earlier usage of the day and the month is not known yet. */
  | { readonly kind: 'unknown' };

/** What a store of a fleet's counts answers: it may not answer. */
export type FleetTokensReserved = TokensReserved | { readonly kind: 'unavailable'; readonly retryAfterMs: number };

export type TokensRefused = Exclude<FleetTokensReserved, { readonly kind: 'reserved' }>;

/** Quotas of tokens: of this process ({@link QuotaLedger}), or of a fleet (store/quotas.ts). Never throws or rejects. */
export interface TokenQuotas {
  /** Why so many tokens cannot be reserved now, as far as is known without asking a store; undefined if they can. */
  problem(caller: LimitedCaller, tokens: number): TokensRefused | undefined;
  /** Reserves tokens in all quotas, or in none. */
  reserve(caller: LimitedCaller, tokens: number): FleetTokensReserved | Promise<FleetTokensReserved>;
  /** Each quota that applies to a caller, those of its key first. None while earlier usage is not known. */
  left(caller: LimitedCaller): QuotaLeft[];
}

export interface QuotaExceeded {
  readonly kind: 'exceeded';
  /** Of those that lack tokens, the quota that has them last. */
  readonly quota: Pick<QuotaLeft, 'scope' | 'name' | 'limit'>;
  /**
   * When the quota has as many tokens again, if nothing else is reserved; an estimate where running requests have reserved them. Infinity:
   * never, since the whole quota has fewer.
   */
  readonly retryAfterMs: number;
}

/** Tokens that are billed, of an account in a day such as `2026-10-03`. `keyId`: of this key alone. */
export type EarlierTokens = (day: string, account: string, keyId?: string) => number;

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** The end of running requests is unknown; clients wait a second by default. */
export const RUNNING_RETRY_MS = 1000;

/** Meters that are checked for one that can be forgotten; those of running requests cannot. */
const FORGET_TRIES = 16;

class Meter {
  /** Absent: no quota asks for it so far. */
  minute: SlidingWindow | undefined;
  /** Tokens of the requests that ended in the day and the month with these numbers. */
  day = 0;
  month = 0;
  dayNumber: number;
  monthNumber: number;
  /** Tokens that running requests have reserved, and those of them that `minute` has already. */
  reserved = 0;
  counted = 0;

  constructor({ dayNumber, monthNumber }: Pick<Meter, 'dayNumber' | 'monthNumber'>) {
    this.dayNumber = dayNumber;
    this.monthNumber = monthNumber;
  }
}

/** The quotas of one scope that apply to a request, and their meter. */
interface Metered {
  readonly scope: QuotaScope;
  readonly limits: TokenLimits;
  readonly meter: Meter;
}

/** A request's tokens in one meter. */
interface Share {
  readonly id: string;
  /** Absent: no quota applied when the request began. */
  readonly meter: Meter | undefined;
  readonly stamps: Stamp[];
  /** Tokens in `stamps`. */
  counted: number;
}

/**
 * The quotas of this process. Past {@link MOST_KEYS} idle keys and accounts, the one that ended a request longest ago is forgotten, and
 * begins again at what the totals have.
 */
export class QuotaLedger implements TokenQuotas {
  readonly #clock: Clock;
  readonly #date: () => Date;
  readonly #earlier: () => EarlierTokens | undefined;
  /** The one that ended a request longest ago first. */
  readonly #meters = new Map<string, Meter>();
  #outstanding = 0;
  /** The day that is counted, in days since 1970, and the numbers of days and months since the start. */
  #day = -Infinity;
  #dayNumber = 0;
  #monthNumber = 0;

  /** `clock`: for the minute; `date`: wall-clock time. `earlier`: returns undefined while earlier usage is not known. */
  constructor(clock: Clock, date: () => Date, earlier: () => EarlierTokens | undefined = () => NOTHING) {
    this.#clock = clock;
    this.#date = date;
    this.#earlier = earlier;
  }

  /** Keys and accounts that are counted. */
  get size(): number {
    return this.#meters.size;
  }

  /** Reservations that have not ended. */
  get outstanding(): number {
    return this.#outstanding;
  }

  problem(caller: LimitedCaller, tokens: number): Exclude<TokensReserved, { kind: 'reserved' }> | undefined {
    const metered = this.#metered(caller);
    return metered === 'unknown' ? { kind: 'unknown' } : this.#exceeded(metered, tokens);
  }

  reserve(caller: LimitedCaller, tokens: number): TokensReserved<TokenReservation<number>> {
    const metered = this.#metered(caller);
    if (metered === 'unknown') return { kind: 'unknown' };
    const exceeded = this.#exceeded(metered, tokens);
    if (exceeded) return exceeded;
    for (const { meter } of metered) meter.reserved += tokens;
    this.#outstanding += 1;
    const shares = SCOPES.map((scope): Share => ({
      id: idOf(caller, scope),
      meter: metered.find((each) => each.scope === scope)?.meter,
      stamps: [],
      counted: 0,
    }));
    let reserved = tokens;
    let mostUsed = 0;
    let over = false;
    return {
      kind: 'reserved',
      limited: metered.length > 0,
      reservation: {
        extend: (wanted, used) => {
          if (over) return reserved;
          for (const share of shares) this.#count(share, used);
          // Those that a minute has counted stay reserved: they leave it before the request's end.
          mostUsed = Math.max(mostUsed, used);
          const further = Math.min(Math.max(wanted, mostUsed) - reserved, this.#free(metered));
          for (const { meter } of metered) meter.reserved += further;
          reserved += further;
          return reserved;
        },
        settle: (used) => {
          if (over) return;
          over = true;
          this.#outstanding -= 1;
          for (const share of shares) this.#settle(share, reserved, used);
        },
      },
    };
  }

  left(caller: LimitedCaller): QuotaLeft[] {
    const metered = this.#metered(caller);
    if (metered === 'unknown') return [];
    const now = this.#clock.now();
    return metered.flatMap(({ scope, limits, meter }) =>
      namesIn(limits).map((name) => {
        const limit = limits[name] ?? 0;
        const resetMs =
          name === 'tokensPerMinute' ? (meter.minute?.waitUntilBelow(1, now) ?? 0) : this.#untilNext(name);
        return { scope, name, limit, remaining: Math.max(0, limit - usedOf(meter, name, now)), resetMs };
      }),
    );
  }

  #metered(caller: LimitedCaller): readonly Metered[] | 'unknown' {
    const metered: Metered[] = [];
    for (const scope of SCOPES) {
      const limits = limitsIn(caller, scope);
      if (namesIn(limits).length === 0) continue;
      const meter = this.#meterOf(caller, scope);
      if (!meter) return 'unknown';
      if (limits.tokensPerMinute !== undefined) meter.minute ??= new SlidingWindow(MINUTE_MS);
      metered.push({ scope, limits, meter });
    }
    return metered;
  }

  /** Undefined while earlier usage is not known. */
  #meterOf(caller: LimitedCaller, scope: QuotaScope): Meter | undefined {
    this.#turn();
    const id = idOf(caller, scope);
    const known = this.#meters.get(id);
    if (known) return this.#turned(known);
    const earlier = this.#earlier();
    if (!earlier) return undefined;
    const made = new Meter({ dayNumber: this.#dayNumber, monthNumber: this.#monthNumber });
    const days = daysOfMonth(this.#day).map((day) =>
      earlier(day, caller.account, ...(scope === 'key' ? [caller.keyId] : [])),
    );
    made.day = days.at(-1) ?? 0;
    made.month = days.reduce((sum, tokens) => sum + tokens, 0);
    this.#forget();
    this.#meters.set(id, made);
    return made;
  }

  /** The meter in the present day and month. */
  #turned(meter: Meter): Meter {
    if (meter.dayNumber !== this.#dayNumber) meter.day = 0;
    if (meter.monthNumber !== this.#monthNumber) meter.month = 0;
    meter.dayNumber = this.#dayNumber;
    meter.monthNumber = this.#monthNumber;
    return meter;
  }

  #exceeded(metered: readonly Metered[], tokens: number): QuotaExceeded | undefined {
    const now = this.#clock.now();
    let found: QuotaExceeded | undefined;
    this.#turn();
    for (const { scope, limits, meter } of metered) {
      this.#turned(meter);
      for (const name of namesIn(limits)) {
        const limit = limits[name] ?? 0;
        if (usedOf(meter, name, now) + tokens <= limit) continue;
        const retryAfterMs = tokens > limit ? Infinity : this.#retryMs(meter, name, limit - tokens, now);
        if (found && found.retryAfterMs >= retryAfterMs) continue;
        found = { kind: 'exceeded', quota: { scope, name, limit }, retryAfterMs };
      }
    }
    return found;
  }

  /** Tokens that all quotas have left. */
  #free(metered: readonly Metered[]): number {
    const now = this.#clock.now();
    this.#turn();
    return metered.reduce((free, { limits, meter }) => {
      this.#turned(meter);
      const left = namesIn(limits).map((name) => (limits[name] ?? 0) - usedOf(meter, name, now));
      return Math.max(0, Math.min(free, ...left));
    }, Infinity);
  }

  /** When no more than `most` tokens are settled in the time of the quota, ms. */
  #retryMs(meter: Meter, name: keyof TokenLimits, most: number, now: number): number {
    if (name !== 'tokensPerMinute') {
      const settled = name === 'tokensPerDay' ? meter.day : meter.month;
      return settled <= most ? RUNNING_RETRY_MS : this.#untilNext(name);
    }
    return Math.max(RUNNING_RETRY_MS, Math.ceil(meter.minute?.waitUntilBelow(most + 1, now) ?? 0));
  }

  /** A request has used so many tokens by now. */
  #count(share: Share, used: number): void {
    const { meter, stamps } = share;
    const more = used - share.counted;
    if (!meter?.minute || more <= 0) return;
    stamps.push(meter.minute.add(this.#clock.now(), more));
    meter.counted += more;
    share.counted = used;
  }

  #settle({ id, meter: held, stamps, counted }: Share, reserved: number, used: number): void {
    // A quota may have been set while the request ran.
    const meter = held ?? this.#meters.get(id);
    if (!meter) return;
    this.#turn();
    this.#turned(meter);
    if (held) {
      held.reserved -= reserved;
      held.counted -= counted;
    }
    // Of a reply that is not billed nothing counts.
    if (used < counted) for (const stamp of stamps) meter.minute?.remove(stamp);
    const more = used < counted ? used : used - counted;
    if (more > 0) meter.minute?.add(this.#clock.now(), more);
    meter.day += used;
    meter.month += used;
    if (this.#meters.delete(id)) this.#meters.set(id, meter);
  }

  /** Makes room for another meter. */
  #forget(): void {
    for (let tries = 0; this.#meters.size >= MOST_KEYS && tries < FORGET_TRIES; tries += 1) {
      const [first] = this.#meters;
      if (!first) return;
      const [id, meter] = first;
      this.#meters.delete(id);
      if (meter.reserved > 0) this.#meters.set(id, meter);
    }
  }

  /** Until the next day or month, ms, at most 31 days. */
  #untilNext(name: 'tokensPerDay' | 'tokensPerMonth'): number {
    this.#turn();
    const now = this.#date();
    const next =
      name === 'tokensPerDay'
        ? DAY_MS * (Math.floor(now.getTime() / DAY_MS) + 1)
        : Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1);
    return next - now.getTime();
  }

  /**
   * Begins a new day or month. A clock that is set back over midnight does not begin that day a second time. If it is set back by more than
   * a day, the day follows it, so that no key waits for a day in the far future; the counts stay until the next midnight.
   */
  #turn(): void {
    const day = Math.floor(this.#date().getTime() / DAY_MS);
    if (day > this.#day) {
      this.#dayNumber += 1;
      if (monthOf(day) !== monthOf(this.#day)) this.#monthNumber += 1;
    }
    if (day > this.#day || day < this.#day - 1) this.#day = day;
  }
}

/** Those of the key come first. */
export const SCOPES = ['key', 'account'] as const satisfies readonly QuotaScope[];
const NO_QUOTAS: TokenLimits = {};
const NOTHING: EarlierTokens = () => 0;

export function limitsIn(caller: LimitedCaller, scope: QuotaScope): TokenLimits {
  return scope === 'key' ? caller : (caller.accountTokens ?? NO_QUOTAS);
}

function namesIn(limits: TokenLimits): (keyof TokenLimits)[] {
  return TOKEN_LIMITS.filter((name) => limits[name] !== undefined);
}

/** Tokens that are settled or reserved in the time of a quota. */
function usedOf({ minute, day, month, reserved, counted }: Meter, name: keyof TokenLimits, now: number): number {
  if (name === 'tokensPerMinute') return (minute?.countAt(now) ?? 0) + reserved - counted;
  return reserved + (name === 'tokensPerDay' ? day : month);
}

/** Names whose tokens are counted together. */
export function idOf({ account, keyId }: LimitedCaller, scope: QuotaScope): string {
  return JSON.stringify(scope === 'key' ? [account, keyId] : [account]);
}

/** `2026-10` of a day, in days since 1970. */
function monthOf(day: number): string {
  return day === -Infinity ? '' : new Date(day * DAY_MS).toISOString().slice(0, 'YYYY-MM'.length);
}

/** The days of a month up to the given one, in days since 1970, as in `2026-10-03`. */
function daysOfMonth(day: number): string[] {
  const last = new Date(day * DAY_MS).getUTCDate();
  return Array.from({ length: last }, (_, i) => new Date((day - last + 1 + i) * DAY_MS).toISOString().slice(0, 10));
}
