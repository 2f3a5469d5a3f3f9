import t from 'tap';
import type { Addon, Bench } from '../../../bench/run/plan.js';
import { listed, runPlan, type Environment, type Recorded } from '../../../bench/run/run.js';

const bench = (name: string, addon: Addon = 'either', quiet = true): Bench => ({
  command: `${name}.js`,
  results: [name],
  minutes: 2,
  quiet,
  addon,
});

const PLAN = [
  bench('simulated', 'either', false),
  bench('own-build', 'native'),
  bench('from-npm', 'prebuilt'),
  bench('clock'),
];

/** A machine on which each bench writes its result, but for those that `codes` names. */
class StandIn implements Environment {
  readonly results = new Map<string, Recorded>();
  readonly codes = new Map<string, number | null>();
  readonly ran: string[] = [];
  readonly lines: string[] = [];
  present: Environment['present'] = { machine: 'AMD EPYC, 2 cores', node: 'v20.20.2' };
  installed: 'prebuilt' | 'native' = 'prebuilt';
  commit = 'new';
  /** Benches of which nothing has changed since any commit. */
  readonly untouched = new Set<string>();
  busy = false;
  builds = true;

  recorded = (name: string): Recorded | undefined => this.results.get(name);
  isCurrent = (commit: string, { command }: Bench): boolean => commit === this.commit || this.untouched.has(command);
  addon = (): 'prebuilt' | 'native' => this.installed;
  write = (line: string): void => void this.lines.push(line);
  quiet = async (): Promise<boolean> => !this.busy;
  useAddon = (addon: 'prebuilt' | 'native'): boolean => {
    if (this.builds) this.installed = addon;
    return this.builds;
  };
  /** What the planned bench of this name writes on this machine. */
  result = (name: string, also: Partial<Recorded> = {}): Recorded => ({
    commit: this.commit,
    ...this.present,
    addon: this.installed,
    command: `node dist/bench/${name}.js`,
    ...also,
  });
  run = async (command: string): Promise<number | null> => {
    this.ran.push(`${command} ${this.installed}`);
    const code = this.codes.get(command);
    if (code !== undefined) return code;
    this.results.set(command.slice(0, -3), this.result(command.slice(0, -3)));
    return 0;
  };
}

t.test('first what needs a quiet machine, by the addon, then the rest', async (t) => {
  const bed = new StandIn();
  await runPlan(PLAN, bed);
  t.strictSame(bed.ran, ['clock.js prebuilt', 'from-npm.js prebuilt', 'own-build.js native', 'simulated.js native']);
  const other = new StandIn();
  other.installed = 'native';
  await runPlan(PLAN, other);
  t.strictSame(
    other.ran.map((line) => line.split('.')[0]),
    ['clock', 'own-build', 'from-npm', 'simulated'],
    'the addon that is there comes first, so that it changes once',
  );
});

t.test('what fails does not end the others, and the next run has only that to do', async (t) => {
  const bed = new StandIn();
  bed.codes.set('clock.js', 3).set('from-npm.js', null);
  const { done, current, failed } = await runPlan(PLAN, bed);
  t.strictSame([done, current], [['own-build.js', 'simulated.js'], []]);
  t.strictSame(failed, ['clock.js: ended with 3', 'from-npm.js: ended with a signal']);
  bed.codes.clear();
  bed.ran.length = 0;
  const second = await runPlan(PLAN, bed);
  t.strictSame(bed.ran.sort(), ['clock.js native', 'from-npm.js prebuilt']);
  t.strictSame(second.current.length, 2);
});

t.test('a result that says that it failed is measured again', async (t) => {
  const bed = new StandIn();
  const plan = [bench('clock'), bench('simulated', 'either', false)];
  for (const name of ['clock', 'simulated']) bed.results.set(name, bed.result(name, { failed: true }));
  await runPlan(plan, bed);
  t.strictSame(bed.ran, ['clock.js prebuilt', 'simulated.js prebuilt']);
});

t.test('a result of another commit, of a busy machine or of no commit is measured again', async (t) => {
  const bed = new StandIn();
  bed.results
    .set('clock', bed.result('clock', { commit: 'old' }))
    .set('from-npm', bed.result('from-npm', { rough: true }))
    .set('own-build', {})
    .set('simulated', bed.result('simulated', { rough: true }));
  await runPlan(PLAN, bed);
  t.strictSame(bed.ran.map((line) => line.split('.')[0]).sort(), ['clock', 'from-npm', 'own-build']);
});

t.test('a result of an older commit stands while nothing has changed that its bench depends on', async (t) => {
  const bed = new StandIn();
  for (const name of ['clock', 'from-npm']) bed.results.set(name, bed.result(name, { commit: 'old' }));
  bed.untouched.add('clock.js');
  const { current } = await runPlan(PLAN, bed);
  t.strictSame(current, ['clock.js']);
});

t.test('a result of a part of a bench, or of another addon, is measured again', async (t) => {
  const bed = new StandIn();
  const plan = [{ ...bench('grid'), command: 'grid.js 60 "" 600' }, bench('from-npm', 'prebuilt'), bench('clock')];
  bed.results
    .set('grid', bed.result('grid', { command: 'node dist/bench/grid.js 60  600' }))
    .set('from-npm', bed.result('from-npm', { addon: 'native' }))
    .set('clock', bed.result('clock', { command: 'node dist/bench/clock.js small' }));
  const { current } = await runPlan(plan, bed);
  t.strictSame(current, ['grid.js 60 "" 600']);
  t.strictSame(bed.ran, ['clock.js prebuilt', 'from-npm.js prebuilt']);
});

t.test(
  'where clocks are compared a result of another machine or major version of Node is measured again',
  async (t) => {
    const bed = new StandIn();
    const other = { machine: 'AMD EPYC, 4 cores', node: 'v22.20.2' };
    const plan = [...PLAN, bench('of-a-patch')];
    bed.results
      .set('clock', bed.result('clock', { machine: other.machine }))
      .set('from-npm', bed.result('from-npm', { node: other.node }))
      .set('own-build', bed.result('own-build', { addon: 'native' }))
      .set('of-a-patch', bed.result('of-a-patch', { node: 'v20.9.0' }))
      .set('simulated', bed.result('simulated', other));
    const { done, current } = await runPlan(plan, bed);
    t.strictSame(done, ['clock.js', 'from-npm.js']);
    t.strictSame(current, ['of-a-patch.js', 'own-build.js', 'simulated.js']);
  },
);

t.test('a round that goes on elsewhere keeps the results of the machine before', async (t) => {
  const bed = new StandIn();
  bed.present = { node: 'v20.20.2' };
  bed.results
    .set('clock', bed.result('clock', { machine: 'AMD EPYC, 4 cores' }))
    .set('from-npm', bed.result('from-npm', { machine: 'AMD EPYC, 4 cores', rough: true }));
  const { current } = await runPlan(PLAN, bed);
  t.strictSame(current, ['clock.js']);
});

t.test('without a quiet machine only what does not need one runs', async (t) => {
  const bed = new StandIn();
  bed.busy = true;
  const { done, failed } = await runPlan(PLAN, bed);
  t.strictSame(done, ['simulated.js']);
  t.strictSame(failed.length, 3);
  t.match(failed[0], /^clock\.js: not run, the machine was not quiet$/);
});

t.test('an addon that cannot be built leaves out the benches that need it', async (t) => {
  const bed = new StandIn();
  bed.builds = false;
  const { done, failed } = await runPlan(PLAN, bed);
  t.strictSame(done, ['clock.js', 'from-npm.js', 'simulated.js']);
  t.strictSame(failed, ['own-build.js: the native addon could not be put in place']);
});

t.test('a bench that ends well and writes nothing has failed', async (t) => {
  const bed = new StandIn();
  bed.run = async () => 0;
  const { failed } = await runPlan([bench('clock')], bed);
  t.strictSame(failed, ['clock.js: wrote no result of this code on a quiet machine']);
});

t.test('a bench has a limit of five times what it takes, and of ten minutes at least', async (t) => {
  const bed = new StandIn();
  const limits: number[] = [];
  bed.run = async (_command: string, limitMs = 0) => limits.push(limitMs) * 0;
  await runPlan([{ ...bench('clock'), minutes: 20 }, bench('short')], bed);
  t.strictSame(limits, [100 * 60_000, 10 * 60_000]);
});

t.test('it writes beforehand what is due and how long it takes, by its last result if there is one', async (t) => {
  const bed = new StandIn();
  bed.results.set('clock', bed.result('clock')).set('from-npm', bed.result('from-npm', { commit: 'old' }));
  bed.results.set('own-build', bed.result('own-build', { commit: 'old', seconds: 300 }));
  const plan = PLAN.map((each) => ({ ...each, ...(each.command === 'from-npm.js' && { minutes: 75 }) }));
  t.strictSame(listed(plan, bed), [
    '  75.0 min  from-npm.js  (quiet machine, prebuilt addon)',
    '   5.0 min  own-build.js  (quiet machine, native addon)',
    '   2.0 min  simulated.js',
    '3 of 4 benches, about 1 h 22 min besides waits and builds, of which 1 h 20 min need a quiet machine; 1 have results of this code',
  ]);
  await runPlan(plan, bed);
  t.strictSame(bed.lines.slice(4, 6), ['from-npm.js: about 1 h 15 min', 'from-npm.js: done']);
});
