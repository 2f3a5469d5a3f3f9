import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { codeCommit, isPresentCode, isSince } from '../../../bench/support/commit.js';

const root = mkdtempSync(join(tmpdir(), 'ra-commit-'));
t.teardown(() => rmSync(root, { recursive: true, force: true }));
const git = (...args: readonly string[]): string =>
  execFileSync('git', ['-c', 'user.name=test', '-c', 'user.email=test@localhost', ...args], {
    cwd: root,
    encoding: 'utf8',
  }).trim();
const commit = (path: string, text: string): string => {
  mkdirSync(join(root, path, '..'), { recursive: true });
  writeFileSync(join(root, path), text);
  git('add', '-A');
  git('commit', '-q', '-m', path);
  return codeCommit(root);
};

t.test('a result is of the code that is checked out until code changes', async (t) => {
  t.equal(codeCommit(join(root, '..')), 'unknown', 'without a repository');
  git('init', '-q');
  const first = commit('engine/main.ts', '1');
  t.match(first, /^[0-9a-f]{7}$/);
  for (const path of ['bench/results/a.md', 'docs/a.md', 'bench/README.md', 'test/x.test.ts', 'engine/a.test.ts'])
    commit(path, 'x');
  t.equal(isPresentCode(first, root), true, 'results, pages and tests do not count');
  writeFileSync(join(root, 'bench/results/a.md'), 'y');
  t.equal(codeCommit(root), git('rev-parse', '--short=7', 'HEAD'), 'results may be there that are not committed');

  writeFileSync(join(root, 'engine/main.ts'), '2');
  const changed = codeCommit(root);
  t.match(changed, /^[0-9a-f]{7} with changes$/);
  t.equal(isPresentCode(first, root), false);
  t.equal(isPresentCode(changed, root), false, 'what was changed is not known any more');
  const second = commit('engine/main.ts', '2');
  t.equal(isPresentCode(first, root), false);
  t.equal(isPresentCode(second, root), true);
  t.equal(isPresentCode('0000000', root), false, 'a commit that is not there');
});

t.test('a round accepts what is of its first commit or later', async (t) => {
  const before = codeCommit(root);
  const first = commit('sidecar/cli.ts', '1');
  const later = commit('sidecar/cli.ts', '2');
  t.strictSame(
    [before, first, later, `${later} with changes`, '0000000'].map((one) => isSince(one, first, root)),
    [false, true, true, false, false],
  );
});
