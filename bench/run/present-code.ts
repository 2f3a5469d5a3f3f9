/** Whether a result is of the present code, where a change of a comment makes no result old. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ts } from '../../test/support/typescript.js';
import { isPresentCode } from '../support/commit.js';

/** `isPresentCode`, but TypeScript files may differ from `commit` in comments and layout. */
export function isSameCode(commit: string, files: readonly string[], root: string): boolean {
  if (isPresentCode(commit, files, root)) return true;
  try {
    const git = (...args: readonly string[]): string =>
      execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    if (git('ls-files', '--others', '--exclude-standard', '--', ...files) !== '') return false;
    const changed = git('diff', '--no-renames', '--name-only', '-z', commit, '--', ...files).split('\0');
    return changed
      .filter((path) => path !== '')
      .every(
        (path) =>
          path.endsWith('.ts') &&
          compiled(git('show', `${commit}:${path}`)) === compiled(readFileSync(join(root, path), 'utf8')),
      );
  } catch {
    // Git does not have the commit, whose name may also say that it had changes; or a file is in one of the two alone.
    return false;
  }
}

function compiled(source: string): string {
  const compilerOptions = { removeComments: true, target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext };
  return ts.transpileModule(source, { compilerOptions }).outputText;
}
