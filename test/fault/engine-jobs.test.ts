/** Jobs in a real engine: one on which llama.cpp would abort, and one that is stopped and sent again. */
import t from 'tap';
import { seeded } from '../support/gbnf.js';
import { RealEngine } from '../support/real-engine.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';

t.test('a token outside the vocabulary fails its own job, and the other continues', async (t) => {
  const engine = await RealEngine.start(t, { seats: 2, contextPerSeat: 1024, prefillTokensPerStep: 64 });
  engine.generate(1, { prompt: engine.prompt(10), maxTokens: 200 });
  await engine.output(1, 'piece');
  for (const [id, token] of [
    [2, 1_000_000],
    [3, 0xffffffff],
  ] as const) {
    engine.generate(id, { prompt: tokenPrompt(Uint32Array.of(97, token)), maxTokens: 4 });
    await engine.output(id, 'failed');
  }
  await engine.output(1, 'done');
  t.same(
    engine.outputs.filter(({ id }) => id !== 1).map(({ id, kind }) => [id, kind]),
    [
      [2, 'failed'],
      [3, 'failed'],
    ],
    'never begun',
  );
  engine.generate(4, { prompt: engine.prompt(10), maxTokens: 4 });
  await engine.output(4, 'done');
});

t.test('a background job that was stopped goes on after its tokens, within its grammar', async (t) => {
  const engine = await RealEngine.start(t, { seats: 1, contextPerSeat: 1024, prefillTokensPerStep: 64 });
  const random = seeded(1);
  // No model would write it by itself.
  const letters = Array.from({ length: 400 }, () => String.fromCharCode(97 + Math.floor(26 * random()))).join('');
  const format = { markers: [], grammar: { gbnf: `root ::= "${letters}"` } };
  const job = { maxTokens: 500, frequencyPenalty: 0, background: true, format } as const;
  const textOf = (id: number): string =>
    engine.outputs.map((output) => (output.id === id && output.kind === 'piece' ? output.text : '')).join('');
  for (const id of [1, 2, 3]) {
    engine.generate(id, { prompt: engine.prompt(10), ...job });
    if (id === 3) break;
    await engine.output(id, 'piece');
    engine.cancel(id);
    await engine.reports(({ live }) => live === 0);
  }
  await engine.output(3, 'done');
  t.equal(textOf(3), letters);
  const had = textOf(2).length;
  t.ok(had > textOf(1).length, 'it went on twice');
  const steps = engine.stepOf(3, 'finished') - engine.stepOf(3, 'started');
  t.ok(steps < letters.length - had, `${steps} steps for the other ${letters.length - had} tokens`);
});
