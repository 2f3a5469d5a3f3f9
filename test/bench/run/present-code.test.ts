import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { isSameCode } from '../../../bench/run/present-code.js';
import { gitIn } from '../../support/git-folder.js';

const SOURCE = `/** Adds one. */
export function next(n: number): number {
  // Never below one.
  return Math.max(1, n + 1);
}
`;

t.test('a change of comments makes no result old, one of code does', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'ra-present-'));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  const git = gitIn(root);
  git('init', '-q');
  writeFileSync(join(root, 'a.ts'), SOURCE);
  writeFileSync(join(root, 'b.cpp'), '// One.\nint one = 1;\n');
  git('add', '-A');
  git('commit', '-q', '-m', 'first');
  const first = git('rev-parse', '--short=7', 'HEAD');
  const same = (file: string, text: string): boolean => {
    git('checkout', '-q', '.');
    writeFileSync(join(root, file), text);
    return isSameCode(first, ['a.ts', 'b.cpp', 'c.ts'], root);
  };

  t.equal(same('a.ts', SOURCE), true, 'nothing has changed');
  t.equal(same('a.ts', SOURCE.replace('Adds one.', 'Returns the next.').replace(/ *\/\/.*\n/, '')), true, 'comments');
  t.equal(same('a.ts', SOURCE.replace('n + 1', 'n + 2')), false, 'code');
  t.equal(same('a.ts', SOURCE.replace('Math', '// Math')), false, 'code in a comment');
  t.equal(same('b.cpp', '// 1.\nint one = 1;\n'), false, 'another language is compared as it is');
  git('checkout', '-q', '.');
  t.equal(isSameCode(`${first} with changes`, ['a.ts'], root), false, 'what was changed is not known any more');
  t.equal(isSameCode('0000000', ['a.ts'], root), false, 'a commit that is not there');
  t.equal(same('c.ts', '1'), false, 'a file that git does not know');
  rmSync(join(root, 'c.ts'));
  rmSync(join(root, 'a.ts'));
  t.equal(isSameCode(first, ['a.ts'], root), false, 'a file that is gone');
});
