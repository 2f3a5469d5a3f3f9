import { createHmac, randomBytes } from 'node:crypto';
import { ALL_ACCOUNTS, type CacheScope } from '../../engine/protocol/cache-key.js';

/** Characters of base64url in a scope: 132 bits, so that two accounts never have the same one. */
const SCOPE_LENGTH = 22;

/**
 * Accounts that were closed and may be opened again, at most. The oldest is forgotten first and would then get its
 * first scope again.
 */
const MOST_CLOSED = 100_000;

/**
 * The scopes in which requests to one model reuse each other's prefixes. An account's scope is an HMAC under a secret of this
 * object: an engine compares it and never learns the account.
 */
export class CacheScopes {
  readonly #secret = randomBytes(32);
  readonly #sharing: 'account' | 'all';
  /** How often an account was closed. */
  readonly #closed = new Map<string, number>();

  /** `sharing`: whether all accounts share prefixes or each has its own. */
  constructor(sharing: 'account' | 'all') {
    this.#sharing = sharing;
  }

  /** The scope of an account's requests. */
  of(account: string): CacheScope {
    if (this.#sharing === 'all') return ALL_ACCOUNTS;
    const closed = this.#closed.get(account) ?? 0;
    const hmac = createHmac('sha256', this.#secret).update(`${closed} ${account}`);
    return hmac.digest('base64url').slice(0, SCOPE_LENGTH);
  }

  /**
   * An account was frozen or deleted. Returns the scope of its requests so far; if the account returns, it gets another
   * one.
   */
  close(account: string): CacheScope {
    const scope = this.of(account);
    const times = this.#closed.get(account) ?? 0;
    this.#closed.delete(account);
    this.#closed.set(account, times + 1);
    const [oldest] = this.#closed.keys();
    if (this.#closed.size > MOST_CLOSED && oldest !== undefined) this.#closed.delete(oldest);
    return scope;
  }
}
