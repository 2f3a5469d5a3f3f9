/**
 * The limits of keys over a fleet, counted in the store (migrations/limits.ts). Requests of one turn of the event loop, and those that
 * come while {@link CALLS} calls are in flight, share a call, those of different keys too:
 *
 *     take ──> waiting ──a call is free──> asked ──> taken, limited
 *                 │                          ├──another call has the key's lock──> asked alone, until it is free
 *                 └──a call failed───────────┴──> unavailable
 *
 * So a request alone is one round trip, and a burst is a few transactions. A request has its answer within `store.timeoutMs`, whatever becomes
 * of its calls; the others of a call do not end with it. The places and stamps of requests that ended, or whose answer was lost, are given
 * back by {@link Ends}, or with the next call. A key without a limit at a group of routes asks nothing.
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

/** Keys that a call counts, their requests, calls in flight, and calls besides that wait for a lock; others follow in the next. */
const KEYS_TOGETHER = 32;
const TOGETHER = 1000;
const CALLS = 2;
const LONE_CALLS = 4;

/** Ends that a call takes along, and how long they wait for one, or for each other, ms, while half of what their key may use is free. */
const ENDS_TOGETHER = 100;
export const LATER_MS = 10;

/** The row that `take` returns for each key. */
interface Taken {
  readonly outcome: 'taken' | 'inFlight' | 'perMinute' | 'busy' | 'fenced' | 'lease' | 'late';
  /** The first of the requests are taken. */
  readonly taken: number;
  readonly retry_ms: number | null;
  readonly used: number;
  readonly reset_ms: number;
  readonly running: number;
}

/** What a key had used when the store last answered for it; of `running` without those that have ended here since. */
interface Seen {
  readonly used: number;
  running: number;
  /** Clock reading at which the oldest stamp leaves the minute. */
  readonly resetAt: number;
  /** The last of its requests that has ended here. */
  ended: number | undefined;
}

/** A request that waits for a call. */
interface Waiting {
  /** It has its answer: it waited too long. */
  readonly isOver: () => boolean;
  readonly answered: (answer: CountedRequest) => void;
}

/** What the store says of one request. */
type CountedRequest =
  | { readonly kind: 'taken'; readonly request: number }
  | { readonly kind: 'limited'; readonly by: keyof Limit; readonly retryAfterMs: number }
  | { readonly kind: 'down'; readonly retryAfterMs: number };

/** One key at one group of routes, with limits that its requests were read with. */
interface Counted {
  readonly name: string;
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
  /** Those with requests that wait or are asked for, by name: id and limits. */
  readonly #asked = new Map<string, Counted>();
  /** Those of them that are in no call. */
  readonly #next: Counted[] = [];
  #calls = 0;
  #loneCalls = 0;
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
      const isRoomy = (seen?.running ?? 0) * 2 < limit.inFlight;
      if (seen) Object.assign(seen, { ended: counted.request, running: Math.max(0, seen.running - 1) });
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

  /** Counts one request with the others that wait. */
  #count(id: string, limit: Limit, since: number): Promise<CountedRequest> {
    const { clock, timeoutMs } = this.#options;
    return new Promise((resolve) => {
      let isOver = false;
      const answered = (answer: CountedRequest): void => {
        isOver = true;
        cancel();
        resolve(answer);
      };
      const late = (): void => answered({ kind: 'down', retryAfterMs: RETRY_MS });
      const cancel = clock.after(Math.max(1, since + timeoutMs - clock.now()), late);
      const name = `${limit.inFlight} ${limit.perMinute} ${id}`;
      let counted = this.#asked.get(name);
      if (!counted) {
        counted = { name, id, key: uuidOf(id), limit, waiting: [] };
        this.#asked.set(name, counted);
        this.#next.push(counted);
      }
      counted.waiting.push({ isOver: () => isOver, answered });
      this.#askLater();
    });
  }

  /** At the end of this turn, so that its other requests share the call. */
  #askLater(): void {
    if (this.#calls === CALLS || this.#next.length === 0) return;
    this.#calls += 1;
    setImmediate(() => void this.#askNext());
  }

  /** After a call that failed, those that wait fail too: the next would take as long. */
  async #askNext(): Promise<void> {
    const keys = this.#next.splice(0, KEYS_TOGETHER);
    const works = keys.length === 0 || (await this.#ask(keys, false));
    this.#calls -= 1;
    if (!works) for (const counted of this.#next.splice(0)) this.#answered(counted, false);
    this.#askLater();
  }

  /** None of its requests is in a call any more. */
  #answered(counted: Counted, works: boolean): void {
    const failed = works ? [] : counted.waiting.splice(0);
    for (const { answered } of failed) answered({ kind: 'down', retryAfterMs: RETRY_MS });
    if (counted.waiting.length > 0) this.#next.push(counted);
    else this.#asked.delete(counted.name);
    this.#askLater();
  }

  /** `waits`: for the lock of the only key. Returns whether the store has counted. */
  async #ask(keys: readonly Counted[], waits: boolean): Promise<boolean> {
    const { database, replica, timeoutMs: withinMs } = this.#options;
    const { no = 0, epoch = 0, beat } = replica.session ?? {};
    if (beat === undefined) {
      for (const counted of keys) this.#answered(counted, false);
      return false;
    }
    let room = TOGETHER;
    const asked = keys.flatMap((counted) => {
      const together = counted.waiting.splice(0, room).filter(({ isOver }) => !isOver());
      room -= together.length;
      if (together.length > 0)
        return [{ counted, together, requests: together.map(() => this.#ends.begin([counted.key], beat)) }];
      this.#answered(counted, true);
      return [];
    });
    if (asked.length === 0) return true;
    const limits = [
      asked.map(({ counted }) => counted.limit.inFlight),
      asked.map(({ counted }) => counted.limit.perMinute),
    ];
    const numbers = [asked.map(({ requests }) => requests.length), asked.flatMap(({ requests }) => requests)];
    // A call that waits for a key's lock has no rows locked meanwhile.
    const along = waits ? [] : this.#ends.along(true, ENDS_TOGETHER);
    const ended = [along.map(([, { keys: of }]) => of[0]), along.map(([request]) => request)];
    const args = [no, epoch, beat, asked.map(({ counted }) => counted.key), ...numbers, ...limits, ...ended, waits];
    const answer = await database.call<Taken>('take', [...args, Math.ceil(withinMs * LOCK_PART)], { withinMs });
    const [rows, isSent] = answer.kind === 'rows' ? [answer.rows, false] : [[], answer.sent];
    const down = { kind: 'down', retryAfterMs: answer.kind === 'rows' ? RETRY_MS : answer.retryAfterMs } as const;
    this.#ends.given(along, answer.kind === 'rows');
    let works = true;
    for (const [at, { counted, together, requests }] of asked.entries()) {
      const row = rows[at];
      const taken = row?.taken ?? 0;
      for (const request of requests.slice(taken)) this.#ends.none(request, isSent);
      if (row?.outcome === 'busy') {
        counted.waiting.unshift(...together);
        void this.#askAlone(counted);
        continue;
      }
      const others = row && this.#hear(counted.id, row);
      works &&= others !== undefined;
      for (const [nth, { isOver, answered }] of together.entries()) {
        const request = requests[nth] ?? 0;
        if (isOver() && nth < taken) this.#ends.end(request, false);
        answered(nth < taken ? { kind: 'taken', request } : (others ?? down));
      }
      this.#answered(counted, others !== undefined);
    }
    return works;
  }

  /** Another call has the key's lock. Where too many wait for locks, the next call tries it again. */
  async #askAlone(counted: Counted): Promise<void> {
    if (this.#loneCalls === LONE_CALLS) {
      this.#answered(counted, true);
      return;
    }
    this.#loneCalls += 1;
    await this.#ask([counted], true);
    this.#loneCalls -= 1;
  }

  /** Keeps what a key has used. Returns the answer of its requests that are not taken; undefined if the store has not counted. */
  #hear(id: string, { outcome, taken, used, running, reset_ms, retry_ms }: Taken): CountedRequest | undefined {
    const { replica, clock } = this.#options;
    if (outcome === 'fenced' || outcome === 'lease') replica.hurry();
    if (outcome !== 'taken' && outcome !== 'inFlight' && outcome !== 'perMinute') return undefined;
    const { ended } = this.#seen.get(id) ?? {};
    const seen = { used: used + taken, running: running + taken, resetAt: clock.now() + reset_ms, ended };
    setNewest(this.#seen, id, seen, MOST_KEYS);
    if (outcome === 'perMinute') return { kind: 'limited', by: outcome, retryAfterMs: retry_ms ?? 60_000 };
    return { kind: 'limited', by: 'inFlight', retryAfterMs: RETRY_MS };
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
