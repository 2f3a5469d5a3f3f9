/**
 * The limits of keys over a fleet, counted in the store (migrations/limits.ts). One call of a key is in flight; requests that come
 * meanwhile wait, and the next call takes for all of them:
 *
 *     take ──> waiting ──the key has no call in flight──> asked ──> taken, limited
 *                 └──the call before failed: unavailable    └──> unavailable
 *
 * So a burst on one key is a few transactions, and a request alone is one round trip. Neither wait is longer than `store.timeoutMs`, both
 * together. The places and stamps of requests that ended, or whose answer was lost, are given back by {@link Ends}, or with the key's next
 * call. A key without a limit at a group of routes asks nothing.
 */
import { createHash } from 'node:crypto';
import {
  groupedId,
  limitOf,
  MOST_KEYS,
  RequestLimits,
  type FleetLimitResult,
  type KeyLimiter,
  type Limit,
  type LimitedCaller,
  type LimitGroup,
  type LimitResult,
  type Permit,
} from '../access/limits.js';
import type { LimitLeft } from '../domain/limit-left.js';
import type { Clock } from '../lib/clock.js';
import { setNewest } from '../lib/id-map.js';
import type { Database } from './database.js';
import { Ends } from './ends.js';
import type { Replica } from './replica.js';

/** The wait of a caller over its limit in flight, and of one while the store does not answer, ms. */
export const RETRY_MS = 1000;

/** The time between two removals of old stamps by one replica, ms. */
const SWEEP_MS = 5000;

/** The part of a call's time in which it may wait for others of its key: an answer that it waited too long is better than none. */
export const LOCK_PART = 0.8;

/** Requests that one call takes; the others follow in the next. */
const TOGETHER = 1000;

/** Ends that a call takes along, and how long they wait for one, or for each other, ms, while half of what their key may use is free. */
const ENDS_TOGETHER = 100;
export const LATER_MS = 10;

/** The row that `take` returns. */
interface Taken {
  readonly outcome: 'taken' | 'inFlight' | 'perMinute' | 'fenced' | 'lease' | 'late';
  /** The first of the requests are taken. */
  readonly taken: number;
  readonly retry_ms: number | null;
  readonly used: number;
  readonly reset_ms: number;
  readonly running: number;
}

/** What a key had used when the store last answered for it. */
interface Seen {
  readonly used: number;
  readonly running: number;
  /** Clock reading at which the oldest stamp leaves the minute. */
  readonly resetAt: number;
  /** The last of its requests that has ended here. */
  ended: number | undefined;
}

/** A request that waits for its key's call. */
interface Waiting {
  /** Clock reading. */
  readonly since: number;
  readonly answered: (answer: CountedRequest) => void;
}

/** What the store says of one request. */
type CountedRequest =
  | { readonly kind: 'taken'; readonly request: number }
  | { readonly kind: 'limited'; readonly by: keyof Limit; readonly retryAfterMs: number }
  | { readonly kind: 'down'; readonly retryAfterMs: number };

/** One key at one group of routes, with limits that its requests were read with. */
interface Counted {
  readonly id: string;
  readonly key: string;
  readonly limit: Limit;
  readonly waiting: Waiting[];
}

export interface StoreLimitsOptions {
  readonly clock: Clock;
  readonly database: Database;
  readonly replica: Replica;
  /** For keys without limits of their own. */
  readonly defaults: Readonly<Record<LimitGroup, Limit>>;
  readonly whenDown: 'refuse' | 'share';
  /** How long a request waits for the store, ms. */
  readonly timeoutMs: number;
}

/** Requests of each key over all replicas. */
export class StoreLimits implements KeyLimiter {
  readonly #options: StoreLimitsOptions;
  readonly #ends: Ends<boolean>;
  /** Those that were asked for last, by id. */
  readonly #seen = new Map<string, Seen>();
  /** Those with a call in flight, by id and limits. */
  readonly #asked = new Map<string, Counted>();
  /** Counts this sidecar's own requests, for while the store is down. */
  readonly #own: RequestLimits;

  constructor(options: StoreLimitsOptions) {
    this.#options = options;
    const { clock, defaults, replica, database } = options;
    this.#own = new RequestLimits(clock, defaults);
    this.#ends = new Ends({ clock, database, replica, fn: 'release', none: false });
    replica.oldest.push(() => this.#ends.oldest);
    replica.sweeps('sweep', SWEEP_MS);
  }

  /** Requests that have a place in the store, or may have one. */
  get size(): number {
    return this.#ends.size;
  }

  take(caller: LimitedCaller, group: LimitGroup): LimitResult | Promise<FleetLimitResult> {
    const limit = limitOf(caller, group, this.#options.defaults);
    if (limit.inFlight === 0 && limit.perMinute === 0) return { kind: 'taken', permit: NO_PERMIT };
    return this.#take(caller, group, limit);
  }

  remaining(caller: LimitedCaller, group: LimitGroup): LimitLeft | undefined {
    const { clock, defaults } = this.#options;
    const { perMinute: limit } = limitOf(caller, group, defaults);
    if (limit === 0) return undefined;
    const seen = this.#seen.get(groupedId(caller, group));
    const resetMs = Math.max(0, (seen?.resetAt ?? 0) - clock.now());
    return { limit, remaining: resetMs === 0 ? limit : Math.max(0, limit - (seen?.used ?? 0)), resetMs };
  }

  inFlightLeft(caller: LimitedCaller, group: LimitGroup): Omit<LimitLeft, 'resetMs'> | undefined {
    const { inFlight: limit } = limitOf(caller, group, this.#options.defaults);
    if (limit === 0) return undefined;
    return { limit, remaining: Math.max(0, limit - (this.#seen.get(groupedId(caller, group))?.running ?? 0)) };
  }

  /** Sends the ends that are known, if the store answers. */
  close(): Promise<void> {
    return this.#ends.close();
  }

  async #take(caller: LimitedCaller, group: LimitGroup, limit: Limit): Promise<FleetLimitResult> {
    const id = groupedId(caller, group);
    const counted = await this.#countAgain(id, limit);
    if (counted.kind === 'down') return this.#down(caller, group, limit, counted.retryAfterMs);
    if (counted.kind === 'limited') return counted;
    const own = this.#countOwn(caller, group, limit);
    let over = false;
    const end = (ran: boolean): void => {
      if (over) return;
      over = true;
      own?.end(ran);
      const seen = this.#seen.get(id);
      if (seen) seen.ended = counted.request;
      const isRoomy = (seen?.running ?? 0) * 2 < limit.inFlight;
      if (ran && limit.inFlight === 0) this.#ends.none(counted.request);
      else this.#ends.end(counted.request, ran, ran && isRoomy ? LATER_MS : 0);
    };
    return { kind: 'taken', permit: { end } };
  }

  /**
   * Counts one request. Until the store knows that another one has ended it counts that too, and would refuse a caller at its limit that
   * sends the next request when it has an answer. So it is asked again while it may not have known, in half the time of a call: the last
   * one has time for its answer, and without an answer changes nothing.
   */
  async #countAgain(id: string, limit: Limit): Promise<CountedRequest> {
    const { clock, timeoutMs } = this.#options;
    const since = clock.now();
    for (let refused: CountedRequest | undefined; ;) {
      const before = this.#seen.get(id)?.ended;
      const told = this.#ends.told(before);
      const counted = await this.#count(id, limit, since);
      if (counted.kind === 'down' && refused) return refused;
      const ended = this.#seen.get(id)?.ended;
      const isCurrent = told === undefined && ended === before;
      if (counted.kind !== 'limited' || counted.by !== 'inFlight' || isCurrent) return counted;
      refused = counted;
      if ((await this.#ends.told(ended)) === false || clock.now() >= since + timeoutMs / 2) return counted;
    }
  }

  /** Counts one request with the others of its key that wait. */
  #count(id: string, limit: Limit, since: number): Promise<CountedRequest> {
    return new Promise((answered) => {
      const name = `${limit.inFlight} ${limit.perMinute} ${id}`;
      const asked = this.#asked.get(name);
      if (asked) {
        asked.waiting.push({ since, answered });
        return;
      }
      const counted = { id, key: uuidOf(id), limit, waiting: [{ since, answered }] };
      this.#asked.set(name, counted);
      void this.#askAll(name, counted);
    });
  }

  /** Asks for a key's requests until none waits. After a call that failed, those that wait fail too: the next would take as long. */
  async #askAll(name: string, counted: Counted): Promise<void> {
    let works = true;
    while (counted.waiting.length > 0) {
      const together = counted.waiting.splice(0, TOGETHER);
      if (works) works = await this.#ask(counted, together);
      else for (const { answered } of together) answered({ kind: 'down', retryAfterMs: RETRY_MS });
    }
    this.#asked.delete(name);
  }

  /** Whether the store has counted. */
  async #ask({ id, key, limit }: Counted, together: readonly Waiting[]): Promise<boolean> {
    const { database, replica, clock, timeoutMs } = this.#options;
    const down = (retryAfterMs: number): false => {
      for (const { answered } of together) answered({ kind: 'down', retryAfterMs });
      return false;
    };
    const { session } = replica;
    if (!session) return down(RETRY_MS);
    const { no, epoch, beat } = session;
    const requests = together.map(() => this.#ends.begin([key], beat));
    const withinMs = Math.max(1, timeoutMs - (clock.now() - (together[0]?.since ?? 0)));
    const lockMs = Math.ceil(withinMs * LOCK_PART);
    const along = this.#ends.along(key, true, ENDS_TOGETHER);
    const over = along.map(([request]) => request);
    const args = [no, epoch, beat, requests, key, limit.inFlight, limit.perMinute, over, lockMs];
    const answer = await database.call<Taken>('take', args, { withinMs });
    this.#ends.given(along, answer.kind === 'rows');
    if (answer.kind === 'down') {
      for (const request of requests) this.#ends.none(request, answer.sent);
      return down(answer.retryAfterMs);
    }
    const [row] = answer.rows;
    for (const request of requests.slice(row?.taken ?? 0)) this.#ends.none(request);
    if (!row || row.outcome === 'late') return down(RETRY_MS);
    if (row.outcome === 'fenced' || row.outcome === 'lease') {
      replica.hurry();
      return down(RETRY_MS);
    }
    const { outcome, taken, used, running, reset_ms: resetMs } = row;
    const { ended } = this.#seen.get(id) ?? {};
    const seen = { used: used + taken, running: running + taken, resetAt: clock.now() + resetMs, ended };
    setNewest(this.#seen, id, seen, MOST_KEYS);
    const by = outcome === 'perMinute' ? 'perMinute' : 'inFlight';
    const retryAfterMs = by === 'inFlight' ? RETRY_MS : (row.retry_ms ?? 60_000);
    for (const [at, { answered }] of together.entries()) {
      const request = at < taken ? requests[at] : undefined;
      answered(request === undefined ? { kind: 'limited', by, retryAfterMs } : { kind: 'taken', request });
    }
    return true;
  }

  /** The store does not answer. */
  #down(caller: LimitedCaller, group: LimitGroup, limit: Limit, retryAfterMs: number): FleetLimitResult {
    const { whenDown, replica } = this.#options;
    const { replicas } = replica;
    if (whenDown === 'refuse' || replica.fenced || replicas === undefined) return { kind: 'unavailable', retryAfterMs };
    const share = (all: number): number => (all === 0 ? 0 : Math.max(1, Math.floor(all / replicas)));
    const limits = { [group]: { inFlight: share(limit.inFlight), perMinute: share(limit.perMinute) } };
    return this.#own.take({ ...caller, limits }, group);
  }

  /** Counts a request that the store let in, so that a share of the limits begins with what this sidecar has used. */
  #countOwn(caller: LimitedCaller, group: LimitGroup, { perMinute }: Limit): Permit | undefined {
    if (this.#options.whenDown === 'refuse') return undefined;
    const taken = this.#own.take({ ...caller, limits: { [group]: { inFlight: 0, perMinute } } }, group);
    return taken.kind === 'taken' ? taken.permit : undefined;
  }
}

const NO_PERMIT: Permit = { end: () => undefined };

/** 128 bits of an id's SHA-256, in a type of PostgreSQL's that has 16 bytes. */
export function uuidOf(id: string): string {
  return createHash('sha256').update(id).digest('hex').slice(0, 32);
}
