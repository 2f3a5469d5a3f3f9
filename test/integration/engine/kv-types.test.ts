/** KV in other number formats, and sliding windows that keep all of it, as an engine loads them. */
import t from 'tap';
import { inspectModel } from '../../../engine/llama/inspect/model.js';
import type { KvTypes } from '../../../engine/protocol/setup.js';
import { architectureModel } from '../../support/architectures.js';
import { testModel } from '../../support/models.js';
import { RealLoop } from '../../support/real-loop.js';
import { job } from '../../support/step-bench.js';

const PROMPT = Uint32Array.from({ length: 150 }, (_, i) => 60 + ((i * 7 + ((i * i) % 11)) % 90));
const Q8: KvTypes = { keys: 'q8_0', values: 'q8_0' };

async function perSeat(kv: KvTypes): Promise<number> {
  const report = await inspectModel(
    {
      setup: {
        file: await testModel(),
        kind: 'chat',
        seats: 2,
        contextPerSeat: 8192,
        threads: 1,
        gpu: false,
        flashAttention: 'auto',
        prefillTokensPerStep: 0,
        kv,
      },
      load: false,
      taken: { memory: 0, gpuMemory: 0 },
    },
    () => undefined,
  );
  return report.memory?.perSeat ?? NaN;
}

t.test('a seat of q8_0 takes 0.53 of one of f16, by the memory check', async (t) => {
  const share = (await perSeat(Q8)) / (await perSeat({ keys: 'f16', values: 'f16' }));
  t.ok(Math.abs(share - 34 / 64) < 0.01, String(share));
});

t.test('an engine answers with them', async (t) => {
  const loop = await RealLoop.load(await testModel(), { kv: Q8 });
  const { tokens } = await loop.run(job(PROMPT, { maxTokens: 8 }));
  t.equal(tokens[0]?.length, 8);
  await loop.dispose();
});

t.test('a combination that llama.cpp refuses ends the start with a line', async (t) => {
  await t.rejects(RealLoop.load(await testModel(), { kv: Q8, flashAttention: false }), {
    message: 'kv.values q8_0 needs flash attention: set flashAttention to auto or true, or kv.values to f16',
  });
  // Its heads are 16 wide.
  await t.rejects(RealLoop.load(await architectureModel('hybrid'), { kv: { keys: 'q4_0', values: 'f16' } }), {
    message: /^kv\.keys q4_0 needs heads whose width is a multiple of 32, and its heads are 16 wide/,
  });
});

t.test('swaFull can be truncated at any token, with the results of a new prefill', async (t) => {
  const file = await architectureModel('sliding-window');
  const loop = await RealLoop.load(file, { swaFull: true, prefixReuse: 'any' });
  t.equal(loop.decoder.states.truncatable, true);
  const other = PROMPT.map((token, i) => (i < 100 ? token : token + 1));
  const fresh = await RealLoop.load(file, { swaFull: true, prefixReuse: 'off' });
  await loop.run(job(PROMPT, { maxTokens: 40 }));
  const ran = await loop.run(job(other, { maxTokens: 12 }));
  t.equal(ran.cached, 100);
  t.equal(ran.tokens[0]?.[0], (await fresh.run(job(other, { maxTokens: 12 }))).tokens[0]?.[0]);
  await loop.dispose();
  await fresh.dispose();
});

t.test('with swaFull a saved state is gone on from at its end alone, and never lost for that', async (t) => {
  const loop = await RealLoop.load(await architectureModel('sliding-window'), {
    seats: 2,
    swaFull: true,
    checkpointBytes: 2 ** 26,
    prefixCache: { bytes: 2 ** 26, maxAgeMs: 1e9 },
  });
  t.teardown(() => loop.dispose());
  const words = (length: number, salt: number): Uint32Array =>
    Uint32Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));
  const first = words(400, 7);
  await loop.run(job(first, { maxTokens: 60 }));
  // Its sequence, and the other one, are taken by others.
  for (let i = 0; i < 3; i += 1) await loop.run(job(words(300, 20 + i), { maxTokens: 60 }));
  const next = (): Promise<unknown> => loop.run(job(Uint32Array.of(...first, ...words(30, 3)), { maxTokens: 4 }));
  await next();
  t.match(loop.cache, { evictions: { failed: 0 } }, 'its own reply is left out, as templates do with thoughts');
  t.match(await next(), { cached: 384 });
});
