import { execFileSync } from 'node:child_process';

/** Runs git in `root`, with a name to commit under. Returns its output without the white space around it; throws if git fails. */
export function gitIn(root: string): (...args: readonly string[]) => string {
  return (...args) =>
    execFileSync('git', ['-c', 'user.name=test', '-c', 'user.email=test@localhost', ...args], {
      cwd: root,
      encoding: 'utf8',
    }).trim();
}
