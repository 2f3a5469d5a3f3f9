/**
 * Shared secrets in a file of the operator's, one a line: several, so that a secret can be rotated without a moment in
 * which one side has the new one alone. The file is followed; one that went bad leaves the last good secrets in force.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Clock } from './clock.js';
import { FileProblem, FollowedFile, readText } from './followed-file.js';

/** Time between two looks at the file, ms. */
const LOOK_MS = 5000;

/** Secrets in one file: the old, the new and some to spare. Each guess is compared with all of them. */
const MAX_SECRETS = 8;

/** Of the whole file; it is read again and again. */
const MAX_BYTES = 8192;

/** Shorter ones can be guessed; longer ones make no sense in a header. */
const SECRET = /^[\x21-\x7e]{32,256}$/;

/** What messages call the file. */
const WHAT = 'secrets';

export interface SecretFileHooks {
  /** Other secrets than before are in force. */
  readonly changed: () => void;
  /** The file cannot be used now; the secrets before stay in force. Told once a state of the file. */
  readonly unusable: (why: string) => void;
}

/** The secrets of one file. Whoever opens it closes it, which ends the looking. */
export class SecretFile {
  /** Guesses and secrets are compared as HMACs under it: equally long, and not to be steered by whoever guesses. */
  readonly #salt = randomBytes(32);
  #secrets: readonly string[] = [];
  #digests: readonly Buffer[] = [];
  #file: FollowedFile<readonly string[]> | undefined;

  private constructor() {}

  /** Rejects with FileProblem when the file holds nothing that can be used. */
  static async open(file: string, clock: Clock, hooks: SecretFileHooks): Promise<SecretFile> {
    const secrets = new SecretFile();
    const { followed, value } = await FollowedFile.open({
      clock,
      file,
      what: WHAT,
      maxBytes: MAX_BYTES,
      pollMs: LOOK_MS,
      parse: (text) => parseSecrets(text, file),
      taken: (taken) => {
        if (secrets.#take(taken)) hooks.changed();
      },
      refused: hooks.unusable,
    });
    secrets.#file = followed;
    secrets.#take(value);
    return secrets;
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
    await this.#file?.reload();
  }

  /** Looks no more. Idempotent; the secrets stay in force. */
  close(): void {
    this.#file?.close();
  }

  /** Whether they are others than before. */
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

/** What messages call a sink's token file. */
const TOKEN_FILE = 'delivery.secretFile';

/** No bearer token is longer; a longer file was named by mistake. */
const MAX_TOKEN_BYTES = 4096;

/** RFC 6750's b68token, which is also all that a header may carry. */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;

/**
 * The one bearer token in a file: its text without the space around it. Rejects with a {@link FileProblem}, which never
 * quotes it.
 */
export async function readBearerToken(file: string): Promise<string> {
  const token = (await readText(TOKEN_FILE, file, MAX_TOKEN_BYTES))?.trim();
  if (token === undefined) throw new FileProblem(TOKEN_FILE, 'does not exist', file);
  if (!TOKEN.test(token)) throw new FileProblem(TOKEN_FILE, 'must hold one bearer token and nothing else', file);
  return token;
}
