/** Which code a result is of: the commit that was checked out, and whether the code has changed since. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** From dist/bench/support. */
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

/** What decides the figures of any bench: pages, results and tests of their own do not. */
const CODE: readonly string[] = [
  'sidecar',
  'engine',
  'bench',
  'test/support',
  'package-lock.json',
  ':!bench/results',
  ':!*.md',
  ':!*.test.ts',
];

/** After a commit's name: the code was not exactly that of the commit. */
const CHANGED = ' with changes';

/**
 * The short name of the commit that is checked out, followed by ` with changes` if `files` differ from it. Without git that of
 * the commit that bench/gpu/pack.sh packed; `unknown` where there is none. By default all code counts.
 */
export function codeCommit(files = CODE, root = ROOT): string {
  try {
    const changed = git(root, 'status', '--porcelain', '--', ...files) !== '';
    return `${git(root, 'rev-parse', '--short=7', 'HEAD')}${changed ? CHANGED : ''}`;
  } catch {
    return packedCommit(root);
  }
}

function packedCommit(root: string): string {
  try {
    return readFileSync(join(root, 'COMMIT'), 'utf8').trim();
  } catch {
    return 'unknown';
  }
}

/**
 * True if `files` are now as they were in `commit`, as `codeCommit` names it, and none of them is one that git does not know. The
 * commit need not be part of the history any more: git compares contents as long as it has it. False if it does not.
 */
export function isPresentCode(commit: string, files = CODE, root = ROOT): boolean {
  return (
    !commit.endsWith(CHANGED) &&
    succeeds(root, 'diff', '--quiet', commit, '--', ...files) &&
    git(root, 'ls-files', '--others', '--exclude-standard', '--', ...files) === ''
  );
}

/** True if `commit` is `since` or one after it. */
export function isSince(commit: string, since: string, root = ROOT): boolean {
  return !commit.endsWith(CHANGED) && succeeds(root, 'merge-base', '--is-ancestor', since, commit);
}

/** What git writes. Throws if it fails. */
function git(root: string, ...args: readonly string[]): string {
  return execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
}

function succeeds(root: string, ...args: readonly string[]): boolean {
  return spawnSync('git', args, { cwd: root, stdio: 'ignore' }).status === 0;
}
