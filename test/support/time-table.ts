/**
 * Where the time of the tests goes, as a table: what each process took and a sum for each folder. Seconds by the clock
 * depend on what else the machine does. Seconds of processor time are counted by a control group where this user may
 * make one, as root may; elsewhere by what has been waited for, in which the children of a process that a test kills
 * are missing: half of the whole, since most sidecars are killed.
 */
import { dirname, relative } from 'node:path';
import type { TestRun } from './test-process.js';

export interface Timed extends TestRun {
  /** From the repository’s root. */
  readonly file: string;
}

const row = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |\n`;
const figures = (timed: readonly Timed[]): string[] =>
  [timed.reduce((sum, { wallS }) => sum + wallS, 0), timed.reduce((sum, { cpuS }) => sum + cpuS, 0)].map((sum) =>
    sum.toFixed(1),
  );

const nameOf = ({ file }: Timed): string => relative('dist/test', file).replace(/\.js$/, '');

/** What the sums go by: the first two folders of a path below test/, or what a group of files is called without its number. */
function folderOf(timed: Timed): string {
  const name = nameOf(timed);
  return name.startsWith('groups/')
    ? `${name.slice('groups/'.length).replace(/-\d+$/, '')} (shared)`
    : dirname(name).split('/').slice(0, 2).join('/');
}

/** The files of groups that took the longest, by what tap prints of each: seconds by the clock. */
function members(done: readonly Timed[]): readonly (readonly [name: string, wallS: number])[] {
  return done
    .flatMap(({ shown }) => shown)
    .flatMap((line) => {
      const [, name, time = '', unit] = /^ok \d+ - dist\/test\/(\S+)\.test\.js # time=([\d.]+)(m?s)$/.exec(line) ?? [];
      return name === undefined ? [] : [[name, Number(time) / (unit === 'ms' ? 1000 : 1)] as const];
    })
    .sort(([, a], [, b]) => b - a);
}

/** `machine`: a line that names commit and machine; `jobs`: processes at a time; `top`: rows of the longest processes, and of the longest files of groups. */
export function timeTable(
  done: readonly Timed[],
  {
    machine,
    jobs,
    top,
    wallS,
  }: { readonly machine: string; readonly jobs: string; readonly top: string; readonly wallS: number },
): string {
  const folders = [...new Set(done.map(folderOf))].sort();
  const longest = [...done].sort((a, b) => b.cpuS - a.cpuS).slice(0, Number(top));
  return [
    `# Where the time of the tests goes\n\nPrinted by \`make test-times\`: seconds by the clock and of processor time. ${machine}\n\n`,
    `${done.length} processes, ${jobs} at a time: ${wallS.toFixed(0)} s\n\n`,
    row(['folder', 'processes', 'wall s', 'CPU s']) + row(['---', '--:', '--:', '--:']),
    ...folders.map((folder) => {
      const inside = done.filter((timed) => folderOf(timed) === folder);
      return row([folder, inside.length, ...figures(inside)]);
    }),
    row(['all', done.length, ...figures(done)]) + '\n',
    row(['process', 'assertions', 'wall s', 'CPU s']) + row(['---', '--:', '--:', '--:']),
    ...longest.map((timed) =>
      row([nameOf(timed) + (timed.ok ? '' : ' FAILED'), timed.passed + timed.failed, ...figures([timed])]),
    ),
    '\n' + row(['file of a group', 'wall s']) + row(['---', '--:']),
    ...members(done)
      .slice(0, Number(top))
      .map(([name, seconds]) => row([name, seconds.toFixed(1)])),
  ].join('');
}
