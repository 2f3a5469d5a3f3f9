/**
 * The limits of keys over a fleet, counted in the store (migrations/limits.ts). A take is one round trip; the places and stamps of
 * requests that ended, or whose answer was lost, are given back by {@link Ends}. A key without a limit at a group of routes asks nothing.
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
import type { Database } from './database.js';
import { Ends } from './ends.js';
import type { Replica } from './replica.js';

/** The wait of a caller over its limit in flight, and of one while the store does not answer, ms. */
const RETRY_MS = 1000;

/** The time between two removals of old stamps by one replica, ms. */
const SWEEP_MS = 5000;

/** A row that `take` returns. */
interface Taken {
  readonly outcome: 'taken' | 'inFlight' | 'perMinute' | 'fenced' | 'lease' | 'late';
  readonly retry_ms: number;
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
}

export interface StoreLimitsOptions {
  readonly clock: Clock;
  readonly database: Database;
  readonly replica: Replica;
  /** For keys without limits of their own. */
  readonly defaults: Readonly<Record<LimitGroup, Limit>>;
  readonly whenDown: 'refuse' | 'share';
}

/** Requests of each key over all replicas. */
export class StoreLimits implements KeyLimiter {
  readonly #options: StoreLimitsOptions;
  readonly #ends: Ends;
  readonly #seen = new Map<string, Seen>();
  /** Counts this sidecar's own requests, for while the store is down. */
  readonly #own: RequestLimits;
  #sweptAt = -Infinity;

  constructor(options: StoreLimitsOptions) {
    this.#options = options;
    const { clock, defaults, replica, database } = options;
    this.#own = new RequestLimits(clock, defaults);
    this.#ends = new Ends({ clock, database, replica, fn: 'release' });
    replica.oldest = () => this.#ends.oldest;
    replica.onBeat(() => this.#sweep());
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
    const { database, replica, clock } = this.#options;
    const { session } = replica;
    if (!session) return this.#down(caller, group, limit, RETRY_MS);
    const { no, epoch, beat } = session;
    const id = groupedId(caller, group);
    const key = uuidOf(id);
    const request = this.#ends.begin(key, beat);
    const answer = await database.call<Taken>('take', [no, epoch, beat, request, key, limit.inFlight, limit.perMinute]);
    const row = answer.kind === 'rows' ? answer.rows[0] : undefined;
    if (answer.kind === 'down' && answer.sent) this.#ends.lost(request);
    else if (row?.outcome !== 'taken') this.#ends.none(request);
    if (!row) return this.#down(caller, group, limit, answer.kind === 'down' ? answer.retryAfterMs : RETRY_MS);
    if (row.outcome === 'fenced' || row.outcome === 'lease' || row.outcome === 'late') {
      replica.hurry();
      return this.#down(caller, group, limit, RETRY_MS);
    }
    this.#see(id, { used: row.used, running: row.running, resetAt: clock.now() + row.reset_ms });
    if (row.outcome !== 'taken') {
      const retryAfterMs = row.outcome === 'inFlight' ? RETRY_MS : row.retry_ms;
      return { kind: 'limited', by: row.outcome, retryAfterMs };
    }
    const own = this.#countOwn(caller, group, limit);
    let over = false;
    const end = (ran: boolean): void => {
      if (over) return;
      over = true;
      own?.end(ran);
      this.#ends.end(request, ran);
    };
    return { kind: 'taken', permit: { end } };
  }

  /** The store does not answer. */
  #down(caller: LimitedCaller, group: LimitGroup, limit: Limit, retryAfterMs: number): FleetLimitResult {
    const { whenDown, replica } = this.#options;
    if (whenDown === 'refuse' || replica.fenced) return { kind: 'unavailable', retryAfterMs };
    const share = (all: number): number => (all === 0 ? 0 : Math.max(1, Math.floor(all / replica.replicas)));
    const limits = { [group]: { inFlight: share(limit.inFlight), perMinute: share(limit.perMinute) } };
    return this.#own.take({ ...caller, limits }, group);
  }

  /** Counts a request that the store let in, so that a share of the limits begins with what this sidecar has used. */
  #countOwn(caller: LimitedCaller, group: LimitGroup, { perMinute }: Limit): Permit | undefined {
    if (this.#options.whenDown === 'refuse') return undefined;
    const taken = this.#own.take({ ...caller, limits: { [group]: { inFlight: 0, perMinute } } }, group);
    return taken.kind === 'taken' ? taken.permit : undefined;
  }

  /** Remembers the keys that were asked for last. */
  #see(id: string, seen: Seen): void {
    this.#seen.delete(id);
    this.#seen.set(id, seen);
    if (this.#seen.size <= MOST_KEYS) return;
    const [oldest] = this.#seen.keys();
    if (oldest !== undefined) this.#seen.delete(oldest);
  }

  #sweep(): void {
    const now = this.#options.clock.now();
    if (now < this.#sweptAt + SWEEP_MS) return;
    this.#sweptAt = now;
    void this.#options.database.call('sweep', []);
  }
}

const NO_PERMIT: Permit = { end: () => undefined };

/** 128 bits of an id's SHA-256, in a type of PostgreSQL's that has 16 bytes. */
export function uuidOf(id: string): string {
  return createHash('sha256').update(id).digest('hex').slice(0, 32);
}
