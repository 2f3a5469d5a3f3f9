/** The processes that run a list of test files. */
import { join } from 'node:path';
import { groupsOf } from './test-groups.js';
import { limitOf } from './test-seconds.js';
import type { TestFile } from './runtime.js';

const TESTS = 'dist/test';

/** After so long a group hangs, s, although each of its files has a limit. */
const GROUP_S = 900;

/** What runs as one process. */
export interface Entry {
  readonly name: string;
  readonly files: readonly TestFile[];
  /** After so long it is ended, s. */
  readonly limitS: number;
}

/**
 * The files, as paths from the repository’s root. `limitS`: of each process; undefined: each file has its own limit
 * (test-seconds.ts), so that one that hangs fails by its name and others run.
 */
export function entriesFor(files: readonly string[], limitS?: number): Entry[] {
  return groupsOf(files.map((file) => file.slice(TESTS.length + 1))).map(({ name, files: members }) => {
    const [only = ''] = members;
    return {
      name,
      files: members.map((file): TestFile => [join(TESTS, file), limitS ?? limitOf(file)]),
      limitS: limitS ?? (members.length === 1 ? limitOf(only) : GROUP_S),
    };
  });
}
