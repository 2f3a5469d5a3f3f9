import type { ErrorCode } from '../domain/errors.js';
import { CLASS_WEIGHTS } from '../domain/service-class.js';
import { bearerOf } from './bearer.js';
import type { Caller, Credentials, Denied, Identity, ModelSet } from './identity.js';
import { isFrozen, limitsOf, type KeyFile, type StoredKey } from './key-file-schema.js';
import { KeyIndex } from './key-index.js';

interface Entry {
  readonly key: StoredKey;
  /** The caller of a valid key; made once. */
  readonly caller: Caller | undefined;
  readonly frozen: boolean;
  /** Epoch ms; Infinity: never. */
  readonly expiresAt: number;
}

/** Callers by the keys of a file. */
export class KeyFileIdentity implements Identity {
  readonly #entries = new KeyIndex<Entry>();
  readonly #environment: string;
  readonly #now: () => number;

  /** `environment`: the one whose entitlements apply. `now`: wall-clock time, epoch ms. */
  constructor(file: KeyFile, environment: string, now: () => number = Date.now) {
    this.#environment = environment;
    this.#now = now;
    this.add(file);
  }

  /** Adds the keys of another file, or of a further part of one. */
  add(file: KeyFile): void {
    for (const key of file.keys) this.#entries.add(key.hash, entryOf(key, file, this.#environment));
  }

  /** Number of credentials hashed and looked up so far: one per resolved request, whatever its content. */
  get lookups(): number {
    return this.#entries.lookups;
  }

  resolve(credentials: Credentials): Promise<Caller | Denied> {
    const entry = this.#entries.find(bearerOf(credentials));
    return Promise.resolve(entry ? this.#judge(entry) : denied('invalid_api_key'));
  }

  #judge({ key, caller, frozen, expiresAt }: Entry): Caller | Denied {
    if (key.revoked !== undefined) return denied('revoked_api_key', key);
    if (this.#now() >= expiresAt) return denied('expired_api_key', key);
    if (!caller) return denied('unattributed_key', key);
    return frozen ? denied('account_frozen', key) : caller;
  }
}

function entryOf(key: StoredKey, file: KeyFile, environment: string): Entry {
  const { account, expires } = key;
  return {
    key,
    caller: account === undefined ? undefined : callerOf(key, account, environment),
    frozen: isFrozen(file, account),
    expiresAt: expires === undefined ? Infinity : Date.parse(expires),
  };
}

/** Accounts that are not frozen and have a key that is not revoked. Keys that expire count. */
export function openAccounts(file: KeyFile): ReadonlySet<string> {
  const open = new Set<string>();
  for (const { account, revoked } of file.keys) {
    if (account !== undefined && revoked === undefined && !isFrozen(file, account)) open.add(account);
  }
  return open;
}

function callerOf(key: StoredKey, account: string, environment: string): Caller {
  const entitlement = Object.hasOwn(key.entitlements, environment) ? key.entitlements[environment] : undefined;
  const models: ModelSet = entitlement?.models === 'all' ? 'all' : new Set(entitlement?.models);
  return Object.freeze({
    kind: 'caller',
    account,
    keyId: key.id,
    environment,
    models,
    ...(entitlement?.routes && { routes: new Set(entitlement.routes) }),
    ...(entitlement?.cohort !== undefined && { cohort: entitlement.cohort }),
    ...(key.limits && { limits: limitsOf(key.limits) }),
    ...(entitlement?.tokensPerDay !== undefined && { tokensPerDay: entitlement.tokensPerDay }),
    weight: key.weight ?? CLASS_WEIGHTS[key.class ?? 'standard'],
  });
}

function denied(code: ErrorCode, key?: StoredKey): Denied {
  return { kind: 'denied', code, ...(key && { known: { account: key.account, keyId: key.id } }) };
}
