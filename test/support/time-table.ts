/**
 * Where the time of the tests goes, as a table: what each process took, each file, and a sum for each folder. Seconds by the clock
 * depend on what else the machine does. Seconds of processor time are counted by a control group where this user may
 * make one, as root may; elsewhere those of a file are its own process's, and those of a process by what has been waited for, in which
 * the children of a process that a test kills are missing: half of the whole, since most sidecars are killed.
 */
import { dirname } from 'node:path';
import type { TestRun } from './test-process.js';

export interface Timed extends TestRun {
  /** Of the group. */
  readonly name: string;
}

interface Took {
  readonly name: string;
  readonly wallS: number;
  readonly cpuS: number;
}

const FILE = /ok \d+ - dist\/test\/(\S+)\.(?:test|e2e)\.js # time=(\d+)ms cpu=([\d.]+)s$/;

const row = (...cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |\n`;
const head = (...names: readonly string[]): string =>
  row(...names) + row(...names.map((_, i) => (i === 0 ? '---' : '--:')));
const sum = (took: readonly Took[], of: 'wallS' | 'cpuS'): string =>
  took.reduce((all, each) => all + each[of], 0).toFixed(1);

/** As each process prints its files. */
function filesOf(done: readonly Timed[]): Took[] {
  return done
    .flatMap(({ shown }) => shown)
    .flatMap((line) => {
      const [, name, ms, cpuS] = FILE.exec(line) ?? [];
      return name === undefined ? [] : [{ name, wallS: Number(ms) / 1000, cpuS: Number(cpuS) }];
    })
    .sort((a, b) => b.cpuS - a.cpuS);
}

/** `machine`: a line that names commit and machine; `jobs`: processes at a time; `top`: rows of the longest files. */
export function timeTable(
  done: readonly Timed[],
  of: { readonly machine: string; readonly jobs: string; readonly top: string; readonly wallS: number },
): string {
  const files = filesOf(done);
  const folderOf = ({ name }: Took): string => dirname(name).split('/').slice(0, 2).join('/');
  const folders = [...new Set(files.map(folderOf))].sort();
  return [
    `# Where the time of the tests goes\n\nPrinted by \`make test-times\`: seconds by the clock and of processor time. ${of.machine}\n\n`,
    `${done.length} processes, ${of.jobs} at a time: ${of.wallS.toFixed(0)} s by the clock, ${sum(done, 'cpuS')} s of processor time\n\n`,
    head('folder', 'files', 'wall s', 'CPU s'),
    ...folders.map((folder) => {
      const inside = files.filter((file) => folderOf(file) === folder);
      return row(folder, inside.length, sum(inside, 'wallS'), sum(inside, 'cpuS'));
    }),
    `\n${head('process', 'assertions', 'wall s', 'CPU s')}`,
    ...[...done]
      .sort((a, b) => b.cpuS - a.cpuS)
      .map(({ name, ok, passed, failed, wallS, cpuS }) =>
        row(name + (ok ? '' : ' FAILED'), passed + failed, wallS.toFixed(1), cpuS.toFixed(1)),
      ),
    `\n${head('file', 'wall s', 'CPU s')}`,
    ...files.slice(0, Number(of.top)).map(({ name, wallS, cpuS }) => row(name, wallS.toFixed(1), cpuS.toFixed(1))),
  ].join('');
}
