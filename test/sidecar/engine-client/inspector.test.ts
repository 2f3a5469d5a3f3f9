import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { INSPECT_VERSION } from '../../../engine/protocol/inspect-messages.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { inspect, type Inspected } from '../../../sidecar/engine-client/inspector.js';

import { FakeClock } from '../../support/fake-clock.js';

/** An inspector stub that runs `body` after its question. */
function entry(t: Test, body: string): string {
  const file = join(t.testdir(), 'inspector.mjs');
  writeFileSync(
    file,
    `const v = ${INSPECT_VERSION};
process.on('disconnect', () => process.exit(0));
process.on('message', (asked) => { ${body} });`,
  );
  return file;
}

function ask(t: Test, body: string): Promise<Inspected<'heads'>> {
  return inspect('heads', { files: ['x'] }, { clock: systemClock, entry: entry(t, body) });
}

t.test('an answer, after any progress', async (t) => {
  const progress: number[][] = [];
  const body = `process.send({ v, kind: 'progress', done: 1, total: 2 });
    process.send({ v, kind: 'answer', answer: [asked] }, () => process.exit(0));`;
  const answered = await inspect(
    'heads',
    { files: ['x'] },
    { clock: systemClock, entry: entry(t, body), onProgress: (...seen) => progress.push(seen) },
  );
  t.strictSame(answered, {
    kind: 'answer',
    answer: [{ v: INSPECT_VERSION, kind: 'heads', question: { files: ['x'] } }],
  });
  t.strictSame(progress, [[1, 2]]);
});

t.test('each end without an answer is reported in one line', async (t) => {
  const ends: readonly (readonly [body: string, reason: RegExp])[] = [
    [`process.send({ v, kind: 'failed', reason: 'no llama' }, () => process.exit(3));`, /^no llama$/],
    [`process.kill(process.pid, 'SIGSEGV');`, /the inspector crashed$/],
    [
      `process.stderr.write('GGML_ASSERT(x) failed\\n', () => process.abort());`,
      /the inspector aborted \(assertion\)$/,
    ],
    [`process.exit(7);`, /the inspector ended with 7$/],
    [`process.send({ v: 99, kind: 'answer', answer: [] });`, /the inspector killed$/],
  ];
  for (const [body, reason] of ends) t.match(await ask(t, body), { kind: 'failed', reason }, body);
  const nowhere = await inspect('heads', { files: [] }, { clock: systemClock, entry: join(t.testdir(), 'none.js') });
  t.match(nowhere, { kind: 'failed', reason: /ended with 1/ });
});

t.test('an inspector gets no secrets of the sidecar, and what its question needs', async (t) => {
  const set = { DATABASE_PASSWORD: 'x', HF_TOKEN: 'x', GGML_TEST_ONLY: 'x' };
  Object.assign(process.env, set);
  t.teardown(() => Object.keys(set).forEach((name) => Reflect.deleteProperty(process.env, name)));
  const body = `const answer = Object.keys(process.env);
    process.send({ v, kind: 'answer', answer }, () => process.exit(0));`;
  const options = { clock: systemClock, entry: entry(t, body) };
  const names = (asked: Inspected<'heads' | 'fetch'>): string[] => {
    if (asked.kind === 'failed') throw new Error(asked.reason);
    const all = asked.answer as unknown as string[];
    return Object.keys(set).filter((name) => all.includes(name));
  };
  t.strictSame(names(await inspect('heads', { files: [] }, options)), ['GGML_TEST_ONLY']);
  const fetched = await inspect('fetch', { uri: 'hf:a/b', dir: '/nowhere' }, options);
  t.strictSame(names(fetched), ['HF_TOKEN', 'GGML_TEST_ONLY']);
});

t.test('a silent one is killed', async (t) => {
  const clock = new FakeClock();
  let heard = (): void => undefined;
  const reported = new Promise<void>((resolve) => (heard = resolve));
  const body = `process.send({ v, kind: 'progress', done: 0, total: 1 }); setInterval(() => undefined, 1e6);`;
  const asked = inspect('heads', { files: [] }, { clock, entry: entry(t, body), onProgress: () => heard() });
  await reported;
  clock.advance(299_999);
  t.equal(clock.pending, 1, 'it has a millisecond left');
  clock.advance(1);
  t.equal(clock.pending, 0);
  t.match(await asked, { kind: 'failed', reason: 'it does not answer' });
});
