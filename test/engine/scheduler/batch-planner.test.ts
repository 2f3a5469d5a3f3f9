import t from 'tap';
import { LEAST_TOKENS, SHORT_TOKENS } from '../../../engine/scheduler/batch-planner.js';
import { Bench, job, StepTime } from '../../support/step-bench.js';

const CHUNK = 64;
const EACH = 1;
const DECODE = 20;

/** A decode of prompts takes 1 ms a token, one of next tokens 20 ms. */
function timed(seats: number, prefillShare = 100, prefillTokensPerStep = CHUNK, stepMs?: number): Bench {
  const clock = new StepTime();
  const bench = new Bench(seats, undefined, {
    contextPerSeat: 1000,
    prefillTokensPerStep,
    prefillShare,
    prefixReuse: 'off',
    clock,
    ...(stepMs !== undefined && { stepMs }),
  });
  bench.decoder.onStep = () => {
    const parts = bench.decoder.steps.at(-1) ?? [];
    const prompt = parts.reduce((sum, { tokens }) => sum + (tokens.includes(1) ? tokens.length : 0), 0);
    clock.ms += prompt > 0 ? prompt * EACH : DECODE;
  };
  return bench;
}

/** Prompt tokens of each step that has any, by sequence. */
function prompts(bench: Bench, sequence: number): number[] {
  return bench.decoder.steps.flatMap((parts) =>
    parts.filter((part) => part.sequence === sequence && part.tokens.includes(1)).map(({ tokens }) => tokens.length),
  );
}

t.test('alone, a prompt enters in whole chunks', async (t) => {
  const bench = timed(1);
  bench.loop.generate(1, job(3 * CHUNK + 5));
  await bench.ends(1);
  t.same(prompts(bench, 0), [CHUNK, CHUNK, CHUNK, 5]);
});

t.test('beside a reply a prompt gets the share, and the reply gets a token between two chunks', async (t) => {
  for (const [share, tokens] of [
    [100, 20],
    [200, 40],
    [50, 10],
    [10, LEAST_TOKENS],
  ] as const) {
    const bench = timed(2, share);
    const before = bench.decoder.onStep;
    bench.decoder.onStep = (step) => {
      void before(step);
      if (step === 8) bench.loop.generate(2, job(5 * CHUNK, { maxTokens: 1 }));
    };
    bench.loop.generate(1, job(CHUNK, { maxTokens: 200 }));
    await bench.ends(2);
    const chunks = prompts(bench, 1);
    // Also the rest of a chunk, when the next one begins.
    t.ok(
      chunks.slice(0, -1).every((count) => count <= tokens),
      `${share} %: ${chunks.join()}`,
    );
    t.equal(chunks.at(-1), CHUNK, 'a short end of a prompt joins a step at once');
    t.equal(chunks[0], tokens);
    t.equal(
      chunks.reduce((sum, count) => sum + count, 0),
      5 * CHUNK,
    );
    const order = bench.decoder.steps.map((parts) => (parts.some((part) => part.sequence === 0) ? 'r' : 'p')).join('');
    t.notMatch(order, /pp/);
  }
});

t.test('short prompts go before long ones, and a long one does not starve', async (t) => {
  const bench = timed(3);
  bench.decoder.onStep = (step) => {
    // A short prompt at every step that would use the whole budget.
    if (step < 120) bench.loop.generate(1000 + step, job(CHUNK - 1, { maxTokens: 1 }));
  };
  bench.loop.generate(1, job(CHUNK * 6, { maxTokens: 1 }));
  bench.loop.generate(2, job(1, { maxTokens: 500 }));
  await bench.ends(1);
  const shortDone = bench.outputs.filter(({ id, kind }) => id > 1000 && kind === 'done').length;
  t.ok(shortDone > 40, `${shortDone} short ones went before`);
  t.ok(bench.decoder.steps.length < 120, 'and the long one was finished before they ended');
});

t.test('the ends of several prompts join one decode, as far as it has room', async (t) => {
  const bench = timed(4);
  for (const id of [1, 2, 3]) bench.loop.generate(id, job(CHUNK / 2, { maxTokens: 2 }));
  await Promise.all([1, 2, 3].map((id) => bench.ends(id)));
  t.same(
    bench.decoder.steps[0]?.map(({ tokens }) => tokens.length),
    [CHUNK / 2, CHUNK / 2],
  );
  t.same(
    prompts(bench, 2).reduce((sum, count) => sum + count, 0),
    CHUNK / 2,
  );
});

t.test('if more prompts wait than replies run, they get proportionally more room', async (t) => {
  const short = SHORT_TOKENS / 2;
  const rounds = async (replies: number): Promise<number[]> => {
    const bench = timed(replies + 9, 50, 512);
    const before = bench.decoder.onStep;
    const from = 8 * replies;
    bench.decoder.onStep = (step) => {
      void before(step);
      if (step !== from) return;
      bench.loop.generate(100, job(500, { maxTokens: 1 }));
      for (let id = 101; id < 109; id += 1) bench.loop.generate(id, job(short, { maxTokens: 1 }));
    };
    for (let id = 1; id <= replies; id += 1) bench.loop.generate(id, job(short, { maxTokens: 300 }));
    await bench.ends(100);
    return bench.decoder.steps
      .slice(from)
      .map((parts) => parts.reduce((sum, { tokens }) => sum + (tokens.includes(1) ? tokens.length : 0), 0))
      .filter((tokens) => tokens > 0);
  };
  const [ends, chunk] = await rounds(1);
  t.equal(ends, 8 * short, 'the ends of eight short ones, beside one reply');
  t.equal(chunk, DECODE / 2 / EACH, 'then one prompt for each reply, and the configured share');
  const [crowded] = await rounds(8);
  t.equal(crowded, SHORT_TOKENS, 'nine beside eight: as for one');

  const bench = timed(5, 50, 512);
  const before = bench.decoder.onStep;
  bench.decoder.onStep = (step) => {
    void before(step);
    if (step === 8) for (const id of [2, 3, 4, 5]) bench.loop.generate(id, job(500, { maxTokens: 1 }));
  };
  bench.loop.generate(1, job(short, { maxTokens: 300 }));
  await Promise.all([2, 3, 4, 5].map((id) => bench.ends(id)));
  t.equal(prompts(bench, 1)[0], (4 * DECODE) / 2 / EACH, 'long ones too');
});

t.test(
  'of prompts with as many tokens left the one that arrived first is evaluated first, whatever its sequence',
  async (t) => {
    const bench = timed(2);
    // The first two jobs take the sequences in their order, and free them in the other one.
    bench.loop.generate(1, job(CHUNK, { maxTokens: 9 }));
    bench.loop.generate(2, job(CHUNK, { maxTokens: 1 }));
    await Promise.all([bench.ends(1), bench.ends(2)]);
    const from = bench.decoder.steps.length;
    for (const id of [3, 4]) bench.loop.generate(id, job(3 * CHUNK, { maxTokens: 1 }));
    await Promise.all([bench.ends(3), bench.ends(4)]);
    const order = bench.decoder.steps.slice(from).map((parts) => parts.map(({ sequence }) => sequence));
    t.same(order, [[1], [1], [1], [0], [0], [0]], 'the third job has sequence 1, the fourth sequence 0');
  },
);

t.test('beside replies of background jobs a prompt is evaluated as if it was alone, and they go on', async (t) => {
  const bench = timed(3);
  const before = bench.decoder.onStep;
  const from = 10;
  bench.decoder.onStep = (step) => {
    void before(step);
    if (step === from) bench.loop.generate(3, job(14 * CHUNK, { maxTokens: 1 }));
  };
  for (const id of [1, 2]) bench.loop.generate(id, job(CHUNK, { maxTokens: 500, background: true }));
  await bench.ends(3);
  const counts = prompts(bench, 2);
  t.ok(counts.length <= 16, `${counts.length} steps for 14 chunks`);
  t.ok(counts.filter((count) => count === CHUNK).length >= 12, counts.join());
  const beside = bench.decoder.steps.slice(from).findLastIndex((parts) => parts.some(({ sequence }) => sequence === 2));
  const theirs = bench.decoder.steps.slice(from, from + beside).filter((parts) => parts.length === 2);
  t.ok(theirs.length >= 1 && theirs.length <= 3, `${theirs.length} steps of theirs meanwhile`);
});

t.test('background jobs go on while the only other one waits for its grammar', async (t) => {
  const pends = ({ seed }: { readonly seed: number }): Promise<void> | undefined =>
    seed === 99 ? new Promise(() => undefined) : undefined;
  const bench = new Bench(2, undefined, { prefillTokensPerStep: CHUNK, contextPerSeat: 1000, pends });
  bench.loop.generate(1, job(CHUNK, { seed: 99 }));
  bench.loop.generate(2, job(3 * CHUNK, { maxTokens: 20, background: true }));
  await bench.ends(2);
  t.equal(bench.text(1), '');
});

t.test('prompts of background jobs come after those of all others, on a CPU and on a GPU', async (t) => {
  for (const stepMs of [undefined, 100]) {
    const bench = timed(3, 100, CHUNK, stepMs);
    const before = bench.decoder.onStep;
    bench.decoder.onStep = (step) => {
      void before(step);
      // It is the longer one, and came later.
      if (step === 6) bench.loop.generate(3, job(8 * CHUNK, { maxTokens: 1 }));
    };
    bench.loop.generate(1, job(CHUNK, { maxTokens: 300 }));
    bench.loop.generate(2, job(4 * CHUNK, { maxTokens: 1, background: true }));
    await Promise.all([bench.ends(2), bench.ends(3)]);
    const ended = bench.outputs.flatMap(({ id, kind }) => (kind === 'done' ? [id] : []));
    t.strictSame(ended.slice(0, 2), [3, 2], stepMs === undefined ? 'CPU' : 'GPU');
    const order = bench.decoder.steps.flatMap((parts) =>
      parts.flatMap(({ sequence, tokens }) =>
        sequence > 0 && tokens.includes(1) && tokens.length > 1 ? [sequence] : [],
      ),
    );
    const [background, other] = [1, 2];
    const between = order.slice(order.indexOf(other), order.lastIndexOf(other));
    t.notOk(between.includes(background), 'none of it while another prompt waits');
  }
});
