/** Commit subjects have at most 72 characters, in the history and in the hook. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from './support/source-root.js';

function check(cwd: string, ...args: string[]): { status: number | null; stderr: string } {
  const script = join(sourceRoot, '.ci/commit-subjects.mjs');
  const { status, stderr } = spawnSync(process.execPath, [script, ...args], { cwd, encoding: 'utf8' });
  return { status, stderr };
}

t.test('no subject in the history exceeds the limit', async (t) => {
  t.strictSame(check(sourceRoot), { status: 0, stderr: '' });
});

t.test('the hook rejects a message with a long subject', async (t) => {
  const dir = t.testdir();
  const statusOf = (message: string): number | null => {
    writeFileSync(join(dir, 'message'), message);
    return check(dir, join(dir, 'message')).status;
  };
  t.equal(
    statusOf(`${'é'.repeat(72)}\n\n${'b'.repeat(100)}\n`),
    0,
    'characters are counted, not bytes, and the body is not',
  );
  t.equal(statusOf(`${'s'.repeat(73)}\n`), 1);
  t.equal(statusOf(`# a comment\n\n${'s'.repeat(73)}\n`), 1, 'comments and blank lines are skipped');
});

t.test('a new subject that is too long is found in a shallow clone', async (t) => {
  const dir = t.testdir();
  const git = (...args: string[]): void => {
    const { status, stderr } = spawnSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], {
      cwd: dir,
      encoding: 'utf8',
    });
    t.equal(status, 0, stderr);
  };
  git('init', '--quiet', 'origin');
  git('-C', 'origin', 'config', 'core.hooksPath', '/dev/null');
  for (const subject of ['Begin', 's'.repeat(80), 'Go on'])
    git('-C', 'origin', 'commit', '--quiet', '--allow-empty', '-m', subject);
  git('clone', '--quiet', '--depth=1', `file://${dir}/origin`, 'one');
  git('clone', '--quiet', '--depth=2', `file://${dir}/origin`, 'two');
  t.equal(check(join(dir, 'origin')).status, 0, 'another project’s history is not checked');
  t.equal(check(join(dir, 'one')).status, 0);
  t.match(check(join(dir, 'two')).stderr, /80 characters/);
});
