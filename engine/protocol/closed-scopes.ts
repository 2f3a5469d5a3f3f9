import { ALL_ACCOUNTS, type CacheScope } from './cache-key.js';

/** Scopes that are remembered, at most; requests of older ones have ended. */
const MOST_CLOSED = 4096;

/**
 * Scopes of accounts that were closed: nothing is kept of what their requests leave, also of those that still wait. The scope that
 * all accounts share is never closed.
 */
export class ClosedScopes {
  readonly #closed = new Set<CacheScope>();

  close(scope: CacheScope): void {
    if (scope === ALL_ACCOUNTS) return;
    this.#closed.delete(scope);
    this.#closed.add(scope);
    const [oldest] = this.#closed;
    if (this.#closed.size > MOST_CLOSED && oldest !== undefined) this.#closed.delete(oldest);
  }

  has(scope: CacheScope): boolean {
    return this.#closed.has(scope);
  }

  /** The one that was closed first is the first. */
  [Symbol.iterator](): Iterator<CacheScope> {
    return this.#closed.values();
  }
}
