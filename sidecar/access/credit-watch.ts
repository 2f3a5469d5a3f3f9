import { stat } from 'node:fs/promises';
import type { Clock } from '../clock.js';
import { CreditFileError, readCreditFile } from './credit-file.js';

export interface CreditWatchOptions {
  readonly clock: Clock;
  readonly file: string;
  /** How often the file is looked at, ms. */
  readonly pollMs: number;
  /** The grants of a changed file, by account, picodollars. */
  readonly onChange: (granted: ReadonlyMap<string, bigint>) => void;
  /** A changed file that cannot be used: one line. The grants of before go on holding. Told once a change. */
  readonly onBad: (line: string) => void;
}

/**
 * Looks at the credit file again and again, since a top-up is to count without a restart. Asked for its time and size
 * rather than watched: that also sees a file replaced by rename, on any file system. Its owner closes it.
 */
export class CreditWatch {
  readonly #options: CreditWatchOptions;
  #seen: string;
  #closed = false;
  #cancelTimer = (): void => undefined;

  private constructor(options: CreditWatchOptions, seen: string) {
    this.#options = options;
    this.#seen = seen;
    this.#wait();
  }

  /** Reads the file for the first time and watches it from then on. Throws CreditFileError: then nothing is watched. */
  static async open(
    options: CreditWatchOptions,
  ): Promise<{ readonly watch: CreditWatch; readonly granted: ReadonlyMap<string, bigint> }> {
    // Looked at before it is read: what changes in between is read once more.
    const seen = await lookAt(options.file);
    const granted = await readCreditFile(options.file);
    return { watch: new CreditWatch(options, seen), granted };
  }

  /** Idempotent. A look that is under way still ends, and is told to nobody. */
  close(): void {
    this.#closed = true;
    this.#cancelTimer();
  }

  #wait(): void {
    this.#cancelTimer = this.#options.clock.after(this.#options.pollMs, () => void this.#look());
  }

  async #look(): Promise<void> {
    const { file, onChange, onBad } = this.#options;
    const now = await lookAt(file);
    if (now !== this.#seen) {
      this.#seen = now;
      const read = await readCreditFile(file).catch((error: unknown) => error);
      if (!this.#closed) {
        if (read instanceof Map) onChange(read as ReadonlyMap<string, bigint>);
        else onBad(read instanceof CreditFileError ? read.message : `credit: cannot be read (file ${file})`);
      }
    }
    if (!this.#closed) this.#wait();
  }
}

/** What tells one state of the file from another; '' when it is not there. */
async function lookAt(file: string): Promise<string> {
  try {
    const { mtimeMs, size, ino } = await stat(file);
    return `${mtimeMs} ${size} ${ino}`;
  } catch {
    return '';
  }
}
