/**
 * `make test` and `make check`: runs test files, several processes at a time, and prints a digest of each as it ends
 * and a last line with the counts. Files that can share a process do (test-groups.ts). Without a named file: all.
 *
 *     node dist/test/support/run-tests.js [--jobs=4] [--timeout=S] [--changed] [--table] [--top=60] [FILES]
 *
 * With --changed, `make check`, files that passed with the code as it is now are left out (green-files.ts).
 * With --table, `make test-times`, it prints where the time went in place of the digest.
 */
import { readdirSync } from 'node:fs';
import { argv, stderr, stdout } from 'node:process';
import { parseArgs } from 'node:util';
import { machine } from '../../bench/support/machine.js';
import { GreenFiles } from './green-files.js';
import { entriesFor } from './group-entries.js';
import { LONG } from './long-form.js';
import { isShort } from './test-groups.js';
import { runTestProcess } from './test-process.js';
import { timeTable, type Timed } from './time-table.js';

const { values, positionals } = parseArgs({
  args: argv.slice(2),
  options: {
    // A test that starts sidecars waits for a third of its time, so two cores have work for four processes.
    jobs: { type: 'string', default: '4' },
    /** s a process, in place of the limits of its files */
    timeout: { type: 'string' },
    changed: { type: 'boolean', default: false },
    table: { type: 'boolean', default: false },
    top: { type: 'string', default: '60' },
  },
  allowPositionals: true,
});

const all = (): string[] =>
  readdirSync('dist/test', { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.test.js'))
    .filter((path) => LONG || isShort(path))
    .map((path) => `dist/test/${path}`);

const limitS = values.timeout === undefined ? undefined : Number(values.timeout);
const green = new GreenFiles('.cache/green-tests.json', '.');
const sourceOf = (file: string): string => file.replace(/^dist\//, '').replace(/js$/, 'ts');
const named = positionals.length > 0 ? positionals : all();
const wanted = values.changed ? named.filter((file) => !green.has(sourceOf(file))) : named;
const entries = entriesFor(wanted, limitS);
const done: Timed[] = [];
const began = performance.now();
const where = values.table ? machine() : '';
const digest = values.table ? stderr : stdout;

const waiting = entries.values();
const work = async (): Promise<void> => {
  for (const { name, files, limitS } of waiting) {
    const run = await runTestProcess(files, limitS);
    done.push({ name, ...run });
    if (run.ok && values.changed) green.passed(files.map(([file]) => sourceOf(file)));
    const took = `${run.wallS.toFixed(1)} s, ${run.cpuS.toFixed(1)} s of processor time`;
    digest.write([...run.shown, `${run.ok ? 'ok' : 'not ok'} ${done.length} - ${name} # ${took}`, ''].join('\n'));
  }
};
await Promise.all(Array.from({ length: Number(values.jobs) }, work));

const sum = (figure: 'passed' | 'failed'): number => done.reduce((all, each) => all + each[figure], 0);
if (values.table)
  stdout.write(timeTable(done, { ...values, machine: where, wallS: (performance.now() - began) / 1000 }));
const left = named.length - wanted.length;
const unchanged = left === 0 ? '' : `; ${left} of ${named.length} files left out, unchanged since they passed`;
digest.write(`${sum('passed')} passed, ${sum('failed')} failed${unchanged}\n`);
process.exitCode = sum('failed') === 0 && named.length > 0 && done.length === entries.length ? 0 : 1;
