/**
 * A request that runs alone gets the same reply with and without reuse, token for token and bit for bit; also of models whose state
 * cannot be truncated, which continue from saved states. families.test.ts has the turns of a chat on each of those.
 */
import type { LlamaModel } from 'node-llama-cpp';
import t from 'tap';
import type { Clock } from '../../../engine/protocol/clock.js';
import type { GenerateJob, ScoreJob } from '../../../engine/protocol/jobs.js';
import { ARCHITECTURES, architectureModel } from '../../support/architectures.js';
import { cases } from '../../support/long-form.js';
import { testModel } from '../../support/models.js';
import { RealLoop, type Ran, type RealLoopOptions } from '../../support/real-loop.js';
import { job as plain } from '../../support/step-bench.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import { cpuLlama } from '../../support/llama.js';

const CHUNK = 64;
const REPLY = 24;
/** Begins a turn; prompts of these tests have it nowhere else. */
const MARK = 40;
/** Ends a turn. */
const END = 41;
/** A clock whose timers do not wait. */
const AT_ONCE: Clock = {
  now: () => performance.now(),
  after: (_, fn) => {
    const turn = setImmediate(fn);
    return () => clearImmediate(turn);
  },
};
const ROOM = { checkpointBytes: 64 * 1024 * 1024 } as const;

const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: await testModel() });
t.teardown(() => llama.dispose());

/** Ordinary tokens, others for each salt. */
const words = (length: number, salt = 0): number[] =>
  Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));

const chat = (prompt: readonly number[], more: Partial<GenerateJob> = {}): GenerateJob =>
  plain(Uint32Array.from(prompt), { maxTokens: REPLY, ...more });

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
async function clean(job: GenerateJob | ScoreJob, options: RealLoopOptions, of: LlamaModel = model): Promise<Ran> {
  const loop = await RealLoop.make(of, { ...options, prefixReuse: 'off' });
  const ran = await loop.run(job);
  await loop.dispose();
  return ran;
}

t.test('the turns of a chat', async (t) => {
  const loop = await RealLoop.make(model, {});
  let prompt = words(3 * CHUNK + 20);
  const cached: number[] = [];
  for (let turn = 0; turn < 4; turn += 1) {
    const ran = await loop.run(chat(prompt));
    const { tokens } = await clean(chat(prompt), {});
    t.same(ran.tokens, tokens, `turn ${turn}`);
    t.equal(ran.evaluated, prompt.length - ran.cached + 23);
    cached.push(ran.cached);
    prompt = [...prompt, ...(ran.tokens[0] ?? []), ...words(30, turn + 1)];
  }
  // Whole chunks that were prefilled, and no generated token.
  t.same(cached, [0, 3 * CHUNK, 4 * CHUNK, 4 * CHUNK]);
  await loop.dispose();
});

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

t.test('questions together are close to isolated ones, and evaluate as few tokens', async (t) => {
  const input = words(8 * CHUNK + 3);
  const salts = [2, 4, 6, 8, 10, 12];
  // Room for all tails in one decode.
  const options = { seats: 6, prefillTokensPerStep: 4 * CHUNK };
  const isolated = await clean(ask(input, salts), options);
  const together = await clean(ask(input, salts, { scope: ALL_ACCOUNTS, isolate: false, seats: 6 }), options);
  const tails = 6 * 40;
  t.equal(isolated.evaluated, input.length + tails);
  t.equal(together.evaluated, input.length + tails);
  t.same([isolated.decodes, together.decodes], [3 + 6, 3 + 1]);
  const spread = Math.max(
    ...together.answers.flatMap(({ probabilities, labelMass }, i) => [
      ...probabilities.map((p, j) => Math.abs(p - (isolated.answers[i]?.probabilities[j] ?? NaN))),
      Math.abs(labelMass - (isolated.answers[i]?.labelMass ?? NaN)),
    ]),
  );
  t.comment(`spread ${spread}`);
  t.ok(spread < 0.05, `spread ${spread}`);
});

for (const name of cases(ARCHITECTURES, (each) => each === 'hybrid' || each === 'unseen-window')) {
  t.test(name, async (t) => {
    const own = await llama.loadModel({ modelPath: await architectureModel(name) });
    t.teardown(() => own.dispose());

    await t.test(
      'the turns of a chat whose template marks them: everything before the last prompt’s new text',
      async (t) => {
        const options = { ...ROOM, mark: MARK };
        const loop = await RealLoop.make(own, options);
        let prompt = [MARK, ...words(3 * CHUNK + 20)];
        let before = 0;
        for (let turn = 0; turn < 3; turn += 1) {
          // The question's end, a line break, and the reply's header.
          const header = [MARK, ...words(3, 8)];
          prompt = [...prompt, MARK, ...words(1, 9), ...header];
          const asked = prompt.length - header.length;
          const ran = await loop.run(chat(prompt));
          t.same(ran.tokens, (await clean(chat(prompt), options, own)).tokens, `turn ${turn}`);
          t.equal(ran.cached, before, 'the previous prompt, up to the last mark');
          before = asked;
          prompt = [...prompt, ...(ran.tokens[0] ?? []), MARK, ...words(30, turn + 1)];
        }
        await loop.dispose();
      },
    );

    await t.test('a reply is evaluated ahead: all before the new question is reused', async (t) => {
      const loop = await RealLoop.make(own, { ...ROOM, mark: MARK, end: END, prefillAhead: true, clock: AT_ONCE });
      const header = [MARK, ...words(3, 8)];
      const change = [END, ...words(1, 9)];
      let prompt = [MARK, ...words(3 * CHUNK + 20)];
      let before = 0;
      for (let turn = 0; turn < 2; turn += 1) {
        prompt = [...prompt, ...change, ...header];
        const ran = await loop.run(chat(prompt));
        const said = [...prompt, ...(ran.tokens[0] ?? []), ...change, MARK];
        const ahead = loop.evaluates(said.length - (prompt.length - header.length));
        t.same(ran.tokens, (await clean(chat(prompt), { ...ROOM, mark: MARK, end: END }, own)).tokens, `turn ${turn}`);
        t.equal(ran.cached, before, 'the previous prompt with its reply');
        await ahead;
        before = said.length - 1;
        prompt = [...said, ...words(30, turn + 1)];
      }
      await loop.dispose();
    });

    await t.test('decisions with one input evaluate it once, and so do later ones', async (t) => {
      const loop = await RealLoop.make(own, ROOM);
      const input = words(2 * CHUNK + 30);
      for (const salts of [
        [2, 3, 4],
        [5, 2],
      ]) {
        const job = ask(input, salts);
        const ran = await loop.run(job);
        for (const [i, salt] of salts.entries()) {
          const { answers } = await clean(ask(input, [salt]), ROOM, own);
          t.equal(bits(ran.answers[i]), bits(answers[0]), `question ${salt}`);
        }
        const tails = job.questions.reduce((sum, { tail }) => sum + tail.length, 0);
        t.equal(ran.cached, salts.length === 3 ? 0 : input.length);
        t.equal(ran.evaluated, tails + input.length - ran.cached);
      }
      await loop.dispose();
    });
  });
}

/** Equal texts are equal numbers. */
function bits(answer: Ran['answers'][number] | undefined): string {
  return answer ? [...answer.probabilities, answer.labelMass].join() : 'none';
}
