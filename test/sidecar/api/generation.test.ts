import t from 'tap';
import { ChatHarness, PARAMS } from '../../support/chat-harness.js';
import { seatLength, withAnswerRoom } from '../../../sidecar/api/generation.js';

t.test('a reply without a limit has the rest of the context, on the shortest seats with enough', async (t) => {
  t.equal(seatLength(2048, [2048]), 2048, 'with one length of seats all of it');
  for (const [promptTokens, length] of [
    [1, 1024],
    [512, 1024],
    [513, 8192],
    [4097, 8192],
    [9000, 8192],
  ] as const)
    t.equal(seatLength(promptTokens, [1024, 8192]), length, `${promptTokens}`);
});

t.test(
  'a bounded thought and its closing leave a quarter of the reply for the answer, and at most 1,024 tokens',
  async (t) => {
    const closing = Array.from({ length: 30 }, (_, i) => i);
    const thought = { open: true, starts: [], ends: [], implicitEnds: [], headers: [] };
    const boundOf = (tokens: number, maxTokens: number): number | undefined =>
      withAnswerRoom({ thought, thoughtLimit: { tokens, closing }, markers: [] }, maxTokens).thoughtLimit?.tokens;
    t.equal(boundOf(100, 1000), 100, 'a budget that leaves as much');
    t.equal(boundOf(5000, 1000), 1000 - 250 - 30);
    t.equal(boundOf(50_000, 10_000), 10_000 - 1024 - 30);
    t.equal(boundOf(5000, 40), 1, 'at least one');
    const unbounded = { thought, markers: [] };
    t.equal(withAnswerRoom(unbounded, 40), unbounded);
  },
);

t.test('a reply may vary where the request has no seed and a temperature', async (t) => {
  const harness = new ChatHarness();
  const takes = { authorize: 0, check: 0, tokenize: 0 };
  for (const [i, given] of [{ temperature: 1 }, { temperature: 0 }, { temperature: 1, seed: 7 }].entries()) {
    const replied = harness.ask(takes, { check: { kind: 'checked', params: { ...PARAMS, ...given } } });
    const generation = await harness.engine.generation(i);
    t.equal(generation.job.mayVary, i === 0 || undefined, JSON.stringify(given));
    generation.started().piece(1).finished().done();
    await replied;
  }
});
