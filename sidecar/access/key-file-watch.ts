import type { Clock } from '../lib/clock.js';
import { bearerOf } from './bearer.js';
import { ABSENT } from '../lib/checked-file.js';
import { FollowedFile } from '../lib/followed-file.js';
import type { Caller, Credentials, Denied, Identity } from './identity.js';
import { KEYS, NO_KEYS, type KeyFile } from './key-file.js';
import { KeyFileIdentity, openAccounts } from './key-identity.js';
import { readLarge, type Gathering } from './large-file.js';

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
  /** Number of keys in force. */
  readonly keys: number;
  /** Why the file cannot be used as it is now; absent: its content is in force. */
  readonly problem?: string;
}

export interface WatchHooks {
  /** Keys were loaded from the file, also at the start: their number. */
  loaded(keys: number): void;
  /** Accounts that had a key in force and have none any more, or were frozen. */
  closed(accounts: readonly string[]): void;
  /** The file is invalid; the previous keys stay in force. `problem`: one line without the file's content. */
  refused(problem: string): void;
}

/**
 * Authenticates by the current keys file. A resolved caller is an immutable object, so running requests keep theirs,
 * whatever happens to their keys. Owned by the code that opens it, which must close it.
 */
export class WatchedKeys implements Identity {
  #keys: LoadedKeys;
  readonly #path: string;
  readonly #hooks: WatchHooks;
  #file: FollowedFile<LoadedKeys> | undefined;

  /** Reads the file, which need not exist yet, and watches it. Throws FileProblem if it is invalid. */
  static async open(clock: Clock, options: WatchOptions, hooks: WatchHooks): Promise<WatchedKeys> {
    const { file, pollMs } = options;
    const watched = new WatchedKeys(file, new LoadedKeys(options), hooks);
    const { followed, value } = await FollowedFile.open({
      clock,
      file,
      read: () => readLarge(file, KEYS, new LoadedKeys(options)),
      pollMs,
      absent: new LoadedKeys(options),
      taken: (keys) => watched.#take(keys),
      refused: (problem) => hooks.refused(problem),
    });
    watched.#file = followed;
    watched.#take(value);
    return watched;
  }

  private constructor(path: string, keys: LoadedKeys, hooks: WatchHooks) {
    this.#path = path;
    this.#keys = keys;
    this.#hooks = hooks;
  }

  #take(keys: LoadedKeys): void {
    const closed = [...this.#keys.open].filter((account) => !keys.open.has(account));
    this.#keys = keys;
    if (closed.length > 0) this.#hooks.closed(closed);
    this.#hooks.loaded(keys.count);
  }

  /** An unknown key may have been created a moment ago: the file is checked before it is rejected. */
  async resolve(credentials: Credentials): Promise<Caller | Denied> {
    const { identity } = this.#keys;
    const answer = await identity.resolve(credentials);
    if (answer.kind === 'caller' || answer.code !== 'invalid_api_key') return answer;
    if (bearerOf(credentials) === undefined) return answer;
    await this.#file?.refresh();
    return this.#keys.identity === identity ? answer : this.#keys.identity.resolve(credentials);
  }

  /** Which content of the file is in force, after a check whether it has changed, as before an unknown key is rejected. */
  async inForce(): Promise<KeysInForce> {
    await this.#file?.refresh();
    const { sign = ABSENT, ...problem } = this.#file?.inForce ?? {};
    return { file: this.#path, sha256: sign, keys: this.#keys.count, ...problem };
  }

  /** Reads the file now and reports its content, changed or not. Resolves afterwards. */
  async reload(): Promise<void> {
    await this.#file?.reload();
  }

  /** Stops watching; the last keys stay. Idempotent. */
  close(): void {
    this.#file?.close();
  }
}

/** What is in force of a keys file. */
class LoadedKeys implements Gathering<KeyFile> {
  readonly identity: KeyFileIdentity;
  /** Accounts whose keys may be used. */
  readonly open = new Set<string>();
  readonly #development: boolean;
  #count = 0;

  constructor({ environment, development }: WatchOptions) {
    this.identity = new KeyFileIdentity(NO_KEYS, environment);
    this.#development = development;
  }

  /** Number of keys. */
  get count(): number {
    return this.#count;
  }

  add(part: KeyFile): void {
    const file = this.#development ? part : withoutDevelopmentKey(part);
    this.identity.add(file);
    for (const account of openAccounts(file)) this.open.add(account);
    this.#count += file.keys.length;
  }
}

/** A development key is for callers on the sidecar's own machine, which another start may open to the network. */
function withoutDevelopmentKey(file: KeyFile): KeyFile {
  return { ...file, keys: file.keys.filter((key) => key.development !== true) };
}
