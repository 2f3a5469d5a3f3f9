/** Prefixes that were overwritten and are restored, on real models: a request that runs alone gets the same, bit for bit. */
import { readdirSync } from 'node:fs';
import t from 'tap';
import type { GenerateJob } from '../../../engine/protocol/jobs.js';
import { ARCHITECTURES, architectureModel } from '../../support/architectures.js';
import { cpuLlama } from '../../support/llama.js';
import { embeddedTestModel } from '../../support/models.js';
import { RealLoop, type RealLoopOptions } from '../../support/real-loop.js';
import { job as plain } from '../../support/step-bench.js';

const CHUNK = 64;
const REPLY = 12;
const TURNS = 3;
const CHATS = 3;
const ROOM = { checkpointBytes: 64 * 2 ** 20, prefixCache: { bytes: 256 * 2 ** 20, maxAgeMs: 1e9 } } as const;

const llama = await cpuLlama(1);
t.teardown(() => llama.dispose());

const words = (length: number, salt: number): number[] =>
  Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));

const chat = (prompt: readonly number[]): GenerateJob => plain(Uint32Array.from(prompt), { maxTokens: REPLY });

/** Turns of several chats in turn on one sequence, so that each overwrites the one before. */
async function turns(loop: RealLoop): Promise<{ readonly tokens: unknown[]; readonly cached: number[][] }> {
  const prompts = Array.from({ length: CHATS }, (_, salt) => words(2 * CHUNK + 20, salt));
  const tokens: unknown[] = [];
  const cached: number[][] = [];
  for (let turn = 0; turn < TURNS; turn += 1) {
    cached[turn] = [];
    for (const [at, prompt] of prompts.entries()) {
      const ran = await loop.run(chat(prompt));
      tokens.push(ran.tokens);
      cached[turn]?.push(ran.cached);
      prompt.push(...(ran.tokens[0] ?? []), ...words(CHUNK, 10 * turn + at));
    }
  }
  return { tokens, cached };
}

/** Names of this process's files in memory. */
const memoryFiles = (): string[] => readdirSync('/dev/shm').filter((name) => name.startsWith(`ra-${process.pid}-`));

for (const name of ['llama', ...ARCHITECTURES] as const) {
  t.test(name, async (t) => {
    const file = name === 'llama' ? await embeddedTestModel() : await architectureModel(name);
    const model = await llama.loadModel({ modelPath: file });
    t.teardown(() => model.dispose());
    const run = async (options: RealLoopOptions): Promise<Awaited<ReturnType<typeof turns>> & { loop: RealLoop }> => {
      const loop = await RealLoop.make(model, { seats: 1, ...ROOM, ...options });
      t.teardown(() => loop.dispose());
      return { ...(await turns(loop)), loop };
    };
    const fresh = await run({ prefixReuse: 'off' });
    const { tokens, cached, loop } = await run({});
    t.same(tokens, fresh.tokens, 'the same replies');
    t.same(fresh.cached.flat(), new Array(TURNS * CHATS).fill(0));
    t.same(cached[0], [0, 0, 0]);
    // Behind a window that node-llama-cpp does not see, what is restored cannot be cut, and is dropped.
    t.equal(loop.cache.evictions.failed > 0, name === 'unseen-window');
    if (name !== 'unseen-window')
      for (const later of cached.slice(1).flat()) t.ok(later >= 2 * CHUNK, `${later} tokens restored`);
    t.ok(loop.cache.entries >= CHATS - 1);
    t.same(memoryFiles(), [], 'no file has a name');
    await loop.forget('all');
    t.equal(loop.cache.bytes, 0);

    const any = await run({ prefixReuse: 'any' });
    if (name !== 'unseen-window') for (const later of any.cached.slice(1).flat()) t.ok(later >= 2 * CHUNK + 20);
  });
}
