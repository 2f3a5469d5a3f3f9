import { createHash, createHmac, randomBytes } from 'node:crypto';

/** What the keys file holds of a key: SHA-256, hex. */
export function hashKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

/** What is hashed for a credential that has no key in it; what is found for it counts for nothing. */
const NO_KEY = '';

/**
 * Things found by a key of which only the hash is known.
 *
 * They are filed under an HMAC of the hash, by a secret of this process, so that the time a lookup takes says nothing
 * about the stored hashes, however well a guess is chosen. Every credential costs the same: one hash, one HMAC, one
 * lookup, whether there is a key in it or not, and whether that is known, revoked or good.
 */
export class KeyIndex<T> {
  readonly #secret = randomBytes(32);
  readonly #filed: ReadonlyMap<string, T>;
  #lookups = 0;

  /** `hashes`: as {@link hashKey} makes them. */
  constructor(hashes: Iterable<readonly [hash: string, T]>) {
    const filed = new Map<string, T>();
    for (const [hash, value] of hashes) filed.set(this.#place(hash), value);
    this.#filed = filed;
  }

  /** Credentials that were hashed and looked up so far. */
  get lookups(): number {
    return this.#lookups;
  }

  /** `key`: undefined where the credential holds none. */
  find(key: string | undefined): T | undefined {
    this.#lookups++;
    const found = this.#filed.get(this.#place(hashKey(key ?? NO_KEY)));
    return key === undefined ? undefined : found;
  }

  #place(hash: string): string {
    return createHmac('sha256', this.#secret).update(hash).digest('base64');
  }
}
