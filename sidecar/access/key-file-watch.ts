/**
 * The keys of a file, followed while the sidecar runs.
 *
 *     event of the folder ──100 ms──┐
 *     poll: the file has changed ───┼──> read ──> good: its keys from now on
 *     SIGHUP ───────────────────────┘         └─> bad, or gone: said loudly, the last good ones stay
 *
 * A caller that was resolved is an object of its own: running requests keep theirs, whatever becomes of their keys. Events
 * tell at once, also of a file that is created, removed or replaced by a rename; network file systems, bind mounts and
 * links send none, so the file is looked at every now and then as well.
 */
import { createHash } from 'node:crypto';
import { watch, type FSWatcher } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type { Clock } from '../clock.js';
import type { Caller, Credentials, Denied, Identity } from './identity.js';
import { KeyFileError, parseKeyFile, readKeyText } from './key-file.js';
import { KeyFileIdentity } from './key-identity.js';

/** From an event to the look, ms: what writes a file in pieces sends several. */
const SETTLE_MS = 100;

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

/** What was found at one look, and what to say of it once. */
type Found =
  | { readonly kind: 'keys'; readonly digest: string; readonly text: string }
  | { readonly kind: 'none' }
  | { readonly kind: 'bad'; readonly problem: string };

/** Identity by the keys file as it is now. Whoever opens it closes it. */
export class WatchedKeys implements Identity {
  readonly #clock: Clock;
  readonly #options: WatchOptions;
  readonly #hooks: WatchHooks;
  #identity: KeyFileIdentity;
  #watcher: FSWatcher | undefined;
  /** How the file looked last; whatever makes a difference to that calls for a read. */
  #seen: string;
  /** What was said last, so that nothing is said twice. */
  #said: string;
  #reading: Promise<void> | undefined;
  /** Asked for while one runs: one further read, however often. */
  #again = false;
  #sayAnyway = false;
  #cancelSettle: (() => void) | undefined;
  #cancelPoll: () => void = () => undefined;
  #closed = false;

  /** Reads the file, which need not exist yet, and follows it. Throws KeyFileError when it cannot be used. */
  static async open(clock: Clock, options: WatchOptions, hooks: WatchHooks): Promise<WatchedKeys> {
    const { file, environment } = options;
    const seen = await look(file);
    const text = await readKeyText(file);
    const content = text === undefined ? { version: 1 as const, keys: [] } : parseKeyFile(text, file);
    const said = text === undefined ? 'none' : digestOf(text);
    const watched = new WatchedKeys(clock, options, hooks, new KeyFileIdentity(content, environment), { seen, said });
    hooks.loaded(content.keys.length);
    watched.#follow();
    watched.#poll();
    return watched;
  }

  private constructor(
    clock: Clock,
    options: WatchOptions,
    hooks: WatchHooks,
    identity: KeyFileIdentity,
    { seen, said }: { readonly seen: string; readonly said: string },
  ) {
    this.#clock = clock;
    this.#options = options;
    this.#hooks = hooks;
    this.#identity = identity;
    this.#seen = seen;
    this.#said = said;
  }

  resolve(credentials: Credentials): Promise<Caller | Denied> {
    return this.#identity.resolve(credentials);
  }

  /** Reads the file now and says what it holds, changed or not. Resolves when that is done. */
  reload(): Promise<void> {
    this.#sayAnyway = true;
    return this.#read();
  }

  /** Follows the file no longer; the last keys stay. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#watcher?.close();
    this.#cancelSettle?.();
    this.#cancelPoll();
  }

  /** One read at a time; what is asked for meanwhile is one more after it. */
  #read(): Promise<void> {
    this.#again = true;
    this.#reading ??= (async () => {
      while (this.#again && !this.#closed) {
        this.#again = false;
        await this.#readOnce();
      }
      this.#reading = undefined;
    })();
    return this.#reading;
  }

  async #readOnce(): Promise<void> {
    // Before the read: what changes during it looks different afterwards.
    this.#seen = await look(this.#options.file);
    const found = await find(this.#options.file);
    const news = found.kind === 'keys' ? found.digest : found.kind === 'none' ? 'none' : found.problem;
    if (this.#closed || (news === this.#said && !this.#sayAnyway)) return;
    this.#said = news;
    this.#sayAnyway = false;
    if (found.kind === 'keys') this.#take(found.text);
    else this.#hooks.refused(found.kind === 'none' ? 'does not exist' : found.problem);
  }

  #take(text: string): void {
    const { file, environment } = this.#options;
    try {
      const content = parseKeyFile(text, file);
      this.#identity = new KeyFileIdentity(content, environment);
      this.#hooks.loaded(content.keys.length);
    } catch (error) {
      if (!(error instanceof KeyFileError)) throw error;
      this.#hooks.refused(error.problem);
    }
  }

  /** Events of the folder, since the file itself is replaced. None where there is no folder yet, or none can be had. */
  #follow(): void {
    const name = basename(this.#options.file);
    this.#watcher?.close();
    this.#watcher = undefined;
    try {
      const watcher = watch(dirname(this.#options.file), { persistent: false }, (_, about) => {
        if (about === null || about === name) this.#settle();
      });
      watcher.on('error', () => watcher.close());
      this.#watcher = watcher;
    } catch {
      // The poll sees to it.
    }
  }

  /** The first of several events sets the time, so that a file that never comes to rest is read nonetheless. */
  #settle(): void {
    if (this.#closed) return;
    this.#cancelSettle ??= this.#clock.after(SETTLE_MS, () => {
      this.#cancelSettle = undefined;
      void this.#read();
    });
  }

  #poll(): void {
    if (this.#closed) return;
    this.#cancelPoll = this.#clock.after(this.#options.pollMs, () => void this.#lookAgain());
  }

  async #lookAgain(): Promise<void> {
    if ((await look(this.#options.file)) !== this.#seen) {
      // No event told of it: perhaps the folder is another one by now.
      if (!this.#closed) this.#follow();
      await this.#read();
    }
    this.#poll();
  }
}

/** How a file looks without reading it. Its change time shows what a restored modification time hides. */
async function look(file: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(' ');
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}

async function find(file: string): Promise<Found> {
  try {
    const text = await readKeyText(file);
    return text === undefined ? { kind: 'none' } : { kind: 'keys', digest: digestOf(text), text };
  } catch (error) {
    if (!(error instanceof KeyFileError)) throw error;
    return { kind: 'bad', problem: error.problem };
  }
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
