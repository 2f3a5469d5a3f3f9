/**
 * Where the time of the tests goes: runs the test files named, one process each, and prints a table of what each took and a
 * sum for each folder. `make test-times` runs it. Of each file: seconds by the clock, which depend on what else the machine
 * does, and seconds of processor time, of the file and of every process that it started. They are counted by a control group
 * where this user may make one, as root may; elsewhere by what has been waited for, in which the children of a process that
 * a test kills are missing: half of the whole, since most sidecars are killed.
 *
 *     node dist/test/support/time-table.js [--groups] [--jobs=2] [--top=40] FILES
 *
 * With --groups, files that share a process in `make test` share it here, and their group has one row.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, relative } from 'node:path';
import { argv, env, execPath, stderr, stdout } from 'node:process';
import { parseArgs } from 'node:util';
import { CpuGroup } from './cpu-group.js';
import { entriesFor } from './group-entries.js';

interface Timed {
  readonly name: string;
  readonly ok: boolean;
  readonly assertions: number;
  readonly wallS: number;
  readonly cpuS: number;
}

const { values, positionals } = parseArgs({
  args: argv.slice(2),
  options: {
    jobs: { type: 'string', default: '2' },
    top: { type: 'string', default: '40' },
    groups: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});

/** Seconds that the shell's `times` prints, as in `0m12.340s`. */
const seconds = (text: string): number => {
  const [, minutes = '0', rest = '0'] = /^(\d+)m([\d.]+)s$/.exec(text) ?? [];
  return Number(minutes) * 60 + Number(rest);
};

async function time(file: string): Promise<Timed> {
  const from = performance.now();
  // The second line of `times` is what the processes took that the shell, and they in turn, waited for.
  const script = 'test -z "$GROUP" || echo $$ > "$GROUP"; "$@"; status=$?; times >&3; exit $status';
  const command = [execPath, '--import=./dist/test/support/bare-children.js', file];
  const group = CpuGroup.make();
  const child = spawn('sh', ['-c', script, 'sh', ...command], {
    stdio: ['ignore', 'pipe', 'ignore', 'pipe'],
    env: { ...env, TAP_TIMEOUT: '900', GROUP: group?.members ?? '' },
  });
  let assertions = 0;
  let times = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    assertions = Number(/# \{ total: (\d+)/.exec(text)?.[1] ?? assertions);
  });
  child.stdio[3]?.on('data', (bytes: Buffer) => {
    times += bytes.toString();
  });
  await once(child, 'close');
  const ofChildren = (times.split('\n')[1] ?? '').split(' ');
  return {
    name: relative('dist/test', file).replace(/\.js$/, ''),
    ok: child.exitCode === 0,
    assertions,
    wallS: (performance.now() - from) / 1000,
    cpuS: group?.close() ?? ofChildren.reduce((sum, part) => sum + seconds(part), 0),
  };
}

const row = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |\n`;
const figures = (timed: readonly Timed[]): string[] =>
  [timed.reduce((sum, { wallS }) => sum + wallS, 0), timed.reduce((sum, { cpuS }) => sum + cpuS, 0)].map((sum) =>
    sum.toFixed(1),
  );

/** What the sums go by: the first two folders of a path below test/, or what a group of files is called without its number. */
const folder = (name: string): string =>
  name.startsWith('groups/')
    ? `${name.slice('groups/'.length).replace(/-\d+$/, '')} (shared)`
    : dirname(name).split('/').slice(0, 2).join('/');

const waiting = values.groups ? entriesFor(positionals) : [...positionals];
const done: Timed[] = [];
const began = performance.now();
const worker = async (): Promise<void> => {
  for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
    const timed = await time(file);
    done.push(timed);
    stderr.write(
      `${timed.ok ? 'ok' : 'FAILED'} ${timed.name} ${timed.wallS.toFixed(1)} s, ${timed.cpuS.toFixed(1)} s of processor time\n`,
    );
  }
};
await Promise.all(Array.from({ length: Number(values.jobs) }, worker));
done.sort((a, b) => b.cpuS - a.cpuS);

stdout.write(
  `# Where the time of the tests goes\n\nPrinted by \`make test-times\`: seconds by the clock and of processor time.\n\n`,
);
stdout.write(
  `${done.length} ${values.groups ? 'processes' : 'files'}, ${values.jobs} at a time: ${((performance.now() - began) / 1000).toFixed(0)} s\n\n`,
);
stdout.write(
  row(['folder', values.groups ? 'processes' : 'files', 'wall s', 'CPU s']) + row(['---', '--:', '--:', '--:']),
);
const folders = [...new Set(done.map(({ name }) => folder(name)))].sort();
for (const each of folders) {
  const inside = done.filter(({ name }) => folder(name) === each);
  stdout.write(row([each, inside.length, ...figures(inside)]));
}
stdout.write(row(['all', done.length, ...figures(done)]) + '\n');
stdout.write(row(['file', 'assertions', 'wall s', 'CPU s']) + row(['---', '--:', '--:', '--:']));
for (const timed of done.slice(0, Number(values.top))) {
  stdout.write(row([timed.name + (timed.ok ? '' : ' FAILED'), timed.assertions, ...figures([timed])]));
}
process.exitCode = done.every(({ ok }) => ok) ? 0 : 1;
