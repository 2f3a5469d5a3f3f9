/**
 * Models whose state cannot be truncated continue from saved states: a request that runs alone gets the same reply with and
 * without them, bit for bit.
 */
import type { LlamaModel } from 'node-llama-cpp';
import t from 'tap';
import type { Clock } from '../../../engine/protocol/clock.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import type { GenerateJob, ScoreJob } from '../../../engine/protocol/jobs.js';
import { ARCHITECTURES, architectureModel } from '../../support/architectures.js';
import { RealLoop, type Ran, type RealLoopOptions } from '../../support/real-loop.js';
import { job as plain } from '../../support/step-bench.js';
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
t.teardown(() => llama.dispose());

const words = (length: number, salt = 0): number[] =>
  Array.from({ length }, (_, i) => 60 + ((i * 7 + salt * 13 + ((i * i) % 11)) % 90));

const chat = (prompt: readonly number[], more: Partial<GenerateJob> = {}): GenerateJob =>
  plain(Uint32Array.from(prompt), { maxTokens: REPLY, ...more });

const ask = (input: readonly number[], salts: readonly number[]): ScoreJob => ({
  input: Uint32Array.from(input),
  // Some longer than a chunk.
  questions: salts.map((salt) => ({
    tail: Uint32Array.from(words(salt % 2 === 0 ? 40 : CHUNK + 9, salt)),
    labels: Uint32Array.of(70, 71, 72),
    temperature: 1,
  })),
  temperature: 1,
  isolate: true,
  seats: 1,
  scope: ALL_ACCOUNTS,
});

/** A job on a new context that reuses nothing. */
async function clean(model: LlamaModel, job: GenerateJob | ScoreJob, options: RealLoopOptions = ROOM): Promise<Ran> {
  const loop = await RealLoop.make(model, { ...options, prefixReuse: 'off' });
  const ran = await loop.run(job);
  await loop.dispose();
  return ran;
}

for (const name of ARCHITECTURES) {
  t.test(name, async (t) => {
    const model = await llama.loadModel({ modelPath: await architectureModel(name) });
    t.teardown(() => model.dispose());

    await t.test(
      'the turns of a chat whose template marks them: everything before the last prompt’s new text',
      async (t) => {
        const options = { ...ROOM, mark: MARK };
        const loop = await RealLoop.make(model, options);
        let prompt = [MARK, ...words(3 * CHUNK + 20)];
        let before = 0;
        for (let turn = 0; turn < 3; turn += 1) {
          // The question's end, a line break, and the reply's header.
          const header = [MARK, ...words(3, 8)];
          prompt = [...prompt, MARK, ...words(1, 9), ...header];
          const asked = prompt.length - header.length;
          const ran = await loop.run(chat(prompt));
          t.same(ran.tokens, (await clean(model, chat(prompt), options)).tokens, `turn ${turn}`);
          t.equal(ran.cached, before, 'the previous prompt, up to the last mark');
          before = asked;
          prompt = [...prompt, ...(ran.tokens[0] ?? []), MARK, ...words(30, turn + 1)];
        }
        await loop.dispose();
      },
    );

    await t.test('a reply is evaluated ahead: all before the new question is reused', async (t) => {
      const loop = await RealLoop.make(model, { ...ROOM, mark: MARK, end: END, prefillAhead: true, clock: AT_ONCE });
      const header = [MARK, ...words(3, 8)];
      const change = [END, ...words(1, 9)];
      let prompt = [MARK, ...words(3 * CHUNK + 20)];
      let before = 0;
      for (let turn = 0; turn < 2; turn += 1) {
        prompt = [...prompt, ...change, ...header];
        const ran = await loop.run(chat(prompt));
        const said = [...prompt, ...(ran.tokens[0] ?? []), ...change, MARK];
        const ahead = loop.evaluates(said.length - (prompt.length - header.length));
        const alone = await clean(model, chat(prompt), { ...ROOM, mark: MARK, end: END });
        t.same(ran.tokens, alone.tokens, `turn ${turn}`);
        t.equal(ran.cached, before, 'the previous prompt with its reply');
        await ahead;
        before = said.length - 1;
        prompt = [...said, ...words(30, turn + 1)];
      }
      await loop.dispose();
    });

    await t.test('decisions with one input evaluate it once, and so do later ones', async (t) => {
      const loop = await RealLoop.make(model, ROOM);
      const input = words(2 * CHUNK + 30);
      for (const salts of [
        [2, 3, 4],
        [5, 2],
      ]) {
        const job = ask(input, salts);
        const ran = await loop.run(job);
        for (const [i, salt] of salts.entries()) {
          const { answers } = await clean(model, ask(input, [salt]));
          t.same(ran.answers[i]?.probabilities, answers[0]?.probabilities, `question ${salt}`);
          t.equal(ran.answers[i]?.labelMass, answers[0]?.labelMass);
        }
        const tails = job.questions.reduce((sum, { tail }) => sum + tail.length, 0);
        t.equal(ran.cached, salts.length === 3 ? 0 : input.length);
        t.equal(ran.evaluated, tails + input.length - ran.cached);
      }
      await loop.dispose();
    });
  });
}
