import type { Clock } from '../lib/clock.js';
import { bearerOf } from './bearer.js';
import { FollowedFile } from '../lib/followed-file.js';
import type { Caller, Credentials, Denied, Identity } from './identity.js';
import { MAX_FILE_BYTES, NO_KEYS, parseKeyFile, WHAT, type KeyFile } from './key-file.js';
import { KeyFileIdentity, openAccounts } from './key-identity.js';

export interface WatchOptions {
  readonly file: string;
  /** The environment whose entitlements apply. */
  readonly environment: string;
  /** How often the file is checked without an event, ms. */
  readonly pollMs: number;
  /** Whether this start makes a development key. Otherwise the one that an earlier start left in the file is ignored. */
  readonly development: boolean;
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
  #identity = new KeyFileIdentity(NO_KEYS, '');
  #file: FollowedFile<KeyFile> | undefined;
  /** Accounts whose keys may be used. */
  #open: ReadonlySet<string> = new Set();

  /** Reads the file, which need not exist yet, and watches it. Throws FileProblem if it is invalid. */
  static async open(clock: Clock, options: WatchOptions, hooks: WatchHooks): Promise<WatchedKeys> {
    const { file, environment, pollMs, development } = options;
    const watched = new WatchedKeys();
    const { followed, value } = await FollowedFile.open({
      clock,
      file,
      what: WHAT,
      maxBytes: MAX_FILE_BYTES,
      pollMs,
      parse: (text) => {
        const content = parseKeyFile(text, file);
        return development ? content : withoutDevelopmentKey(content);
      },
      absent: NO_KEYS,
      taken: (content) => {
        const open = openAccounts(content);
        const closed = [...watched.#open].filter((account) => !open.has(account));
        watched.#open = open;
        if (closed.length > 0) hooks.closed(closed);
        watched.#identity = new KeyFileIdentity(content, environment);
        hooks.loaded(content.keys.length);
      },
      refused: (problem) => hooks.refused(problem),
    });
    watched.#file = followed;
    watched.#open = openAccounts(value);
    watched.#identity = new KeyFileIdentity(value, environment);
    hooks.loaded(value.keys.length);
    return watched;
  }

  private constructor() {}

  /** An unknown key may have been created a moment ago: the file is checked before it is rejected. */
  async resolve(credentials: Credentials): Promise<Caller | Denied> {
    const asked = this.#identity;
    const answer = await asked.resolve(credentials);
    if (answer.kind === 'caller' || answer.code !== 'invalid_api_key') return answer;
    if (bearerOf(credentials) === undefined) return answer;
    await this.#file?.refresh();
    return this.#identity === asked ? answer : this.#identity.resolve(credentials);
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

/** A development key is for callers on the sidecar's own machine, which another start may open to the network. */
function withoutDevelopmentKey(file: KeyFile): KeyFile {
  return { ...file, keys: file.keys.filter((key) => key.development !== true) };
}
