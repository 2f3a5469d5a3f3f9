/** Changes to keys, in their file or in the store of a fleet, for commands and for operators over HTTP. */
import { randomBytes } from 'node:crypto';
import { withLock } from '../lib/replace-file.js';
import {
  described,
  hashKey,
  problemOf,
  readKeyFile,
  writeKeyFile,
  type DescribedKey,
  type EntryProblem,
  type KeyFile,
  type StoredAccount,
  type StoredKey,
} from './key-file.js';

/** Random bytes in a key: 43 characters of base64url. */
const KEY_BYTES = 32;

const PREFIX = 'ra-key-';

const DEVELOPMENT_ACCOUNT = 'development';

/** A new key, for example `ra-dev-` and 43 characters, and the two fields of its entry that depend on it. */
export function createKey(prefix: string): { readonly key: string; readonly stored: Pick<StoredKey, 'id' | 'hash'> } {
  const key = `${prefix}${randomBytes(KEY_BYTES).toString('base64url')}`;
  return { key, stored: { id: `key_${randomBytes(9).toString('base64url')}`, hash: hashKey(key) } };
}

/** Whether a text, such as a name that an operator typed, contains a caller's key. */
export function holdsKey(text: string): boolean {
  return /ra-(?:key|dev)-[\w-]{43}/.test(text);
}

/** A created key. It is stored nowhere else and must be shown to the operator once. */
export interface NewKey {
  readonly key: string;
  readonly id: string;
  readonly entry: DescribedKey;
}

/** An existing key, after the change. */
interface KeyChanged<K extends string> {
  readonly kind: K;
  readonly entry: DescribedKey;
}

/** There is no such key or account. */
interface Unknown {
  readonly kind: 'unknown';
}

/** The file would be invalid, so nothing was changed. */
type Invalid = EntryProblem & { readonly kind: 'invalid' };

/** `already`: it was revoked before. */
export type Revoked = KeyChanged<'done' | 'already'> | Unknown;

export type Rotated =
  | ({ readonly kind: 'done' } & NewKey)
  | Unknown
  /** `revoked`, `expired`: it does not work any more, so it cannot be rotated. `rotated`: it was rotated before. */
  | { readonly kind: 'revoked' | 'expired' | 'rotated' };

export type PropertiesChanged = KeyChanged<'done'> | Unknown | Invalid;

export type AccountChanged = { readonly kind: 'account'; readonly account: StoredAccount } | Unknown | Invalid;

/** What is about to change: neither a key nor a hash. */
export interface ChangeNote {
  /** Of the key or the account. */
  readonly id: string;
  readonly changes: Readonly<Record<string, unknown>>;
}

/** A JSON object. */
export type Patch = Readonly<Record<string, unknown>>;

/** What is to be changed: one key, or one account. */
export type About = { readonly key: string } | { readonly account: string };

/** Where keys are kept: a file, or the store of a fleet. */
export interface KeysPlace {
  /**
   * Runs `change` on what is kept and keeps what it returns, so that no other change is lost. `change` is given what `about` names, and
   * the properties of its account; a place may leave out all other entries, and may run `change` again.
   */
  change<T>(about: About, change: (before: KeyFile) => Changed<T>): Promise<T>;
}

export interface KeyStoreOptions {
  readonly date?: () => Date;
  /** Of a file: called once a change, when the new file is durable and before it replaces the old one. If it rejects, nothing changes. */
  readonly note?: (note: ChangeNote) => Promise<void>;
}

/** All changes to keys. Every method throws KeyFileError if the file is invalid, LockError if it is busy, and what a {@link KeysPlace} throws. */
export class KeyStore {
  readonly #place: KeysPlace;
  readonly #date: () => Date;

  /** `place`: a path is that of a keys file. */
  constructor(
    place: string | KeysPlace,
    { date = () => new Date(), note = () => Promise.resolve() }: KeyStoreOptions = {},
  ) {
    this.#place = typeof place === 'string' ? inFile(place, note) : place;
    this.#date = date;
  }

  /** Adds a key with these properties, which a file may have. */
  async create(properties: Omit<StoredKey, 'id' | 'hash' | 'created'>): Promise<NewKey> {
    const { key, stored } = createKey(PREFIX);
    const entry = { ...stored, created: this.#date().toISOString(), ...properties };
    return this.#place.change<NewKey>({ account: properties.account ?? '' }, (before) => {
      const after = { ...before, keys: [...before.keys, entry] };
      const note = { id: stored.id, changes: properties };
      return { after, note, result: { key, id: stored.id, entry: this.#described(entry, after) } };
    });
  }

  /**
   * Changes properties of a key as RFC 7396 (JSON Merge Patch) says: objects are merged, null removes a property. `patch` names none but
   * those that may be changed. A class replaces the weight of an older entry.
   */
  async change(id: string, patch: Patch): Promise<PropertiesChanged> {
    return this.#changeKey<PropertiesChanged>(id, (old) => {
      const problemOfEnd = laterEnd(old, patch.expires);
      if (problemOfEnd) return { result: { kind: 'invalid', ...problemOfEnd } };
      const { weight, ...rest } = old;
      const base = { ...rest, ...(weight !== undefined && !('class' in patch) && { weight }) };
      const entry = merged(base, patch) as StoredKey;
      const problem = problemOf({ key: entry });
      if (problem) return { result: { kind: 'invalid', ...problem } };
      return { entry, changes: patch, result: (file) => ({ kind: 'done', entry: this.#described(entry, file) }) };
    });
  }

  /** Changes properties of an account in the same way. An account is known if it has a key or properties. */
  async changeAccount(name: string, patch: Patch): Promise<AccountChanged> {
    return this.#place.change<AccountChanged>({ account: name }, (before) => {
      const { accounts = {}, keys } = before;
      const old = Object.hasOwn(accounts, name) ? accounts[name] : undefined;
      if (!old && !keys.some(({ account }) => account === name)) return { result: { kind: 'unknown' } };
      const account = merged(old ?? {}, patch) as StoredAccount;
      const problem = problemOf({ account });
      if (problem) return { result: { kind: 'invalid', ...problem } };
      const after = { ...before, accounts: { ...accounts, [name]: account } };
      return { after, note: { id: name, changes: patch }, result: { kind: 'account', account } };
    });
  }

  /** Revokes the key from now on. */
  async revoke(id: string): Promise<Revoked> {
    return this.#changeKey<Revoked>(id, (old, before) => {
      if (old.revoked !== undefined) return { result: { kind: 'already', entry: this.#described(old, before) } };
      const revoked = this.#date().toISOString();
      const entry = { ...old, revoked };
      return { entry, changes: { revoked }, result: (file) => ({ kind: 'done', entry: this.#described(entry, file) }) };
    });
  }

  /**
   * Creates a key with the rights and the expiry of the old one, which is revoked; with a grace it works for that long,
   * so that callers can change over. Its expiry is then the end of the grace, so it cannot be rotated twice.
   */
  async rotate(id: string, graceMs: number): Promise<Rotated> {
    const { key, stored } = createKey(PREFIX);
    const now = this.#date();
    return this.#changeKey<Rotated>(id, (old) => {
      if (old.revoked !== undefined) return { result: { kind: 'revoked' } };
      if (old.rotated !== undefined) return { result: { kind: 'rotated' } };
      const ends = old.expires === undefined ? Infinity : Date.parse(old.expires);
      if (ends <= now.getTime()) return { result: { kind: 'expired' } };
      const until = new Date(Math.min(ends, now.getTime() + graceMs)).toISOString();
      const at = now.toISOString();
      const next: StoredKey & { development?: true } = { ...old, ...stored, created: at };
      // Starts replace a development key, and other ones ignore it; an operator rotates a key to keep it.
      delete next.development;
      return {
        entry: graceMs > 0 ? { ...old, expires: until, rotated: at } : { ...old, revoked: at },
        added: next,
        changes: { by: stored.id, ...(graceMs > 0 ? { expires: until } : { revoked: at }) },
        result: (file) => ({ kind: 'done', key, id: stored.id, entry: this.#described(next, file) }),
      };
    });
  }

  /**
   * Creates a key for all models and routes in `environment`. Only its hash is stored, so it cannot be shown again:
   * each start replaces the previous development key. Other keys are unchanged. Only in a file.
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
    return this.#place.change({ account: DEVELOPMENT_ACCOUNT }, (before) => ({
      after: { ...before, keys: [...before.keys.filter(({ development }) => !development), entry] },
      note: { id: stored.id, changes: {} },
      result: key,
    }));
  }

  #described(key: StoredKey, file: KeyFile): DescribedKey {
    return described(key, file, this.#date().getTime());
  }

  #changeKey<T>(id: string, change: (old: StoredKey, file: KeyFile) => KeyChange<T>): Promise<T | Unknown> {
    return this.#place.change<T | Unknown>({ key: id }, (before) => {
      const old = before.keys.find((key) => key.id === id);
      if (!old) return { result: { kind: 'unknown' } };
      const changed = change(old, before);
      if (!changed.entry) return changed;
      const { entry, added, changes, result } = changed;
      const keys = before.keys.map((key) => (key.id === id ? entry : key));
      const after = { ...before, keys: added ? [...keys, added] : keys };
      return { after, note: { id, changes }, result: result(after) };
    });
  }
}

/** The whole of a file, which is read, changed and replaced under its lock. */
function inFile(file: string, note: (what: ChangeNote) => Promise<void>): KeysPlace {
  return {
    change: (_about, change) =>
      withLock(`${file}.lock`, async (stillHeld) => {
        const { after, note: what, result } = change(await readKeyFile(file));
        if (after) {
          await writeKeyFile(file, after, async () => {
            // A full or slow disk may hold up the note for as long as a lock lasts.
            await note(what);
            await stillHeld();
          });
        }
        return result;
      }),
  };
}

/** What is to happen to what is kept. Without `after` nothing is written; entries that do not change are the same objects. */
export type Changed<T> =
  | { readonly after?: undefined; readonly note?: undefined; readonly result: T }
  | { readonly after: KeyFile; readonly note: ChangeNote; readonly result: T };

/** What is to happen to one key. Without `entry` nothing is written. */
type KeyChange<T> =
  | { readonly entry?: undefined; readonly result: T }
  | {
      readonly entry: StoredKey;
      readonly added?: StoredKey;
      readonly changes: ChangeNote['changes'];
      readonly result: (after: KeyFile) => T;
    };

/** Of a key that works for a grace after its rotation: that it must not work for longer. */
function laterEnd({ rotated, expires = '' }: StoredKey, wanted: unknown): EntryProblem | undefined {
  if (rotated === undefined || wanted === undefined) return undefined;
  if (typeof wanted === 'string' && !(Date.parse(wanted) > Date.parse(expires))) return undefined;
  return { field: 'expires', why: 'of a key that was rotated can only be made earlier' };
}

/** RFC 7396. Bodies and files bound how deep it goes. `__proto__` is a name like any other. */
function merged(base: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const old = new Map(isObject(base) ? Object.entries(base) : []);
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) old.delete(name);
    else old.set(name, merged(old.get(name), value));
  }
  return Object.fromEntries(old);
}

function isObject(value: unknown): value is Patch {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
