import { join } from 'node:path';
import t from 'tap';
import { writeTapModule } from './tap-module.js';
import { runTestProcess, type TestRun } from './test-process.js';

const PATIENT_S = 60;

/** Runs these sources as test files of one process. */
async function run(files: Readonly<Record<string, string>>, fileS = PATIENT_S): Promise<TestRun> {
  const sources = Object.entries(files).map(([name, text]) => [
    `${name}.test.js`,
    `import t from '${writeTapModule()}';\n${text}`,
  ]);
  const dir = t.testdir(Object.fromEntries(sources) as Record<string, string>);
  const listed = sources.map(([name = '']) => [join(dir, name), fileS] as const);
  return runTestProcess(listed, PATIENT_S);
}

t.test('assertions that pass, and each kind that fails, with its details and what the process printed', async (t) => {
  const failing = [
    `t.ok(0)`,
    `t.notOk(1)`,
    `t.equal({}, {})`,
    `t.not(1, 1)`,
    `t.same({ a: 1 }, { a: 2 })`,
    `t.notSame({ a: 1 }, { a: '1' })`,
    `t.strictSame({ a: 1 }, { a: '1' })`,
    `t.match({ a: 'b' }, { a: /c/ })`,
    `t.notMatch('abc', /b/)`,
    `t.type(1, 'string')`,
    `t.throws(() => 1)`,
    `t.throws(() => { throw new Error('a'); }, { message: 'b' })`,
    `t.throws(() => { throw new Error('a'); }, RangeError)`,
    `t.doesNotThrow(() => { throw new Error('a'); })`,
    `await t.rejects(Promise.resolve())`,
    `await t.rejects(Promise.reject(new Error('a')), /b/)`,
    `await t.resolves(Promise.reject(new Error('a')))`,
    `t.fail()`,
  ];
  const { passed, failed, ok, shown, wallS, cpuS } = await run({
    one: `t.test('a', (t) => { t.pass(); t.equal(1, 1); t.end(); });`,
    two: `t.test('b', async (t) => { t.test('c', async (t) => t.match({ a: 1, b: 2 }, { a: 1 })); });`,
    fails: `t.test('a', async (t) => { t.pass(); t.equal(1, 2, 'one is two'); console.error('why'); });`,
    all: `t.test('a', async (t) => {\n${failing.join(';\n')};\n});`,
  });
  t.same({ passed, failed, ok }, { passed: 4, failed: 1 + failing.length, ok: false });
  t.match(shown.join('\n'), /not ok 5 - \S*fails\.test\.js > a: one is two\n {6}---\n[^]*\n {6}\.\.\.\n[^]*why/);
  t.ok(cpuS > 0 && wallS > 0);
});

t.test('what ends no test, or begins none, fails by its file, and the next file runs', async (t) => {
  const { passed, ok, shown } = await run(
    {
      throws: `throw new Error('at once');`,
      waits: `t.test('never', async (t) => { t.pass(); await new Promise(() => {}); });`,
      rejects: `t.test('later', async (t) => { setTimeout(() => { throw new Error('later'); }); await new Promise(() => {}); });`,
      nothing: ``,
      hangs: `const alive = setInterval(() => {}, 1000); t.teardown(() => clearInterval(alive)); t.test('what never comes', () => new Promise(() => {}));`,
      teardown: `t.test('a', async (t) => { t.pass(); t.teardown(() => { throw new Error('left'); }); });`,
      next: `t.test('next', async (t) => { t.pass(); });`,
    },
    2,
  );
  t.notOk(ok);
  const lines = shown
    .filter((line) => /^not ok/.test(line))
    .map((line) => /^(.*ok) .*\/(\w+)\.test/.exec(line)?.slice(1).join(' '));
  t.strictSame(lines, [
    'not ok throws',
    'not ok waits',
    'not ok rejects',
    'not ok nothing',
    'not ok hangs',
    'not ok teardown',
  ]);
  t.match(shown.join('\n'), /not ok \d+ - \S*hangs\.test\.js > what never comes: timeout!/);
  t.equal(passed, 3);
});

t.test('a process that ends early has failed', async (t) => {
  for (const how of [`process.kill(process.pid, 'SIGKILL')`, `process.exit(0)`]) {
    const { failed, ok } = await run({
      ends: `t.test('a', async (t) => { t.pass(); ${how}; await new Promise(() => {}); });`,
    });
    t.same({ failed, ok }, { failed: 1, ok: false }, how);
  }
});
