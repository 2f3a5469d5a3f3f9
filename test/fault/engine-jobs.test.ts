/** A job on which llama.cpp would abort, in a real engine beside others. */
import t from 'tap';
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
