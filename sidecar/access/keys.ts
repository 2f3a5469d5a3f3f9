/** Changes to the keys of a file: create, renew, revoke, rotate. Each reads, changes and replaces it under a lock. */
import { randomBytes } from 'node:crypto';
import { withLock } from '../lib/replace-file.js';
import { hashKey, readKeyFile, writeKeyFile, type KeyFile, type StoredKey } from './key-file.js';

/** Random bytes in a key: 43 characters of base64url. */
const KEY_BYTES = 32;

/** Prefix of keys for callers. */
const PREFIX = 'ra-key-';

/** The account of the development key. */
const DEVELOPMENT_ACCOUNT = 'development';

/** A new key, for example `ra-dev-` and 43 characters, and the two fields of its entry that depend on it. */
export function createKey(prefix: string): { readonly key: string; readonly stored: Pick<StoredKey, 'id' | 'hash'> } {
  const key = `${prefix}${randomBytes(KEY_BYTES).toString('base64url')}`;
  return { key, stored: { id: `key_${randomBytes(9).toString('base64url')}`, hash: hashKey(key) } };
}

/** A created key. It is stored nowhere else and must be shown to the operator once. */
export interface NewKey {
  readonly key: string;
  readonly id: string;
}

export interface Revoked {
  /** `already`: it was revoked before. `unknown`: there is no such key. */
  readonly kind: 'done' | 'already' | 'unknown';
}

export type Rotated =
  | ({ readonly kind: 'done' } & NewKey)
  /** `revoked`, `expired`: it does not work any more, so it cannot be rotated. `rotated`: it was rotated before. */
  | { readonly kind: 'unknown' | 'revoked' | 'expired' | 'rotated' };

/** All changes to one file. Every method throws KeyFileError if the file is invalid, LockError if it is busy. */
export class KeyStore {
  readonly #file: string;
  readonly #date: () => Date;

  constructor(file: string, date: () => Date = () => new Date()) {
    this.#file = file;
    this.#date = date;
  }

  /** Adds a key with these properties. */
  async create(properties: Omit<StoredKey, 'id' | 'hash' | 'created'>): Promise<NewKey> {
    const { key, stored } = createKey(PREFIX);
    const entry = { ...stored, created: this.#date().toISOString(), ...properties };
    await this.#change((keys) => ({ keys: [...keys, entry], result: undefined }));
    return { key, id: stored.id };
  }

  /** Revokes the key from now on. */
  async revoke(id: string): Promise<Revoked> {
    return this.#change<Revoked>((keys) => {
      const old = keys.find((key) => key.id === id);
      if (!old) return { result: { kind: 'unknown' } };
      if (old.revoked !== undefined) return { result: { kind: 'already' } };
      return { keys: replaced(keys, { ...old, revoked: this.#date().toISOString() }), result: { kind: 'done' } };
    });
  }

  /**
   * Creates a key with the rights and the expiry of the old one, which is revoked; with a grace it works for that long,
   * so that callers can change over. Its expiry is then the end of the grace, so it cannot be rotated twice.
   */
  async rotate(id: string, graceMs: number): Promise<Rotated> {
    const { key, stored } = createKey(PREFIX);
    const now = this.#date();
    return this.#change<Rotated>((keys) => {
      const old = keys.find((entry) => entry.id === id);
      if (!old) return { result: { kind: 'unknown' } };
      if (old.revoked !== undefined) return { result: { kind: 'revoked' } };
      if (old.rotated !== undefined) return { result: { kind: 'rotated' } };
      const ends = old.expires === undefined ? Infinity : Date.parse(old.expires);
      if (ends <= now.getTime()) return { result: { kind: 'expired' } };
      const until = new Date(Math.min(ends, now.getTime() + graceMs)).toISOString();
      const at = now.toISOString();
      const last = graceMs > 0 ? { ...old, expires: until, rotated: at } : { ...old, revoked: at };
      const next = { ...old, ...stored, created: at };
      return { keys: [...replaced(keys, last), next], result: { kind: 'done', key, id: stored.id } };
    });
  }

  /**
   * Creates a key for all models and routes in `environment`. Only its hash is stored, so it cannot be shown again:
   * each start replaces the previous development key. Other keys are unchanged.
   *
   * Only for a sidecar in the development environment that no other machine can reach; the caller must check that.
   */
  async renewDevelopmentKey(environment: string): Promise<string> {
    const { key, stored } = createKey('ra-dev-');
    const entry: StoredKey = {
      ...stored,
      account: DEVELOPMENT_ACCOUNT,
      created: this.#date().toISOString(),
      weight: 4,
      entitlements: { [environment]: { models: 'all' } },
      development: true,
    };
    await this.#change((keys) => ({
      keys: [...keys.filter(({ development }) => !development), entry],
      result: undefined,
    }));
    return key;
  }

  /** `change` returns the new keys, if there are changes. */
  async #change<T>(change: (keys: readonly StoredKey[]) => Changed<T>): Promise<T> {
    return withLock(`${this.#file}.lock`, async (stillHeld) => {
      const before = await readKeyFile(this.#file);
      const { keys, result } = change(before.keys);
      if (keys) await writeKeyFile(this.#file, { ...before, keys }, stillHeld);
      return result;
    });
  }
}

interface Changed<T> {
  /** Absent: nothing is written. */
  readonly keys?: KeyFile['keys'];
  readonly result: T;
}

function replaced(keys: readonly StoredKey[], by: StoredKey): StoredKey[] {
  return keys.map((key) => (key.id === by.id ? by : key));
}
