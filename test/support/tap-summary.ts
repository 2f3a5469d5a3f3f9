/**
 * Sums up a run from tap's output. A run that ended badly (`status`) without a counted failure, or in which
 * nothing passed, has failed once.
 */
export function summary(output: string, status: number): { readonly line: string; readonly ok: boolean } {
  const counts = [...output.matchAll(/^# \{ total: \d+[^}\n]*\}$/gm)].at(-1)?.[0] ?? '';
  const count = (name: string): number => Number(new RegExp(` ${name}: (\\d+)`).exec(counts)?.[1] ?? 0);
  const ended = status === 0 && count('pass') > 0;
  const failed = Math.max(count('fail'), ended ? 0 : 1);
  return { line: `${count('pass')} passed, ${failed} failed`, ok: failed === 0 };
}
