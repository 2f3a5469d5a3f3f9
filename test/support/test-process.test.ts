import { join } from 'node:path';
import { readFileSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { eventually, isRunning } from './processes.js';
import { runTestProcess } from './test-process.js';

const PATIENT_S = 60;
const folder = t.testdir({
  'passes.js': `import t from 'tap'; t.test('dist/test/a.test.js', (t) => { t.pass(); t.pass(); t.end(); });`,
  'fails.js': `import t from 'tap'; t.pass(); t.equal(1, 2, 'one is two'); console.error('why');`,
  'ends-early.js': `import t from 'tap'; t.test('never ends', async (t) => { t.pass(); await new Promise(() => {}); });`,
  'throws.js': `throw new Error('before tap');`,
  'crashes.js': `import t from 'tap'; t.pass(); process.kill(process.pid, 'SIGKILL'); setInterval(() => {}, 1000);`,
  'nothing.js': `import 'tap';`,
  'waits.js': `import t from 'tap'; t.test('waits', async (t) => { t.pass(); await new Promise((resolve) => setTimeout(resolve, 2500)); });`,
  'spins.js': `import t from 'tap'; t.pass(); for (;;);`,
  other: '',
  'starts-others.js': `
    import { spawn } from 'node:child_process';
    import { writeFileSync } from 'node:fs';
    const { pid } = spawn('sh', ['-c', 'sleep 1000 & wait'], { stdio: 'ignore', detached: true });
    writeFileSync(new URL('other', import.meta.url), String(pid));
    for (;;);`,
  'stays.js': `import t from 'tap'; t.teardown(() => {}); t.pass(); setInterval(() => {}, 1000);`,
  'group.js': `
    import { readFileSync } from 'node:fs';
    import { fileURLToPath } from 'node:url';
    import { runGroup } from ${JSON.stringify(new URL('./group-files.js', import.meta.url).href)};
    const at = (name) => fileURLToPath(new URL(name, import.meta.url));
    const limitS = Number(readFileSync(at('limit'), 'utf8'));
    runGroup([[at('hangs.test.js'), limitS], [at('next.test.js'), ${PATIENT_S}]]);`,
  limit: '1',
  'hangs.test.js': `
    import t from 'tap';
    const alive = setInterval(() => {}, 1000);
    t.teardown(() => clearInterval(alive));
    t.test('what never comes', () => new Promise(() => {}));`,
  'next.test.js': `import t from 'tap'; t.test('next', async (t) => { t.pass(); });`,
});
const run = (name: string, timeoutS = PATIENT_S, limits: Parameters<typeof runTestProcess>[2] = { graceS: 0 }) =>
  runTestProcess(join(folder, `${name}.js`), timeoutS, limits);

t.test('a process whose tests pass', async (t) => {
  const { passed, failed, ok, shown, wallS, cpuS } = await run('passes');
  t.same({ passed, failed, ok }, { passed: 2, failed: 0, ok: true });
  t.match(shown.join('\n'), /^ok 1 - dist\/test\/a\.test\.js # time=\S+$/);
  t.ok(cpuS > 0 && wallS > 0);
});

t.test('a failed assertion, with its details and what the process printed', async (t) => {
  const { passed, failed, ok, shown } = await run('fails');
  t.same({ passed, failed, ok }, { passed: 1, failed: 1, ok: false });
  t.match(shown.join('\n'), /^not ok 2 - one is two\n {2}---\n[^]*\n {2}\.\.\.\n[^]*why/);
});

for (const name of ['ends-early', 'throws', 'crashes', 'nothing']) {
  t.test(`a process whose tests do not all end: ${name}`, async (t) => {
    const { failed, ok } = await run(name);
    t.ok(failed > 0);
    t.notOk(ok);
  });
}

t.test('one that takes too long is ended by tap, or killed if it computes', async (t) => {
  const [waits, spins] = await Promise.all([run('waits', 1, { graceS: PATIENT_S }), run('spins', 1)]);
  t.match(waits.shown.join('\n'), /not ok .* - timeout!/);
  t.notOk(waits.ok);
  t.notOk(spins.ok);
});

t.test('what a hung process has started is killed with it', async (t) => {
  const other = (): number => Number(readFileSync(join(folder, 'other'), 'utf8'));
  // Until it has time to start the other one, which on a busy machine takes several seconds.
  for (let limitS = 1; other() === 0 && limitS <= PATIENT_S; limitS *= 2)
    t.notOk((await run('starts-others', limitS)).ok);
  const pid = other();
  t.ok(pid > 0);
  await eventually('the end of what it started', () => !isRunning(pid));
});

t.test('a file of a group that hangs fails at its own limit, by its name, and the next one runs', async (t) => {
  let last = await run('group');
  // Until the limit is long enough for its test to begin.
  for (
    let limitS = 2;
    limitS <= PATIENT_S && !last.shown.some((line) => line.includes('what never comes'));
    limitS *= 2
  ) {
    writeFileSync(join(folder, 'limit'), String(limitS));
    last = await run('group');
  }
  const { passed, ok, shown } = last;
  t.notOk(ok);
  const text = shown.join('\n');
  t.match(text, /not ok \d+ - timeout!/);
  t.match(text, /not ok \d+ - what never comes/);
  t.match(text, /^not ok 1 - \S*hangs\.test\.js/m);
  t.notMatch(text, /^not ok 2/m);
  t.ok(passed > 0, 'the next one passed');
});

t.test('a process that something keeps alive after its tests is killed, and has failed', async (t) => {
  const { passed, failed, shown } = await run('stays', PATIENT_S, { leaveS: 1 });
  t.same({ passed, failed }, { passed: 1, failed: 1 });
  t.match(shown.join('\n'), /^killed: 1 s after its tests it had not ended$/m);
});
