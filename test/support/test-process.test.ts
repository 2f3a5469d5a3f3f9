import { join } from 'node:path';
import t from 'tap';
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
});
const run = (name: string, timeoutS = PATIENT_S, graceS = 0) =>
  runTestProcess(join(folder, `${name}.js`), timeoutS, graceS);

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
  const [waits, spins] = await Promise.all([run('waits', 1, PATIENT_S), run('spins', 1)]);
  t.match(waits.shown.join('\n'), /not ok .* - timeout!/);
  t.notOk(waits.ok);
  t.notOk(spins.ok);
});
