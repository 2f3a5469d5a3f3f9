/**
 * Which test files passed with the code as it is now: `make check` leaves these out, `make test` runs all.
 *
 * A file's code is what it imports, and what these files name by a path relative to themselves: modules of processes, data
 * (bench/support/bench-files.ts). A test that reads the repository by its root is never left out, since what it reads is not known.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { filesOf, within } from '../../bench/support/bench-files.js';

/** What tests import that read files by the repository's root. */
const ROOTS: readonly string[] = ['test/support/source-root.ts', 'test/docs/pages.ts'];

export class GreenFiles {
  readonly #record: string;
  readonly #root: string;
  /** The digest of each test's code when it last passed, by its source. */
  readonly #passed: Map<string, string>;
  /** Of each file, read once. */
  readonly #digests = new Map<string, string>();

  /** `record`: the file that has what passed; it need not exist. `root`: of the repository. */
  constructor(record: string, root: string) {
    this.#record = record;
    this.#root = root;
    this.#passed = new Map(Object.entries(recorded(record)));
  }

  /** Whether a test passed with the code that it has now. `test`: its source, such as `test/make.test.ts`. */
  has(test: string): boolean {
    const digest = this.#codeOf(test);
    return digest !== undefined && this.#passed.get(test) === digest;
  }

  /** These tests passed with the code as it was when their first digest was asked for. */
  passed(tests: readonly string[]): void {
    for (const test of tests) {
      const digest = this.#codeOf(test);
      if (digest !== undefined) this.#passed.set(test, digest);
    }
    mkdirSync(dirname(this.#record), { recursive: true });
    writeFileSync(`${this.#record}.${process.pid}`, JSON.stringify(Object.fromEntries(this.#passed)));
    renameSync(`${this.#record}.${process.pid}`, this.#record);
  }

  /** Undefined: it depends on what is not known. */
  #codeOf(test: string): string | undefined {
    const files = filesOf(test, this.#root);
    if (files.some((file) => ROOTS.includes(file))) return undefined;
    const hash = createHash('sha256').update(process.version);
    for (const file of files.flatMap((path) => within(path, this.#root)))
      hash.update(file).update(this.#digestOf(file));
    return hash.digest('hex').slice(0, 16);
  }

  #digestOf(file: string): string {
    let digest = this.#digests.get(file);
    if (digest === undefined) {
      digest = createHash('sha256')
        .update(readFileSync(join(this.#root, file)))
        .digest('hex');
      this.#digests.set(file, digest);
    }
    return digest;
  }
}

function recorded(file: string): Readonly<Record<string, string>> {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Readonly<Record<string, string>>;
  } catch {
    return {};
  }
}
