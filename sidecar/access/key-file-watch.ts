import type { Clock } from '../lib/clock.js';
import { bearerOf } from './bearer.js';
import { FollowedFile } from '../lib/followed-file.js';
import type { Caller, Credentials, Denied, Identity } from './identity.js';
import { MAX_FILE_BYTES, NO_KEYS, parseKeyFile, WHAT, type KeyFile } from './key-file.js';
import { KeyFileIdentity } from './key-identity.js';

export interface WatchOptions {
  readonly file: string;
  /** Whose entitlements apply. */
  readonly environment: string;
  /** How often the file is looked at without an event, ms. */
  readonly pollMs: number;
}

export interface WatchHooks {
  /** Keys were taken from the file, the first ones included: how many it holds. */
  loaded(keys: number): void;
  /** The file cannot be used; what held before holds on. `problem`: one line without the file's content. */
  refused(problem: string): void;
}

/**
 * Identity by the keys file as it is now. A caller that was resolved is an object of its own: running requests keep theirs,
 * whatever becomes of their keys. Whoever opens it closes it.
 */
export class WatchedKeys implements Identity {
  #identity = new KeyFileIdentity(NO_KEYS, '');
  #file: FollowedFile<KeyFile> | undefined;

  /** Reads the file, which need not exist yet, and follows it. Throws FileProblem when it cannot be used. */
  static async open(clock: Clock, options: WatchOptions, hooks: WatchHooks): Promise<WatchedKeys> {
    const { file, environment, pollMs } = options;
    const watched = new WatchedKeys();
    const { followed, value } = await FollowedFile.open({
      clock,
      file,
      what: WHAT,
      maxBytes: MAX_FILE_BYTES,
      pollMs,
      parse: (text) => parseKeyFile(text, file),
      absent: NO_KEYS,
      taken: (content) => {
        watched.#identity = new KeyFileIdentity(content, environment);
        hooks.loaded(content.keys.length);
      },
      refused: (problem) => hooks.refused(problem),
    });
    watched.#file = followed;
    watched.#identity = new KeyFileIdentity(value, environment);
    hooks.loaded(value.keys.length);
    return watched;
  }

  private constructor() {}

  /** A key that is not known may have been created a moment ago: the file is looked at before it is refused. */
  async resolve(credentials: Credentials): Promise<Caller | Denied> {
    const asked = this.#identity;
    const answer = await asked.resolve(credentials);
    if (answer.kind === 'caller' || answer.code !== 'invalid_api_key') return answer;
    if (bearerOf(credentials) === undefined) return answer;
    await this.#file?.refresh();
    return this.#identity === asked ? answer : this.#identity.resolve(credentials);
  }

  /** Reads the file now and says what it holds, changed or not. Resolves when that is done. */
  async reload(): Promise<void> {
    await this.#file?.reload();
  }

  /** Follows the file no longer; the last keys stay. Idempotent. */
  close(): void {
    this.#file?.close();
  }
}
