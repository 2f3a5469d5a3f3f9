/** Callers by the keys of a file, which is followed while the sidecar runs. */
import { createHmac, randomBytes } from 'node:crypto';
import type { ErrorCode } from '../domain/errors.js';
import { CLASS_WEIGHTS } from '../domain/service-class.js';
import type { Clock } from '../lib/clock.js';
import { FollowedFile } from '../lib/followed-file.js';
import { bearerOf, type Caller, type Credentials, type Denied, type Identity, type KnownNames } from './identity.js';
import {
  accountOf,
  callerWith,
  hashKey,
  KEYS,
  NO_KEYS,
  stateOfKey,
  type KeyFile,
  type StoredAccount,
  type StoredKey,
} from './key-file.js';
import { tokenLimitsOf } from './limits.js';
import { readLarge, type Gathering } from './large-file.js';

/** Hashed for a request without a key; the result is ignored. */
const NO_KEY = '';

/** What a key is answered with until it expires. */
interface FiledKey {
  readonly answer: Caller | Denied;
  /** Epoch ms; Infinity: never, or it was revoked before. */
  readonly expiresAt: number;
}

export interface KeyFileOptions {
  /** Wall-clock time, epoch ms. */
  readonly now?: () => number;
  /** Leaves out a development key: it is for callers on the sidecar's own machine, which another start may open to the network. */
  readonly ignoresDevelopmentKey?: boolean;
}

/**
 * The keys of one content of a file.
 *
 * They are indexed by an HMAC of their hash with a random secret of this process, so that the time of a lookup reveals
 * nothing about the stored hashes, however a guess is chosen. Every request costs the same: one hash, one HMAC, one
 * lookup, whether it has a key or not, and whether that is known, revoked or valid.
 */
export class KeyFileIdentity implements Identity, Gathering<KeyFile> {
  readonly #environment: string;
  readonly #now: () => number;
  readonly #ignoresDevelopmentKey: boolean;
  readonly #secret = randomBytes(32);
  readonly #filed = new Map<string, FiledKey>();
  readonly #byId = new Map<string, FiledKey>();
  readonly #openAccounts = new Set<string>();
  #lookups = 0;

  /** `environment`: the one whose entitlements apply. */
  constructor(
    file: KeyFile,
    environment: string,
    { now = Date.now, ignoresDevelopmentKey = false }: KeyFileOptions = {},
  ) {
    this.#environment = environment;
    this.#now = now;
    this.#ignoresDevelopmentKey = ignoresDevelopmentKey;
    this.add(file);
  }

  /** Adds the keys of another file, or of a further part of one. */
  add(file: KeyFile): void {
    for (const key of file.keys) {
      if (key.development && this.#ignoresDevelopmentKey) continue;
      const state = stateOfKey(key, file, -Infinity);
      if (state === 'good' && key.account !== undefined) this.#openAccounts.add(key.account);
      const filed: FiledKey = {
        answer:
          state === 'good'
            ? callerOf(key, this.#environment, accountOf(file, key.account))
            : { kind: 'denied', code: REASONS[state], known: namesOf(key) },
        expiresAt: state === 'revoked' || key.expires === undefined ? Infinity : Date.parse(key.expires),
      };
      this.#filed.set(this.#indexOf(key.hash), filed);
      this.#byId.set(key.id, filed);
    }
  }

  get count(): number {
    return this.#filed.size;
  }

  /** Accounts that are not frozen and have a key that is not revoked. Keys that expire count. */
  get openAccounts(): ReadonlySet<string> {
    return this.#openAccounts;
  }

  /** Number of credentials hashed and looked up so far: one per resolved request, whatever its content. */
  get lookups(): number {
    return this.#lookups;
  }

  resolve(credentials: Credentials): Promise<Caller | Denied> {
    const key = bearerOf(credentials);
    this.#lookups++;
    const found = this.#filed.get(this.#indexOf(hashKey(key ?? NO_KEY)));
    if (key === undefined || found === undefined) return Promise.resolve(UNKNOWN_KEY);
    return Promise.resolve(this.#answerOf(found));
  }

  ofKey(keyId: string, account: string): Caller | Denied | undefined {
    const found = this.#byId.get(keyId);
    if (found !== undefined) return this.#answerOf(found);
    return this.#openAccounts.has(account) ? undefined : UNKNOWN_KEY;
  }

  #answerOf({ answer, expiresAt }: FiledKey): Caller | Denied {
    return this.#now() < expiresAt ? answer : expired(answer);
  }

  #indexOf(hash: string): string {
    return createHmac('sha256', this.#secret).update(hash).digest('base64');
  }
}

const NOT_CURRENT: Denied = { kind: 'denied', code: 'gateway_unavailable', retryAfterMs: 1000 };

const UNKNOWN_KEY: Denied = { kind: 'denied', code: 'invalid_api_key' };

const REASONS = {
  revoked: 'revoked_api_key',
  expired: 'expired_api_key',
  unattributed: 'unattributed_key',
  frozen: 'account_frozen',
} as const satisfies Record<string, ErrorCode>;

function namesOf({ account, id }: StoredKey): KnownNames {
  return { account, keyId: id };
}

function expired(answer: Caller | Denied): Denied {
  const known = answer.kind === 'denied' ? answer.known : { account: answer.account, keyId: answer.keyId };
  return { kind: 'denied', code: REASONS.expired, ...(known && { known }) };
}

/** `key` has an account. */
function callerOf(key: StoredKey, environment: string, account: StoredAccount | undefined): Caller {
  const rights = Object.hasOwn(key.entitlements, environment) ? key.entitlements[environment] : undefined;
  return callerWith(rights ?? { models: [] }, {
    account: key.account ?? '',
    keyId: key.id,
    environment,
    ...(key.limits && { limits: key.limits }),
    ...(account && { accountTokens: tokenLimitsOf(account) }),
    weight: key.weight ?? CLASS_WEIGHTS[key.class ?? 'standard'],
  });
}

export interface WatchOptions {
  readonly file: string;
  /** The environment whose entitlements apply. */
  readonly environment: string;
  /** How often the file is checked without an event, ms. */
  readonly pollMs: number;
  /** Whether this start makes a development key. Otherwise the one that an earlier start left in the file is ignored. */
  readonly development: boolean;
}

/** The keys file that a sidecar follows, and which content of it is in force. */
export interface KeysInForce {
  readonly file: string;
  /** SHA-256 of that content, hex; `none`: the file did not exist. */
  readonly sha256: string;
  /** The number of keys in force. */
  readonly keys: number;
  /** Why the file cannot be used as it is now; absent: its content is in force. */
  readonly problem?: string;
}

export interface WatchHooks {
  /** Keys were loaded from the file, also at the start: their number. */
  readonly loaded: (keys: number) => void;
  /** Accounts that had a key in force and have none any more, or were frozen. */
  readonly closed: (accounts: readonly string[]) => void;
  /** The file is invalid; the previous keys stay in force. `problem`: one line without the file's content. */
  readonly refused: (problem: string) => void;
}

/** Authenticates by the current keys file. Running requests keep their callers when keys change. The code that opens it closes it. */
export class WatchedKeys implements Identity {
  /** Whether callers may still be judged by this content; of a fleet's keys, whether the store has confirmed them lately. */
  isCurrent = (): boolean => true;
  #keys: KeyFileIdentity;
  readonly #path: string;
  readonly #file: FollowedFile<KeyFileIdentity>;

  /** Reads the file, which need not exist yet, and watches it. Throws FileProblem if it is invalid. */
  static async open(
    clock: Clock,
    options: WatchOptions,
    { loaded, closed, refused }: WatchHooks,
  ): Promise<WatchedKeys> {
    const { file, environment, pollMs, development } = options;
    const none = (): KeyFileIdentity =>
      new KeyFileIdentity(NO_KEYS, environment, { ignoresDevelopmentKey: !development });
    const { followed, value } = await FollowedFile.open({
      clock,
      file,
      read: () => readLarge(file, KEYS, none()),
      pollMs,
      absent: none(),
      taken: (keys) => {
        const lost = [...watched.#keys.openAccounts].filter((account) => !keys.openAccounts.has(account));
        watched.#keys = keys;
        if (lost.length > 0) closed(lost);
        loaded(keys.count);
      },
      refused,
    });
    const watched = new WatchedKeys(file, followed, value);
    loaded(value.count);
    return watched;
  }

  private constructor(path: string, file: FollowedFile<KeyFileIdentity>, keys: KeyFileIdentity) {
    this.#path = path;
    this.#file = file;
    this.#keys = keys;
  }

  /** An unknown key may have been created a moment ago: the file is checked before it is rejected. */
  async resolve(credentials: Credentials): Promise<Caller | Denied> {
    if (!this.isCurrent()) return NOT_CURRENT;
    const keys = this.#keys;
    const answer = await keys.resolve(credentials);
    if (answer.kind === 'caller' || answer.code !== 'invalid_api_key') return answer;
    if (bearerOf(credentials) === undefined) return answer;
    await this.#file.refresh();
    return this.#keys === keys ? answer : this.#keys.resolve(credentials);
  }

  ofKey(keyId: string, account: string): Caller | Denied | undefined {
    const known = this.#keys.ofKey(keyId, account);
    // Keys that the store has not confirmed do not say that there is no such key: a batch is not to end by that.
    return known === UNKNOWN_KEY && !this.isCurrent() ? undefined : known;
  }

  /** Which content of the file is in force, after a check whether it has changed, as before an unknown key is rejected. */
  async inForce(): Promise<KeysInForce> {
    await this.#file.refresh();
    const { sign, ...problem } = this.#file.inForce;
    return { file: this.#path, sha256: sign, keys: this.#keys.count, ...problem };
  }

  /** Reads the file now and reports its content, changed or not. Resolves afterwards. */
  reload(): Promise<void> {
    return this.#file.reload();
  }

  /** Stops watching; the last keys stay. Idempotent. */
  close(): void {
    this.#file.close();
  }
}
