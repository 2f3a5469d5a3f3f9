/** A private key and its certificate in two files, both watched: a pair that fits replaces the last pair; one that does not is ignored. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { FileProblem, readChecked } from './checked-file.js';
import type { Clock } from './clock.js';
import { FollowedFile } from './followed-file.js';

/** Time between two checks of each file, ms. */
const LOOK_MS = 5000;

/** Time from a change of one file to the check of the pair, ms: the other file is usually replaced next. */
const PAIR_MS = 1000;

/** A chain has some certificates of a few KiB. */
const MAX_BYTES = 256 * 1024;

const KEY = 'tls.keyFile';
const CERTIFICATE = 'tls.certFile';

/** What is in force. */
export interface Certificate {
  /** SHA-256 of the first certificate, in hexadecimal with colons. */
  readonly fingerprint: string;
  /** The end of its validity. */
  readonly notAfter: Date;
}

export interface CertificateHooks {
  /** The files have another pair, which fits, or another chain. False: it could not be put in force, and is offered again. */
  readonly changed: (certificate: Certificate) => boolean;
  /** Called once for each state in which the files cannot be used, and at a reload; the previous pair stays in force. */
  readonly unusable: (why: string) => void;
}

interface Paths {
  readonly key: string;
  readonly certificate: string;
}

/** Owned by the code that opens it, which must close it. */
export class CertificateFiles {
  readonly #clock: Clock;
  readonly #hooks: CertificateHooks;
  readonly #followed: FollowedFile<string>[] = [];
  readonly #paths: Paths;
  #key = '';
  #certificate = '';
  #inForce: Certificate | undefined;
  /** The texts of the pair that was handed over last. */
  #used = { key: '', certificate: '' };
  #cancelCheck: (() => void) | undefined;
  #closed = false;

  private constructor(paths: Paths, clock: Clock, hooks: CertificateHooks) {
    this.#paths = paths;
    this.#clock = clock;
    this.#hooks = hooks;
  }

  /** Rejects with a {@link FileProblem} if the pair cannot be used. */
  static async open(
    { keyFile, certFile }: { readonly keyFile: string; readonly certFile: string },
    clock: Clock,
    hooks: CertificateHooks,
  ): Promise<CertificateFiles> {
    const files = new CertificateFiles({ key: keyFile, certificate: certFile }, clock, hooks);
    try {
      files.#key = await files.#follow(KEY, keyFile, (text) => (files.#key = text));
      files.#certificate = await files.#follow(CERTIFICATE, certFile, (text) => (files.#certificate = text));
      files.#inForce = checkPair(files.#key, files.#certificate, files.#paths);
      files.#used = { key: files.#key, certificate: files.#certificate };
    } catch (error) {
      files.close();
      throw error;
    }
    return files;
  }

  /** The pair that was found last and fits. */
  get inForce(): Certificate {
    if (this.#inForce === undefined) throw new Error('used before it was opened');
    return this.#inForce;
  }

  /** Reads both files now. Never rejects; problems are reported to the hooks. */
  async reload(): Promise<void> {
    await Promise.all(this.#followed.map((file) => file.reload()));
    if (!this.#isUsed) this.#checkSoon();
  }

  /** Stops watching. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#cancelCheck?.();
    for (const file of this.#followed) file.close();
  }

  async #follow(what: string, file: string, taken: (text: string) => void): Promise<string> {
    const { followed, value } = await FollowedFile.open<string>({
      clock: this.#clock,
      file,
      read: () => readChecked(file, { what, maxBytes: MAX_BYTES, parse: (text) => text }),
      pollMs: LOOK_MS,
      taken: (text) => {
        taken(text);
        this.#checkSoon();
      },
      refused: this.#hooks.unusable,
    });
    this.#followed.push(followed);
    return value;
  }

  /** Whether the pair that was read last is the one that was handed over last. */
  get #isUsed(): boolean {
    return this.#key === this.#used.key && this.#certificate === this.#used.certificate;
  }

  #checkSoon(): void {
    this.#cancelCheck?.();
    if (this.#closed) return;
    this.#cancelCheck = this.#clock.after(PAIR_MS, () => this.#check());
  }

  #check(): void {
    try {
      const [key, certificate] = [this.#key, this.#certificate];
      const found = checkPair(key, certificate, this.#paths);
      this.#inForce = found;
      // The texts, since the chain is part of the file and not of the certificate's fingerprint.
      if (this.#isUsed) return;
      if (this.#hooks.changed(found)) this.#used = { key, certificate };
    } catch (error) {
      if (!(error instanceof FileProblem)) throw error;
      this.#hooks.unusable(error.problem);
    }
  }
}

/**
 * Checks that the two belong together and that TLS can use them.
 *
 * @throws {FileProblem} One line, without text of the files.
 */
export function checkPair(
  key: string,
  certificate: string,
  paths: { readonly key: string; readonly certificate: string },
): Certificate {
  const fail = (what: string, problem: string, file: string): never => {
    throw new FileProblem(what, problem, file);
  };
  const attempt = <T>(make: () => T, failed: () => never): T => {
    try {
      return make();
    } catch {
      return failed();
    }
  };
  const privateKey = attempt(
    () => createPrivateKey(key),
    () => fail(KEY, 'must be an unencrypted private key in PEM', paths.key),
  );
  const parsed = attempt(
    () => new X509Certificate(certificate),
    () => fail(CERTIFICATE, 'must be a certificate in PEM', paths.certificate),
  );
  if (!parsed.checkPrivateKey(privateKey))
    fail(CERTIFICATE, `is not the certificate of the key in ${KEY}`, paths.certificate);
  attempt(
    () => createSecureContext({ key, cert: certificate }),
    () => fail(CERTIFICATE, 'cannot be used for TLS: its chain or its key is too weak or damaged', paths.certificate),
  );
  return { fingerprint: parsed.fingerprint256, notAfter: new Date(parsed.validTo) };
}
