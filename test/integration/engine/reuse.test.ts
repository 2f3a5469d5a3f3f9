/** A request that runs alone gets the same reply with and without reuse, token for token and bit for bit. */
import t from 'tap';
import type { GenerateJob, ScoreJob } from '../../../engine/protocol/jobs.js';
import { testModel } from '../../support/models.js';
import { RealLoop, type Ran, type RealLoopOptions } from '../../support/real-loop.js';
import { job as plain } from '../../support/step-bench.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import { cpuLlama } from '../../support/llama.js';

const CHUNK = 64;
const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: await testModel() });
t.teardown(() => llama.dispose());

/** Ordinary tokens, others for each salt. */
const words = (length: number, salt = 0): number[] =>
  Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));

const chat = (prompt: readonly number[], more: Partial<GenerateJob> = {}): GenerateJob =>
  plain(Uint32Array.from(prompt), { maxTokens: 24, ...more });

const ask = (input: readonly number[], salts: readonly number[], more: Partial<ScoreJob> = {}): ScoreJob => ({
  input: Uint32Array.from(input),
  // Some longer than a chunk.
  questions: salts.map((salt) => ({
    tail: Uint32Array.from(words(salt % 2 === 0 ? 40 : CHUNK + 9, salt)),
    labels: Uint32Array.of(70, 71, 72),
    temperature: 1,
  })),
  temperature: 1,
  scope: ALL_ACCOUNTS,
  isolate: true,
  seats: 1,
  ...more,
});

/** A job on a new context that reuses nothing. */
async function clean(job: GenerateJob | ScoreJob, options: RealLoopOptions): Promise<Ran> {
  const loop = await RealLoop.make(model, { ...options, prefixReuse: 'off' });
  const ran = await loop.run(job);
  await loop.dispose();
  return ran;
}

t.test('a system prompt that requests share, on whatever sequence they run', async (t) => {
  const loop = await RealLoop.make(model, {});
  const system = words(2 * CHUNK + 30);
  const cached: number[] = [];
  for (let user = 0; user < 6; user += 1) {
    const job = chat([...system, ...words(10 + 25 * user, user + 5)]);
    const ran = await loop.run(job);
    t.same(ran.tokens, (await clean(job, {})).tokens, `user ${user}`);
    cached.push(ran.cached);
  }
  t.same(cached, [0, ...new Array<number>(5).fill(2 * CHUNK)]);
  await loop.dispose();
});

t.test('decisions with an input that was evaluated before', async (t) => {
  const loop = await RealLoop.make(model, {});
  const input = words(5 * CHUNK + 17);
  const first = await loop.run(ask(input, [1, 2, 3]));
  const second = await loop.run(ask(input, [4, 3, 1]));
  t.same([first.cached, second.cached], [0, input.length]);
  const fresh = await clean(ask(input, [4, 3, 1]), {});
  t.same(second.answers.map(bits), fresh.answers.map(bits));
  t.same(bits(second.answers[1]), bits(first.answers[2]), 'the same question at another place');
  t.not(bits(second.answers[0]), bits(second.answers[1]));

  // A tail’s own whole chunk counts too.
  t.equal((await loop.run(ask(input, [1]))).cached, input.length + CHUNK);

  // The longer input does not end there, so only whole chunks count.
  const longer = await loop.run(ask([...input, ...words(30, 9)], [2]));
  t.equal(longer.cached, 5 * CHUNK);
  t.same(longer.answers.map(bits), (await clean(ask([...input, ...words(30, 9)], [2]), {})).answers.map(bits));
  await loop.dispose();
});

t.test('several replies to one prompt, each run the same', async (t) => {
  const prompt = words(2 * CHUNK + 40);
  for (const seats of [1, 4]) {
    const job = chat(prompt, { n: 4, seats, temperature: 1, topP: 0.9 });
    const loop = await RealLoop.make(model, {});
    const first = await loop.run(job);
    const again = await loop.run(job);
    const fresh = await clean(job, {});
    t.same(first.tokens, fresh.tokens);
    t.same(again.tokens, fresh.tokens, 'while its prompt is held');
    t.equal(new Set(first.tokens.map((tokens) => tokens.join())).size, 4, 'four different ones');
    t.same(first.tokens[0], (await clean({ ...job, n: 1, seats: 1 }, {})).tokens[0]?.slice(0, 24));
    const once = prompt.length + 3 + 4 * 23;
    t.equal(first.evaluated, once, 'one prefill');
    await loop.dispose();
  }
});

/** Equal texts are equal numbers. */
function bits(answer: Ran['answers'][number] | undefined): string {
  return answer ? [...answer.probabilities, answer.labelMass].join() : 'none';
}
