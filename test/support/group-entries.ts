/** Writes the entry of a group of test files: a module that runs them one after the other. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { groupsOf } from './test-groups.js';

const TESTS = 'dist/test';
const ENTRIES = 'dist/test/groups';

/** Paths from the repository’s root, with groups’ entries in place of their files. */
export function entriesFor(files: readonly string[]): string[] {
  rmSync(ENTRIES, { recursive: true, force: true });
  mkdirSync(ENTRIES, { recursive: true });
  const below = files.map((file) => file.slice(TESTS.length + 1));
  return groupsOf(below).map(({ name, files: members }) => {
    const [only = ''] = members;
    if (members.length === 1) return join(TESTS, only);
    const path = join(ENTRIES, `${name}.js`);
    const paths = JSON.stringify(members.map((member) => join(TESTS, member)));
    writeFileSync(path, `import { runGroup } from '../support/group-files.js';\nrunGroup(${paths});\n`);
    return path;
  });
}
