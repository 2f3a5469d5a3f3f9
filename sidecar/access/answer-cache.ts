/**
 * What an authorizer said, for a short while. Callers and denials are kept apart, each with a bound of its own: whoever
 * makes up keys by the thousand pushes out other made-up keys, and no caller. Callers outlive their time for as long as
 * the authorizer cannot answer, within a bound; a denial never does.
 */
import type { Clock } from '../lib/clock.js';
import type { Caller, Denied } from './identity.js';

export interface CacheOptions {
  /** Callers, and as many denials. */
  readonly entries: number;
  /** Times in ms. */
  readonly ttlMs: number;
  readonly deniedTtlMs: number;
  /** How long past its time a caller is still to be had from `stale`. */
  readonly staleMs: number;
}

interface Kept<T> {
  readonly answer: T;
  /** Clock readings. */
  readonly at: number;
  readonly freshUntil: number;
  readonly staleUntil: number;
}

/** Answers by an index of the credential, which is the caller's own to make: nothing here knows a key. */
export class AnswerCache {
  readonly #clock: Clock;
  readonly #options: CacheOptions;
  /** In the order of their last use: the first is the one to go. */
  readonly #callers = new Map<string, Kept<Caller>>();
  readonly #denials = new Map<string, Kept<Denied>>();

  constructor(clock: Clock, options: CacheOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Entries held, past their time or not. */
  get size(): number {
    return this.#callers.size + this.#denials.size;
  }

  /** What was answered and still holds. A wait that was named has gone down by the time since. */
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
   * The caller that was known last, while nobody can be asked. It counts as fresh for `holdMs`, so that its next request
   * does not ask again at once, and never beyond the bound.
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

  /** Takes an answer in, in place of the one before, a denial for `atMostMs`. A wait that is named is not outlived. */
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
