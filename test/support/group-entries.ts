/** Writes the entry of a group of test files: a module that runs them one after the other. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { groupsOf } from './test-groups.js';
import { limitOf } from './test-seconds.js';

const TESTS = 'dist/test';
const ENTRIES = 'dist/test/groups';

/** After so long a group hangs, s, although each of its files has a limit. */
const GROUP_S = 900;

/** What runs as one process. */
export interface Entry {
  /** From the repository’s root. */
  readonly path: string;
  /** The test files that it runs, from the repository’s root. */
  readonly files: readonly string[];
  /** After so long it is ended, s. */
  readonly limitS: number;
}

/**
 * The files, as paths from the repository’s root, with groups’ entries in place of their files. `limitS`: of each process;
 * undefined: each file has its own limit (test-seconds.ts), so that one that hangs fails by its name and others run.
 */
export function entriesFor(files: readonly string[], limitS?: number): Entry[] {
  rmSync(ENTRIES, { recursive: true, force: true });
  mkdirSync(ENTRIES, { recursive: true });
  const below = files.map((file) => file.slice(TESTS.length + 1));
  return groupsOf(below).map(({ name, files: members }) => {
    const [only = ''] = members;
    const own = members.map((file) => join(TESTS, file));
    if (members.length === 1) return { path: join(TESTS, only), files: own, limitS: limitS ?? limitOf(only) };
    const path = join(ENTRIES, `${name}.js`);
    const each = members.map((file) => [join(TESTS, file), ...(limitS === undefined ? [limitOf(file)] : [])]);
    writeFileSync(path, `import { runGroup } from '../support/group-files.js';\nrunGroup(${JSON.stringify(each)});\n`);
    return { path, files: own, limitS: limitS ?? GROUP_S };
  });
}
