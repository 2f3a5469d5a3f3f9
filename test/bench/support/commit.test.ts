import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { codeCommit, isPresentCode, isSince } from '../../../bench/support/commit.js';
import { gitIn } from '../../support/git-folder.js';

const root = mkdtempSync(join(tmpdir(), 'ra-commit-'));
t.teardown(() => rmSync(root, { recursive: true, force: true }));
const git = gitIn(root);
const commit = (path: string, text: string): string => {
  mkdirSync(join(root, path, '..'), { recursive: true });
  writeFileSync(join(root, path), text);
  git('add', '-A');
  git('commit', '-q', '-m', path);
  return codeCommit(undefined, root);
};

t.test('a result is of the code that is checked out until code changes', async (t) => {
  t.equal(codeCommit(undefined, join(root, '..')), 'unknown', 'without a repository');
  git('init', '-q');
  const first = commit('engine/main.ts', '1');
  t.match(first, /^[0-9a-f]{7}$/);
  for (const path of ['bench/results/a.md', 'docs/a.md', 'bench/README.md', 'test/x.test.ts', 'engine/a.test.ts'])
    commit(path, 'x');
  t.equal(isPresentCode(first, undefined, root), true, 'results, pages and tests do not count');
  writeFileSync(join(root, 'bench/results/a.md'), 'y');
  t.equal(
    codeCommit(undefined, root),
    git('rev-parse', '--short=7', 'HEAD'),
    'results may be there that are not committed',
  );

  writeFileSync(join(root, 'engine/main.ts'), '2');
  const changed = codeCommit(undefined, root);
  t.match(changed, /^[0-9a-f]{7} with changes$/);
  t.equal(isPresentCode(first, undefined, root), false);
  t.equal(isPresentCode(changed, undefined, root), false, 'what was changed is not known any more');
  const second = commit('engine/main.ts', '2');
  t.equal(isPresentCode(first, undefined, root), false);
  t.equal(isPresentCode(second, undefined, root), true);
  t.equal(isPresentCode('0000000', undefined, root), false, 'a commit that is not there');
});

t.test('a round accepts what is of its first commit or later', async (t) => {
  const before = codeCommit(undefined, root);
  const first = commit('sidecar/cli.ts', '1');
  const later = commit('sidecar/cli.ts', '2');
  t.strictSame(
    [before, first, later, `${later} with changes`, '0000000'].map((one) => isSince(one, first, root)),
    [false, true, true, false, false],
  );
});

t.test('only what a bench depends on makes its result old', async (t) => {
  const files = ['engine', 'bench/a.ts'];
  const first = commit('bench/a.ts', '1');
  commit('sidecar/http/server.ts', '1');
  t.equal(isPresentCode(first, files, root), true, 'another folder has changed');
  t.equal(isPresentCode(first, undefined, root), false);
  writeFileSync(join(root, 'sidecar/http/server.ts'), '2');
  t.equal(codeCommit(files, root), git('rev-parse', '--short=7', 'HEAD'), 'a change elsewhere does not matter');
  writeFileSync(join(root, 'engine/new.ts'), '1');
  t.match(codeCommit(files, root), / with changes$/, 'a file that git does not know yet');
  t.equal(isPresentCode(first, files, root), false, 'a file that git does not know yet');
  rmSync(join(root, 'engine/new.ts'));
  writeFileSync(join(root, 'bench/a.ts'), '2');
  t.match(codeCommit(files, root), / with changes$/);
  git('checkout', '-q', '.');
  commit('engine/main.ts', '3');
  t.equal(isPresentCode(first, files, root), false, 'one of its folders has changed');
});

t.test('a commit that was rebased away is compared by its contents', async (t) => {
  const gone = commit('engine/main.ts', '4');
  git('reset', '-q', '--hard', 'HEAD~1');
  commit('docs/b.md', 'x');
  const same = commit('engine/main.ts', '4');
  t.not(gone, same);
  t.equal(isPresentCode(gone, ['engine'], root), true);
  commit('engine/main.ts', '5');
  t.equal(isPresentCode(gone, ['engine'], root), false);
  git('reflog', 'expire', '--expire=now', '--all');
  git('gc', '-q', '--prune=now');
  t.equal(isPresentCode(gone, ['engine'], root), false, 'git does not have it any more');
});
