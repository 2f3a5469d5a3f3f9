/** Requests of one account change nothing for another: neither its cached tokens nor the work of its requests. */
import t from 'tap';
import { Bench, job, questions, type BenchOptions } from '../../support/step-bench.js';

const PROMPT = Uint32Array.from({ length: 40 }, (_, i) => 1 + (i % 7));

/** The decodes of a chat and a decision, after the same requests of another account, or of none. */
async function steps(before: 'none' | 'same' | 'other', options: BenchOptions): Promise<unknown> {
  const bench = new Bench(4, undefined, options);
  const scope = before === 'same' ? 'acme' : 'globex';
  if (before !== 'none') {
    await bench.run(1, () => bench.loop.generate(1, job(PROMPT, { scope })));
    await bench.run(2, () => bench.loop.score(2, questions(PROMPT, [2, 3], { scope })));
  }
  const chat = await bench.run(3, () => bench.loop.generate(3, job(PROMPT, { scope: 'acme' })));
  const decision = await bench.run(4, () => bench.loop.score(4, questions(PROMPT, [2, 3], { scope: 'acme' })));
  return { chat, decision, cached: [bench.cached(3), bench.cached(4)] };
}

t.test('of a decision, what each question did not compute again is counted', async (t) => {
  const counted = async (options: BenchOptions): Promise<unknown[]> => {
    const bench = new Bench(4, undefined, options);
    await bench.run(1, () => bench.loop.score(1, questions(PROMPT, [2, 3, 4])));
    await bench.run(2, () => bench.loop.score(2, questions(PROMPT, [2, 3, 4])));
    return bench.outputs.filter(({ kind }) => kind === 'started' || kind === 'cached');
  };
  const input = PROMPT.length;
  t.match(await counted({ prefixReuse: 'any' }), [
    { id: 1, kind: 'started', cachedTokens: 0 },
    { id: 1, kind: 'cached', tokens: 2 * input },
    { id: 2, kind: 'started', cachedTokens: input },
    { id: 2, kind: 'cached', tokens: 3 * input },
  ]);
});

const WAYS: readonly [string, BenchOptions][] = [
  ['state that can be truncated', { prefixReuse: 'any' }],
  ['state that can be truncated, bit for bit', { prefixReuse: 'auto' }],
  ['checkpoints', { prefixReuse: 'any', truncatable: false, saves: true, checkpointBytes: 10_000 }],
];

for (const [name, options] of WAYS) {
  t.test(`${name}: the same decodes as if the other account had sent nothing`, async (t) => {
    const alone = await steps('none', options);
    t.same(await steps('other', options), alone);
    t.notSame(await steps('same', options), alone, 'its own earlier request does save decodes');
  });
}
