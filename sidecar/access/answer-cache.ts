/**
 * Caches an authorizer's answers. Callers and denials are kept separately, each with its own bound, so that a flood of
 * invalid keys cannot evict callers. Callers can be used beyond their time while the authorizer fails, within a bound;
 * denials cannot.
 */
import type { Clock } from '../lib/clock.js';
import type { Caller, Denied } from './identity.js';

export interface CacheOptions {
  /** Callers, and as many denials. */
  readonly entries: number;
  /** Times in ms. */
  readonly ttlMs: number;
  readonly deniedTtlMs: number;
  /** How long past its time a caller is still returned by `stale`. */
  readonly staleMs: number;
}

interface Kept<T> {
  readonly answer: T;
  /** Clock readings. */
  readonly at: number;
  readonly freshUntil: number;
  readonly staleUntil: number;
}

/** Answers by an index of the credential, which the caller computes; no key is stored here. */
export class AnswerCache {
  readonly #clock: Clock;
  readonly #options: CacheOptions;
  /** In the order of their last use: the first is evicted next. */
  readonly #callers = new Map<string, Kept<Caller>>();
  readonly #denials = new Map<string, Kept<Denied>>();

  constructor(clock: Clock, options: CacheOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Number of entries, expired ones included. */
  get size(): number {
    return this.#callers.size + this.#denials.size;
  }

  /** The answer if it is still valid. A `Retry-After` in it is reduced by the elapsed time. */
  fresh(index: string): Caller | Denied | undefined {
    const now = this.#clock.now();
    const caller = this.#callers.get(index);
    if (caller && now < caller.freshUntil) {
      touch(this.#callers, index, caller);
      return caller.answer;
    }
    const denial = this.#denials.get(index);
    if (!denial) return undefined;
    if (now >= denial.freshUntil) {
      this.#denials.delete(index);
      return undefined;
    }
    touch(this.#denials, index, denial);
    const { retryAfterMs, ...said } = denial.answer;
    return retryAfterMs === undefined ? said : { ...said, retryAfterMs: Math.ceil(retryAfterMs - (now - denial.at)) };
  }

  /**
   * The last known caller, for use while the authorizer fails. It counts as fresh for `holdMs`, so that its next
   * request causes no lookup at once, but never beyond the bound.
   */
  stale(index: string, holdMs: number): Caller | undefined {
    const kept = this.#callers.get(index);
    if (!kept) return undefined;
    const now = this.#clock.now();
    if (now >= kept.staleUntil) {
      this.#callers.delete(index);
      return undefined;
    }
    touch(this.#callers, index, { ...kept, freshUntil: Math.min(now + holdMs, kept.staleUntil) });
    return kept.answer;
  }

  /** The account of the last known caller, however long ago that was; undefined: none is known. */
  account(index: string): string | undefined {
    return this.#callers.get(index)?.answer.account;
  }

  /**
   * Stores an answer in place of the previous one, a denial for at most `atMostMs`. It expires no later than a wait
   * that it names.
   */
  keep(index: string, answer: Caller | Denied, atMostMs = Infinity): void {
    const { entries, ttlMs, deniedTtlMs, staleMs } = this.#options;
    this.#callers.delete(index);
    this.#denials.delete(index);
    const at = this.#clock.now();
    if (answer.kind === 'caller') {
      add(this.#callers, index, { answer, at, freshUntil: at + ttlMs, staleUntil: at + ttlMs + staleMs }, entries);
    } else {
      const forMs = Math.min(deniedTtlMs, atMostMs, answer.retryAfterMs ?? Infinity);
      const until = at + forMs;
      if (forMs > 0) add(this.#denials, index, { answer, at, freshUntil: until, staleUntil: until }, entries);
    }
  }
}

function touch<T>(map: Map<string, T>, index: string, entry: T): void {
  map.delete(index);
  map.set(index, entry);
}

function add<T>(map: Map<string, T>, index: string, entry: T, limit: number): void {
  map.set(index, entry);
  if (map.size <= limit) return;
  const [oldest] = map.keys();
  if (oldest !== undefined) map.delete(oldest);
}
