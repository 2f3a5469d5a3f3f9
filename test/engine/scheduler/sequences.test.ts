import t from 'tap';
import { prefixHashes, ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import { alphabet, Bench, job, questions, StepTime, type BenchOptions } from '../../support/step-bench.js';

const OPTIONS = { contextPerSeat: 400, prefillTokensPerStep: 8 } as const;
const bench = (seats: number, options: BenchOptions = {}): Bench =>
  new Bench(seats, alphabet, { ...OPTIONS, ...options });

/** Tokens of a prompt: `shared` that every prompt has, then `own` of this one. */
function prompt(shared: number, own: number, salt: number): Uint32Array {
  return Uint32Array.from({ length: shared + own }, (_, i) => (i < shared ? 1 + (i % 5) : 10 + salt));
}

t.test('alone, whole chunks are kept, and the reply is the same', async (t) => {
  const one = bench(2);
  await one.run(1, () => one.loop.generate(1, job(prompt(20, 3, 0))));
  const steps = await one.run(2, () => one.loop.generate(2, job(prompt(20, 5, 1))));
  t.same([one.cached(1), one.cached(2)], [0, 16]);
  t.same(steps[0], [['prefill', 8]]);
  t.same(steps[1], [['sample', 1]]);
  const clean = bench(2, { prefixReuse: 'off' });
  await clean.run(1, () => clean.loop.generate(1, job(prompt(20, 3, 0))));
  await clean.run(2, () => clean.loop.generate(2, job(prompt(20, 5, 1))));
  t.equal(clean.cached(2), 0);
  t.equal(one.text(2), clean.text(2));
  t.same(one.decoder.violations, []);
});

t.test('beside other jobs, or if configured, the whole common prefix is kept', async (t) => {
  const busy = bench(2, { copyable: false });
  await busy.run(1, () => busy.loop.generate(1, job(prompt(20, 3, 0))));
  const other = busy.ends(2);
  busy.loop.generate(2, job(prompt(0, 2, 9), { maxTokens: 60 }));
  busy.loop.generate(3, job(prompt(20, 5, 1)));
  await Promise.all([other, busy.ends(3)]);
  t.equal(busy.cached(3), 20);

  const elsewhere = bench(1);
  await elsewhere.run(1, () => elsewhere.loop.generate(1, job(prompt(20, 3, 0))));
  await elsewhere.run(2, () => elsewhere.loop.generate(2, { ...job(prompt(20, 5, 1)), besideOthers: true }));
  t.equal(elsewhere.cached(2), 20, 'other replicas of the model run jobs');
  const claims = [{ kept: [7] }, { session: 8, kept: [7] }, { session: 8, kept: [7] }, { session: 8, kept: [] }];
  for (const [i, each] of claims.entries()) {
    const turn = { ...job(prompt(20, 5, 2 + i)), claims: each };
    await elsewhere.run(3 + i, () => elsewhere.loop.generate(3 + i, turn));
  }
  const cached = [3, 4, 5, 6].map((id) => elsewhere.cached(id));
  t.same(cached, [16, 16, 20, 16], 'all only in a later turn, while another session is between two turns');

  const any = bench(1, { prefixReuse: 'any' });
  await any.run(1, () => any.loop.generate(1, job(prompt(20, 3, 0))));
  await any.run(2, () => any.loop.generate(2, job(prompt(20, 5, 1))));
  t.equal(any.cached(2), 20);
});

t.test('what other jobs left of a chunk differs from what a job alone would compute', async (t) => {
  const clock = new StepTime();
  const one = bench(2, { prefillTokensPerStep: 32, clock });
  one.loop.generate(1, job(prompt(0, 40, 9), { maxTokens: 60 }));
  one.decoder.onStep = (step) => {
    // A next token takes as long as ten tokens of a prompt.
    for (const { kind, tokens } of one.decoder.steps.at(-1) ?? [])
      clock.ms += kind === 'prefill' ? 3 * tokens.length : 30;
    if (step === 6) one.loop.generate(2, job(prompt(100, 3, 0), { maxTokens: 1 }));
  };
  await Promise.all([one.ends(1), one.ends(2)]);
  const sizes = one.decoder.steps.flat().filter(({ sequence, kind }) => sequence === 1 && kind === 'prefill');
  t.ok(
    sizes.some(({ tokens }) => tokens.length % 32 !== 0),
    sizes.map(({ tokens }) => tokens.length).join(),
  );
  await one.run(3, () => one.loop.generate(3, job(prompt(100, 5, 1))));
  t.equal(one.cached(3), 0);
});

t.test('an idle engine keeps its prefixes while there is an empty sequence', async (t) => {
  const one = bench(3);
  for (const salt of [0, 1, 2]) await one.run(salt + 1, () => one.loop.generate(salt + 1, job(prompt(0, 30, salt))));
  for (const salt of [0, 1, 2]) await one.run(salt + 11, () => one.loop.generate(salt + 11, job(prompt(0, 30, salt))));
  t.same(
    [1, 2, 3, 11, 12, 13].map((id) => one.cached(id)),
    [0, 0, 0, 24, 24, 24],
  );
  // Now the least recently used one is overwritten.
  await one.run(20, () => one.loop.generate(20, job(prompt(0, 30, 7))));
  await one.run(21, () => one.loop.generate(21, job(prompt(0, 30, 1))));
  await one.run(22, () => one.loop.generate(22, job(prompt(0, 30, 0))));
  t.same([one.cached(21), one.cached(22)], [24, 0]);
});

t.test('a prefix in use is copied, and evaluated again if the copy fails', async (t) => {
  for (const failing of [false, true]) {
    const one = bench(2);
    one.loop.generate(1, job(prompt(100, 1, 0), { maxTokens: 90 }));
    one.decoder.onStep = (step) => {
      if (step === 20) one.loop.generate(2, job(prompt(100, 30, 1)));
    };
    if (failing) one.decoder.failingCopies.add(1);
    await Promise.all([one.ends(1), one.ends(2)]);
    t.same(one.decoder.copies, failing ? [] : [[1, 0]]);
    t.equal(one.cached(2), failing ? 0 : 100);
    t.equal(one.text(2), 'zabc', 'as 130 tokens require');
    t.same(one.decoder.violations, []);
  }
});

t.test('a fault leaves nothing to reuse', async (t) => {
  const one = bench(1);
  await one.run(1, () => one.loop.generate(1, job(prompt(20, 3, 0))));
  one.decoder.failing.add(0);
  one.loop.generate(2, job(prompt(20, 3, 0)));
  await one.ends(2, 'failed');
  await one.run(3, () => one.loop.generate(3, job(prompt(20, 3, 0))));
  t.same(
    [1, 2, 3].map((id) => one.cached(id)),
    [0, 16, 0],
  );
});

t.test('a state that cannot be truncated is computed again', async (t) => {
  const one = bench(1, { truncatable: false });
  await one.run(1, () => one.loop.generate(1, job(prompt(20, 3, 0), { n: 2 })));
  t.equal(one.text(1, 1), one.text(1, 0));
  await one.run(2, () => one.loop.generate(2, job(prompt(20, 5, 1))));
  t.same([one.cached(1), one.cached(2)], [0, 0]);
  await one.run(3, () => one.loop.score(3, questions(10, [3, 9])));
  const evaluated = one.decoder.steps.flat().filter(({ tokens }) => tokens.includes(2));
  t.ok(evaluated.length > 0);
  t.equal(one.held.length, 0 + one.held.filter(({ hashes }) => hashes.length === 0).length);
  t.same(one.decoder.violations, []);
});

t.test('the input of a decision is kept to its end, if the next one’s ends there too', async (t) => {
  const one = bench(1);
  const input = prompt(20, 0, 0);
  await one.run(1, () => one.loop.score(1, questions(input, [3, 4])));
  const steps = await one.run(2, () => one.loop.score(2, questions(input, [5, 2])));
  t.same([one.cached(1), one.cached(2)], [0, 20]);
  t.same(steps, [[['score', 5]], [['score', 2]]]);
  await one.run(3, () => one.loop.score(3, questions(prompt(20, 4, 0), [3])));
  t.equal(one.cached(3), 16);
});

t.test('prefixes of free sequences are reported when they change, and not without reuse', async (t) => {
  const one = bench(2);
  const tokens = prompt(150, 1, 0);
  await one.run(1, () => one.loop.generate(1, job(tokens)));
  t.same(one.held, [
    { sequence: 0, hashes: new Uint32Array(0) },
    { sequence: 0, hashes: prefixHashes(tokens, ALL_ACCOUNTS) },
  ]);
  t.equal(one.held[1]?.hashes.length, 2);
  const off = bench(2, { prefixReuse: 'off' });
  await off.run(1, () => off.loop.generate(1, job(tokens)));
  t.same(off.held, []);
});

t.test('held tokens are counted, of running and of free sequences', async (t) => {
  const one = bench(2);
  t.strictSame(one.loop.report.tokens, { running: 0, kept: 0 });
  let seen: unknown;
  one.decoder.onStep = (step) => {
    if (step === 5) seen = one.loop.report.tokens;
  };
  await one.run(1, () => one.loop.generate(1, job(prompt(20, 3, 0))));
  t.strictSame(seen, { running: 24, kept: 0 }, 'its prompt, and a token');
  t.strictSame(one.loop.report.tokens, { running: 0, kept: 26 }, 'the last token is never evaluated');
});

t.test('a job reuses states of its own scope, in place or by a copy, and of no other', async (t) => {
  for (const copyable of [true, false]) {
    const any = bench(3, { prefixReuse: 'any', copyable });
    const ask = (id: number, scope: string): Promise<unknown> =>
      any.run(id, () => any.loop.generate(id, job(prompt(100, 3, id), { scope })));
    await ask(1, 'a');
    await ask(2, 'b');
    await ask(3, 'a');
    await ask(4, 'b');
    t.same(
      [1, 2, 3, 4].map((id) => any.cached(id)),
      [0, 0, 100, 100],
    );
    const reported = new Set(any.held.filter(({ hashes }) => hashes.length > 0).map(({ hashes }) => hashes[0]));
    t.equal(reported.size, 2, 'the reported prefixes differ by scope too');
    t.same(any.decoder.violations, []);
  }
});
