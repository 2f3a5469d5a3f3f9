/**
 * Shared secrets in a file of the operator's, one a line: several, so that a secret can be rotated without a moment in
 * which one side has the new one alone. The file is read again when it changes, which is looked for every few seconds:
 * that sees renames and mounted secrets too, which file watchers miss. A file that went bad leaves the last good secrets
 * in force.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { open } from 'node:fs/promises';
import type { Clock } from '../clock.js';

/** Time between two looks at the file, ms. */
const LOOK_MS = 5000;

/** Secrets in one file: the old, the new and some to spare. Each guess is compared with all of them. */
const MAX_SECRETS = 8;

/** Of the whole file; it is read again and again. */
const MAX_BYTES = 8192;

/** Shorter ones can be guessed; longer ones make no sense in a header. */
const SECRET = /^[\x21-\x7e]{32,256}$/;

/** The file cannot be used. One line; names the file and what is wrong, never what is in it. */
export class SecretFileError extends Error {
  override readonly name = 'SecretFileError';
}

export interface SecretFileHooks {
  /** Other secrets than before are in force. */
  readonly changed: () => void;
  /** The file cannot be used now; the secrets before stay in force. Told once until it is good again. */
  readonly unusable: (why: string) => void;
}

/** The secrets of one file. Whoever opens it closes it, which ends the looking. */
export class SecretFile {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #hooks: SecretFileHooks;
  /** Guesses and secrets are compared as HMACs under it: equally long, and not to be steered by whoever guesses. */
  readonly #salt = randomBytes(32);
  #secrets: readonly string[];
  #digests: readonly Buffer[];
  #bad = false;
  #closed = false;
  #stop: () => void = () => undefined;

  private constructor(file: string, clock: Clock, hooks: SecretFileHooks, secrets: readonly string[]) {
    this.#file = file;
    this.#clock = clock;
    this.#hooks = hooks;
    this.#secrets = secrets;
    this.#digests = secrets.map((secret) => this.#digest(secret));
    this.#lookLater();
  }

  /** Rejects with {@link SecretFileError} when the file holds nothing that can be used. */
  static async open(file: string, clock: Clock, hooks: SecretFileHooks): Promise<SecretFile> {
    return new SecretFile(file, clock, hooks, await readSecrets(file));
  }

  /** Whether `guess` is one of the secrets; takes as long for any guess of one length. */
  has(guess: string): boolean {
    const digest = this.#digest(guess);
    let found = false;
    for (const secret of this.#digests) found = timingSafeEqual(secret, digest) || found;
    return found;
  }

  /** The first secret, for whoever has to prove something with it. */
  get first(): string {
    return this.#secrets[0] ?? '';
  }

  /** Reads the file now. Never rejects: what is wrong is told to the hooks. */
  async reload(): Promise<void> {
    try {
      const secrets = await readSecrets(this.#file);
      this.#bad = false;
      if (secrets.join('\n') === this.#secrets.join('\n')) return;
      this.#secrets = secrets;
      this.#digests = secrets.map((secret) => this.#digest(secret));
      this.#hooks.changed();
    } catch (error) {
      if (!this.#bad) this.#hooks.unusable(error instanceof SecretFileError ? error.message : 'cannot be read');
      this.#bad = true;
    }
  }

  /** Looks no more. Idempotent; the secrets stay in force. */
  close(): void {
    this.#closed = true;
    this.#stop();
  }

  #lookLater(): void {
    if (this.#closed) return;
    this.#stop = this.#clock.after(LOOK_MS, () => void this.reload().then(() => this.#lookLater()));
  }

  #digest(text: string): Buffer {
    return createHmac('sha256', this.#salt).update(text).digest();
  }
}

/** The secrets of `file`. Rejects with {@link SecretFileError}. */
async function readSecrets(file: string): Promise<readonly string[]> {
  const fail = (what: string): never => {
    throw new SecretFileError(`secrets: ${what} (file ${file})`);
  };
  const text = await readAtMost(file).catch((error: unknown) =>
    fail(`cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown'}`),
  );
  if (text === undefined) return fail(`is longer than ${MAX_BYTES} bytes`);
  const lines = text.split('\n').map((line) => line.trim());
  const secrets = lines.filter((line) => line !== '' && !line.startsWith('#'));
  if (secrets.length === 0) return fail('holds none');
  if (secrets.length > MAX_SECRETS) return fail(`holds more than ${MAX_SECRETS}`);
  const bad = lines.findIndex((line) => secrets.includes(line) && !SECRET.test(line));
  return bad < 0 ? secrets : fail(`line ${bad + 1} is not 32 to 256 visible ASCII characters`);
}

/** The file's text; undefined: it is longer than {@link MAX_BYTES}. */
async function readAtMost(file: string): Promise<string | undefined> {
  const handle = await open(file, 'r');
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(MAX_BYTES + 1), 0, MAX_BYTES + 1, 0);
    return bytesRead > MAX_BYTES ? undefined : buffer.toString('utf8', 0, bytesRead);
  } finally {
    await handle.close();
  }
}
