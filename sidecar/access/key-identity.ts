import { createHmac, randomBytes } from 'node:crypto';
import type { ErrorCode } from '../errors.js';
import { bearerOf } from './bearer.js';
import { CLASS_WEIGHTS, type Caller, type Credentials, type Denied, type Identity, type ModelSet } from './identity.js';
import type { KeyFile, StoredKey } from './key-file.js';
import { hashKey } from './keys.js';

interface Entry {
  readonly key: StoredKey;
  /** What the key resolves to while it is good; made once. */
  readonly caller: Caller | undefined;
  readonly frozen: boolean;
  /** Epoch ms; Infinity: never. */
  readonly expiresAt: number;
}

/** Callers by the keys of a file, read once. */
export class KeyFileIdentity implements Identity {
  readonly #entries: ReadonlyMap<string, Entry>;
  readonly #now: () => number;
  /**
   * Entries are found by an HMAC under this secret of the process, so that the time a lookup takes says nothing about
   * the stored hashes, however well a guess is chosen.
   */
  readonly #secret = randomBytes(32);

  /** `environment`: whose entitlements apply. `now`: wall-clock time, epoch ms. */
  constructor(file: KeyFile, environment: string, now: () => number = Date.now) {
    this.#now = now;
    this.#entries = new Map(file.keys.map((key) => [this.#index(key.hash), entryOf(key, file, environment)]));
  }

  resolve(credentials: Credentials): Promise<Caller | Denied> {
    const key = bearerOf(credentials);
    const entry = key === undefined ? undefined : this.#entries.get(this.#index(hashKey(key)));
    return Promise.resolve(entry ? this.#judge(entry) : denied('invalid_api_key'));
  }

  #judge({ key, caller, frozen, expiresAt }: Entry): Caller | Denied {
    if (key.revoked !== undefined) return denied('revoked_api_key');
    if (this.#now() >= expiresAt) return denied('expired_api_key');
    if (!caller) return denied('unattributed_key');
    return frozen ? denied('account_frozen') : caller;
  }

  #index(hash: string): string {
    return createHmac('sha256', this.#secret).update(hash).digest('base64');
  }
}

function entryOf(key: StoredKey, file: KeyFile, environment: string): Entry {
  const { account, expires } = key;
  return {
    key,
    caller: account === undefined ? undefined : callerOf(key, account, environment),
    frozen:
      account !== undefined && Object.hasOwn(file.accounts ?? {}, account) && file.accounts?.[account]?.frozen === true,
    expiresAt: expires === undefined ? Infinity : Date.parse(expires),
  };
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
    ...(entitlement?.routes ? { routes: new Set(entitlement.routes) } : {}),
    ...(key.limits ? { limits: key.limits } : {}),
    weight: key.weight ?? CLASS_WEIGHTS[key.class ?? 'standard'],
  });
}

function denied(code: ErrorCode): Denied {
  return { kind: 'denied', code };
}
