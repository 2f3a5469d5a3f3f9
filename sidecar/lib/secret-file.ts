/**
 * Shared secrets in a file, one per line. There may be several, so that a secret can be rotated while both sides still accept the old one.
 * The file is watched; if it becomes invalid, the last valid secrets stay in force.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { FileProblem, readChecked, readText } from './checked-file.js';
import type { Clock } from './clock.js';
import { FollowedFile } from './followed-file.js';

/** Time between two checks of the file, ms. */
const LOOK_MS = 5000;

/** Secrets in one file: the old, the new and a few more. Each guess is compared with all of them. */
const MAX_SECRETS = 8;

/** Size of the whole file, which is read repeatedly. */
const MAX_BYTES = 8192;

/** Shorter secrets can be guessed; longer ones do not fit well in a header. */
const SECRET = /^[\x21-\x7e]{32,256}$/;

/** The file's name in messages. */
const WHAT = 'secrets';

export interface SecretFileHooks {
  readonly changed: () => void;
  /** Called once for each state in which the file cannot be used; the previous secrets stay in force. */
  readonly unusable: (why: string) => void;
}

/** The secrets of one file. Owned by the code that opens it, which must close it. */
export class SecretFile {
  /** Guesses and secrets are compared as HMACs with this key: equal lengths, and no caller can influence the comparison. */
  readonly #salt = randomBytes(32);
  #secrets: readonly string[] = [];
  #digests: readonly Buffer[] = [];
  #file: FollowedFile<readonly string[]> | undefined;

  private constructor() {}

  /** Rejects with FileProblem if the file has no valid secret. */
  static async open(file: string, clock: Clock, hooks: SecretFileHooks): Promise<SecretFile> {
    const secrets = new SecretFile();
    const { followed, value } = await FollowedFile.open({
      clock,
      file,
      read: () => readChecked(file, { what: WHAT, maxBytes: MAX_BYTES, parse: parseSecrets }),
      pollMs: LOOK_MS,
      taken: (taken) => {
        if (secrets.#take(taken)) hooks.changed();
      },
      refused: hooks.unusable,
    });
    secrets.#file = followed;
    secrets.#take(value);
    return secrets;
  }

  /** Whether `guess` is one of the secrets. The time depends only on the length of the guess. */
  has(guess: string): boolean {
    const digest = this.#digest(guess);
    let found = false;
    for (const secret of this.#digests) found = timingSafeEqual(secret, digest) || found;
    return found;
  }

  /** What the log and the audit call the owner of a secret: the first 8 hex digits of its SHA-256. Undefined if it is none of them. */
  nameOf(guess: string): string | undefined {
    return this.has(guess) ? createHash('sha256').update(guess).digest('hex').slice(0, 8) : undefined;
  }

  /** The first secret, for requests that the sidecar authenticates with it. */
  get first(): string {
    return this.#secrets[0] ?? '';
  }

  /** Reads the file now. Never rejects; problems are reported to the hooks. */
  async reload(): Promise<void> {
    await this.#file?.reload();
  }

  /** Stops watching. Idempotent; the secrets stay in force. */
  close(): void {
    this.#file?.close();
  }

  /** Returns whether the secrets changed. */
  #take(secrets: readonly string[]): boolean {
    if (secrets.join('\n') === this.#secrets.join('\n')) return false;
    this.#secrets = secrets;
    this.#digests = secrets.map((secret) => this.#digest(secret));
    return true;
  }

  #digest(text: string): Buffer {
    return createHmac('sha256', this.#salt).update(text).digest();
  }
}

/** The secrets in a file, read once. Rejects with a {@link FileProblem}, which never quotes one. */
export async function readSecrets(file: string): Promise<readonly string[]> {
  const text = await readText(WHAT, file, MAX_BYTES);
  if (text === undefined) throw new FileProblem(WHAT, 'does not exist', file);
  return parseSecrets(text, file);
}

export async function readFirstSecret(file: string): Promise<string> {
  return (await readSecrets(file))[0] ?? '';
}

/** The secrets in the text of `file`. Throws FileProblem. */
function parseSecrets(text: string, file: string): readonly string[] {
  const fail = (problem: string): never => {
    throw new FileProblem(WHAT, problem, file);
  };
  const lines = text.split('\n').map((line) => line.trim());
  const secrets = lines.filter((line) => line !== '' && !line.startsWith('#'));
  if (secrets.length === 0) return fail('holds none');
  if (secrets.length > MAX_SECRETS) return fail(`holds more than ${MAX_SECRETS}`);
  const bad = lines.findIndex((line) => secrets.includes(line) && !SECRET.test(line));
  return bad < 0 ? secrets : fail(`line ${bad + 1} is not 32 to 256 visible ASCII characters`);
}

/** The name of a sink's token file in messages. */
const TOKEN_FILE = 'delivery.secretFile';

/** No bearer token is longer; a longer file was probably named by mistake. */
const MAX_TOKEN_BYTES = 4096;

/** RFC 6750's b68token, all of whose characters are allowed in a header. */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;

/** The single bearer token in a file, without surrounding space. Rejects with a {@link FileProblem}, which never quotes it. */
export async function readBearerToken(file: string): Promise<string> {
  const token = (await readText(TOKEN_FILE, file, MAX_TOKEN_BYTES))?.trim();
  if (token === undefined) throw new FileProblem(TOKEN_FILE, 'does not exist', file);
  if (!TOKEN.test(token)) throw new FileProblem(TOKEN_FILE, 'must hold one bearer token and nothing else', file);
  return token;
}
