import { createHash, createHmac, randomBytes } from 'node:crypto';

/** The form of a key in the keys file: SHA-256, hex. */
export function hashKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

/** Hashed for a request without a key; the result is ignored. */
const NO_KEY = '';

/**
 * A map by keys of which only the hash is known.
 *
 * Entries are indexed by an HMAC of the hash with a random secret of this process, so that the time of a lookup reveals
 * nothing about the stored hashes, however a guess is chosen. Every request costs the same: one hash, one HMAC, one
 * lookup, whether it has a key or not, and whether that is known, revoked or valid.
 */
export class KeyIndex<T> {
  readonly #secret = randomBytes(32);
  readonly #filed = new Map<string, T>();
  #lookups = 0;

  /** `hash`: as {@link hashKey} makes it. */
  add(hash: string, value: T): void {
    this.#filed.set(this.#place(hash), value);
  }

  /** Number of credentials hashed and looked up so far. */
  get lookups(): number {
    return this.#lookups;
  }

  /** `key`: undefined if the request has none. */
  find(key: string | undefined): T | undefined {
    this.#lookups++;
    const found = this.#filed.get(this.#place(hashKey(key ?? NO_KEY)));
    return key === undefined ? undefined : found;
  }

  #place(hash: string): string {
    return createHmac('sha256', this.#secret).update(hash).digest('base64');
  }
}
