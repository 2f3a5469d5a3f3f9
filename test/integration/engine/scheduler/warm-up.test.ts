/** A warmed-up engine replies as one without a warm-up, and no seat has tokens of another. */
import t from 'tap';
import { warmUp } from '../../../../engine/scheduler/warm-up.js';
import { embeddedTestModel } from '../../../support/models.js';
import { RealLoop } from '../../../support/real-loop.js';
import { job } from '../../../support/step-bench.js';
import { cpuLlama } from '../../../support/llama.js';

const LIMITS = {
  contextPerSeat: 256,
  prefillTokensPerStep: 64,
  prefillShare: 100,
  prefixReuse: 'auto',
  origin: { weights: '', kv: 'f16' },
} as const;
const SEATS = 2;

/** Begins with the warm-up’s tokens. */
const PROMPT = Uint32Array.from({ length: 40 }, (_, i) => (i < 16 ? 0 : 300 + i));

t.test('a warm-up changes no reply', async (t) => {
  const llama = await cpuLlama();
  const model = await llama.loadModel({ modelPath: await embeddedTestModel() });
  t.teardown(async () => {
    await model.dispose();
    await llama.dispose();
  });
  const replies = async (warm: boolean): Promise<unknown> => {
    const loop = await RealLoop.make(model, { ...LIMITS, seats: SEATS });
    const tokens = { isEnd: () => false, bytes: () => new Uint8Array(), control: () => undefined };
    if (warm) await warmUp(loop.decoder, tokens, { ...LIMITS, seats: SEATS });
    const { cached, tokens: first } = await loop.run(job(PROMPT, { maxTokens: 12, temperature: 1, seed: 7 }));
    const both = Array.from({ length: SEATS }, (_, i) => loop.run(job(PROMPT, { maxTokens: 12, seed: i })));
    const second = (await Promise.all(both)).map((ran) => ran.tokens);
    await loop.dispose();
    return { cached, first, second };
  };
  const cold = await replies(false);
  t.match(cold, { cached: 0 });
  t.strictSame(await replies(true), cold);
});
