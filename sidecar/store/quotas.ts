/**
 * Quotas of tokens over a fleet, counted in the store (migrations/quotas.ts). One call of an account is in flight, or of a key where its
 * account has no quota: in the store they wait for one lock, and each would keep a connection from other accounts. Requests that begin
 * meanwhile, and replies that need more tokens, wait for the next one, those of a key together, no longer than `store.timeoutMs` in all:
 *
 *     reserve ──> reserved ──extend──> reserved ... ──settle──> sent by Ends until the store has heard of it
 *        └──> exceeded, unavailable
 *
 * A request is one round trip, and a reply one more for each part of its tokens, of which it asks ahead. A reply that runs while the store does
 * not answer goes on: all that it used counts at its end. A caller without a quota asks nothing, and its tokens are not counted. The records
 * of a request name its reservation, so that {@link Ends} can settle it after a kill too.
 */
import { MOST_KEYS, TOKEN_LIMITS, type LimitedCaller, type TokenLimits } from '../access/limits.js';
import {
  idOf,
  limitsIn,
  RUNNING_RETRY_MS,
  SCOPES,
  type FleetTokensReserved,
  type QuotaLeft,
  type QuotaLedger,
  type TokenQuotas,
  type TokenReservation,
  type TokensRefused,
} from '../access/quotas.js';
import type { Clock } from '../lib/clock.js';
import { setNewest } from '../lib/id-map.js';
import type { Log } from '../telemetry/logger.js';
import { billedTokensOf } from '../usage/totals.js';
import type { Database } from './database.js';
import { Ends, type Left } from './ends.js';
import { LATER_MS, LOCK_PART, RETRY_MS, uuidOf } from './limits.js';
import type { Replica } from './replica.js';

/** The time between two removals of old stamps by one replica, ms. */
const SWEEP_MS = 5000;

const MINUTE_MS = 60_000;

/** How long an answer that a quota is used up is remembered, ms: a poor caller asks the store no more often. */
const REMEMBERED_MS = 250;

/** Requests and extensions of one call; the others follow in the next. */
const TOGETHER = 200;

interface Taken {
  readonly outcome: 'done' | 'fenced' | 'lease' | 'late';
  readonly granted: readonly string[];
  readonly taken: readonly string[];
  readonly reset_ms: readonly string[];
  readonly lacking: number;
  readonly retry_ms: string;
}

/** A request that begins, or a reply that needs more. */
interface Waiting {
  /** Clock reading. */
  readonly since: number;
  /** Absent: it begins. */
  readonly runs?: { readonly request: number; readonly used: number };
  /** In all. */
  readonly tokens: number;
  readonly answered: (answer: Answered) => void;
}

type Answered =
  /** So many tokens in all. */
  | { readonly kind: 'granted'; readonly request: number; readonly tokens: number }
  | { readonly kind: 'exceeded' }
  | { readonly kind: 'down'; readonly retryAfterMs: number };

/** A caller with quotas that its requests were read with, and what the store last answered for it. */
interface Metered {
  readonly keys: readonly string[];
  readonly quotas: readonly Pick<QuotaLeft, 'scope' | 'name' | 'limit'>[];
  /** Of each quota, its place among those of `take_tokens`. */
  readonly places: readonly number[];
  /** By place: null: no such quota. */
  readonly limits: readonly (number | null)[];
  readonly waiting: Waiting[];
  /** By place: tokens used or reserved, and the clock reading at which the quota is whole again. */
  taken: number[];
  resetAt: number[];
  /** Clock reading of the answer. */
  seenAt: number;
  /** The last request that the store refused: its tokens, the place of the quota, clock readings of the answer and of when to try again. */
  refused:
    { readonly tokens: number; readonly lacking: number; readonly at: number; readonly retryAt: number } | undefined;
}

export interface StoreQuotasOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly database: Database;
  readonly replica: Replica;
  readonly whenDown: 'refuse' | 'share';
  /** How long a request waits for the store, ms. */
  readonly timeoutMs: number;
}

/** Tokens of each key and account over all replicas. */
export class StoreQuotas implements TokenQuotas {
  readonly #options: StoreQuotasOptions;
  readonly ends: Ends<number>;
  /** Those that were asked for last, the latest last. */
  readonly #metered = new Map<string, Metered>();
  /** Of each lock that the store is asked to take: those with requests that wait. */
  readonly #queues = new Map<string, Set<Metered>>();
  /** Counts what this sidecar uses, for its share while the store does not answer. */
  #own: QuotaLedger | undefined;

  constructor(options: StoreQuotasOptions) {
    this.#options = options;
    const { log, replica } = options;
    const left: Left<number> = {
      log,
      fn: 'left_tokens',
      nameOf: ({ quota }) => quota?.toString(),
      // Of a request whose records are gone all that was reserved counts.
      howOf: (closes, gone, { tokens }) =>
        gone && closes.length === 0 ? Number(tokens) : closes.reduce((sum, close) => sum + billedTokensOf(close), 0),
    };
    this.ends = new Ends({ ...options, fn: 'settle_tokens', none: 0, left });
    replica.oldest.push(() => this.ends.oldest);
    replica.sweeps('sweep_tokens', SWEEP_MS);
  }

  /** Requests for which the store has reserved tokens, or may have. */
  get size(): number {
    return this.ends.size;
  }

  problem(caller: LimitedCaller, tokens: number): TokensRefused | undefined {
    const metered = this.#meteredOf(caller);
    const now = this.#options.clock.now();
    if (!metered || now >= metered.seenAt + REMEMBERED_MS) return undefined;
    return this.left(caller).some(({ remaining }) => remaining < tokens)
      ? this.#exceeded(caller, metered, tokens)
      : undefined;
  }

  reserve(caller: LimitedCaller, tokens: number): FleetTokensReserved | Promise<FleetTokensReserved> {
    const metered = this.#meteredOf(caller);
    if (!metered) return { kind: 'reserved', limited: false, reservation: NOT_COUNTED };
    const whole = metered.quotas.find(({ limit }) => tokens > limit);
    if (whole) return { kind: 'exceeded', quota: whole, retryAfterMs: Infinity };
    const { refused } = metered;
    return refused && tokens >= refused.tokens && this.#options.clock.now() < refused.at + REMEMBERED_MS
      ? this.#exceeded(caller, metered, tokens)
      : this.#reserve(caller, metered, tokens);
  }

  left(caller: LimitedCaller): QuotaLeft[] {
    const metered = this.#meteredOf(caller);
    const now = this.#options.clock.now();
    return (metered?.quotas ?? []).map((quota, i) => {
      const place = metered?.places[i] ?? 0;
      const resetMs = Math.max(0, (metered?.resetAt[place] ?? 0) - now);
      const isOver = quota.name === 'tokensPerMinute' ? now > (metered?.seenAt ?? 0) + MINUTE_MS : resetMs === 0;
      const taken = isOver ? 0 : (metered?.taken[place] ?? 0);
      return { ...quota, remaining: Math.max(0, quota.limit - taken), resetMs };
    });
  }

  /** `own`: counts what this sidecar alone uses. Call it once, before the first request. */
  begin(own: QuotaLedger): void {
    this.#own = own;
  }

  /** Undefined if no quota applies. */
  #meteredOf(caller: LimitedCaller): Metered | undefined {
    const scopes = SCOPES.filter((scope) => TOKEN_LIMITS.some((name) => limitsIn(caller, scope)[name] !== undefined));
    if (scopes.length === 0) return undefined;
    const limits = scopes.flatMap((scope) => TOKEN_LIMITS.map((name) => limitsIn(caller, scope)[name] ?? null));
    const ids = scopes.map((scope) => idOf(caller, scope));
    const name = JSON.stringify([ids, limits]);
    const found = this.#metered.get(name) ?? metered(ids, limits, scopes);
    setNewest(this.#metered, name, found, MOST_KEYS);
    return found;
  }

  async #reserve(caller: LimitedCaller, metered: Metered, tokens: number): Promise<FleetTokensReserved> {
    const answer = await this.#ask(metered, tokens);
    if (answer.kind === 'down') return this.#down(caller, tokens, answer.retryAfterMs);
    if (answer.kind === 'exceeded') return this.#exceeded(caller, metered, tokens);
    const own = this.#countOwn(caller, tokens);
    const { request } = answer;
    let reserved = tokens;
    let over = false;
    return {
      kind: 'reserved',
      limited: true,
      reservation: {
        request,
        extend: async (wanted, used) => {
          if (over) return reserved;
          const extended = await this.#ask(metered, wanted, { request, used });
          // Otherwise what it uses counts at its end.
          reserved = extended.kind === 'granted' ? extended.tokens : Math.max(reserved, wanted);
          return reserved;
        },
        settle: (used) => {
          if (over) return;
          over = true;
          own?.settle(used);
          metered.taken = metered.taken.map((taken) => taken + used - reserved);
          metered.refused = undefined;
          const isFew = metered.quotas.every(
            ({ limit }, i) => limit > 2 * (metered.taken[metered.places[i] ?? 0] ?? 0),
          );
          this.ends.end(request, used, isFew ? LATER_MS : 0);
        },
      },
    };
  }

  /** Names the quota that the store found to have enough last, unless only another one lacks tokens now. */
  #exceeded(caller: LimitedCaller, { places, refused }: Metered, tokens: number): TokensRefused {
    const left = this.left(caller);
    const lacks = left.filter(({ remaining }) => remaining < tokens);
    const last = left[places.indexOf(refused?.lacking ?? -1)];
    const quota = (last && lacks.includes(last) ? last : lacks[0]) ?? last;
    if (!quota) return { kind: 'unavailable', retryAfterMs: RETRY_MS };
    const waitMs = quota === last ? Math.ceil((refused?.retryAt ?? 0) - this.#options.clock.now()) : 0;
    const { scope, name, limit } = quota;
    return { kind: 'exceeded', quota: { scope, name, limit }, retryAfterMs: Math.max(RUNNING_RETRY_MS, waitMs) };
  }

  #ask(metered: Metered, tokens: number, runs?: Waiting['runs']): Promise<Answered> {
    return new Promise((answered) => {
      metered.waiting.push({ since: this.#options.clock.now(), tokens, answered, ...(runs && { runs }) });
      const lock = metered.keys.at(-1) ?? '';
      const queue = this.#queues.get(lock);
      if (queue) queue.add(metered);
      else void this.#askAll(lock, new Set([metered]));
    });
  }

  /** Asks until none waits, in turn. After a call that failed, those that wait fail too: the next would take as long. */
  async #askAll(lock: string, queue: Set<Metered>): Promise<void> {
    this.#queues.set(lock, queue);
    let works = true;
    for (const metered of queue) {
      queue.delete(metered);
      const together = metered.waiting.splice(0, TOGETHER);
      // It takes its next turn after the others.
      if (metered.waiting.length > 0) queue.add(metered);
      if (works) works = await this.#call(metered, together);
      else for (const { answered } of together) answered({ kind: 'down', retryAfterMs: RETRY_MS });
    }
    this.#queues.delete(lock);
  }

  /** Whether the store has counted. */
  async #call(metered: Metered, together: readonly Waiting[]): Promise<boolean> {
    const { database, replica, clock, timeoutMs } = this.#options;
    const { session } = replica;
    const down = (retryAfterMs: number): false => {
      for (const { answered } of together) answered({ kind: 'down', retryAfterMs });
      return false;
    };
    if (!session) return down(RETRY_MS);
    const { no, epoch, beat } = session;
    const { segment, offset } = this.ends.position;
    const requests = together.map(({ runs }) => runs?.request ?? this.ends.begin(metered.keys, beat));
    const begins = (at: number): boolean => together[at]?.runs === undefined;
    const withinMs = Math.max(1, timeoutMs - (clock.now() - (together[0]?.since ?? 0)));
    const lockMs = Math.ceil(withinMs * LOCK_PART);
    const tokens = together.map((each) => each.tokens);
    const used = together.map(({ runs }) => runs?.used ?? null);
    const args = [no, epoch, beat, metered.keys, metered.limits, requests, tokens, used, lockMs, segment, offset];
    const answer = await database.call<Taken>('take_tokens', args, { withinMs });
    const row = answer.kind === 'rows' ? answer.rows[0] : undefined;
    if (row?.outcome !== 'done') {
      for (const [at, request] of requests.entries()) {
        if (begins(at)) this.ends.none(request, answer.kind === 'down' && answer.sent);
      }
      if (row && row.outcome !== 'late') replica.hurry();
      return down(answer.kind === 'down' ? answer.retryAfterMs : RETRY_MS);
    }
    const now = clock.now();
    metered.taken = row.taken.map(Number);
    metered.resetAt = row.reset_ms.map((ms) => now + Number(ms));
    metered.seenAt = now;
    const first = together.find((_, at) => begins(at) && Number(row.granted[at]) < 0);
    if (first) {
      const [lacking, retryAt] = [row.lacking - 1, now + Number(row.retry_ms)];
      metered.refused = { tokens: first.tokens, lacking, at: now, retryAt };
    }
    for (const [at, { answered }] of together.entries()) {
      const [request = 0, granted] = [requests[at], Number(row.granted[at])];
      if (granted >= 0) answered({ kind: 'granted', request, tokens: granted });
      else if (!begins(at)) answered({ kind: 'down', retryAfterMs: RETRY_MS });
      else {
        this.ends.none(request);
        answered({ kind: 'exceeded' });
      }
    }
    return true;
  }

  /** The store does not answer. */
  #down(caller: LimitedCaller, tokens: number, retryAfterMs: number): FleetTokensReserved {
    const { whenDown, replica } = this.#options;
    const { replicas } = replica;
    const own = this.#own;
    if (whenDown === 'refuse' || !own || replica.fenced || replicas === undefined)
      return { kind: 'unavailable', retryAfterMs };
    const share = (limits: TokenLimits): TokenLimits =>
      Object.fromEntries(
        TOKEN_LIMITS.flatMap((name) => {
          const limit = limits[name];
          return limit === undefined ? [] : [[name, Math.max(1, Math.floor(limit / replicas))]];
        }),
      );
    const { account, keyId, accountTokens } = caller;
    return own.reserve({ account, keyId, ...share(caller), accountTokens: share(accountTokens ?? {}) }, tokens);
  }

  /** Counts what the store let in, so that a share of the quotas begins with what this sidecar has used. */
  #countOwn({ account, keyId }: LimitedCaller, tokens: number): TokenReservation | undefined {
    if (this.#options.whenDown === 'refuse') return undefined;
    const reserved = this.#own?.reserve({ account, keyId }, tokens);
    return reserved?.kind === 'reserved' ? reserved.reservation : undefined;
  }
}

/** Of a caller that was not asked for yet. */
function metered(ids: readonly string[], limits: Metered['limits'], scopes: readonly QuotaLeft['scope'][]): Metered {
  const all = limits.flatMap((limit, place) => {
    const [scope, name] = [scopes[Math.floor(place / TOKEN_LIMITS.length)], TOKEN_LIMITS[place % TOKEN_LIMITS.length]];
    return limit === null || !scope || !name ? [] : [{ place, quota: { scope, name, limit } }];
  });
  return {
    keys: ids.map(uuidOf),
    quotas: all.map(({ quota }) => quota),
    places: all.map(({ place }) => place),
    limits,
    waiting: [],
    taken: limits.map(() => 0),
    resetAt: [],
    seenAt: -Infinity,
    refused: undefined,
  };
}

const NOT_COUNTED: TokenReservation = { extend: (tokens) => tokens, settle: () => undefined };
