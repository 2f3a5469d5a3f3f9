import t from 'tap';
import { Bench, job, LETTER_A, questions, type BenchOptions } from '../../support/step-bench.js';

const PROMPT = 100;

/** Each choice repeats its own letter, as often as its turn allows. */
const own = (held: readonly number[], { seed }: { readonly seed: number }): number =>
  held.length > PROMPT + 1 + seed ? LETTER_A + 25 : LETTER_A + seed;

const bench = (seats: number, options: BenchOptions = {}): Bench =>
  new Bench(seats, own, { contextPerSeat: 200, prefillTokensPerStep: 32, ...options });

const freed = (one: Bench, id: number): number => one.of(id).filter(({ kind }) => kind === 'seatFreed').length;
const evaluated = (one: Bench): number =>
  one.decoder.steps.flat().reduce((sum, { tokens }) => sum + tokens.filter((token) => token === 1).length, 0);

t.test('choices start from copies of one prefill and step together', async (t) => {
  const one = bench(4);
  await one.run(1, () => one.loop.generate(1, job(PROMPT, { n: 4, seats: 4, seed: 0 })));
  t.same(
    [0, 1, 2, 3].map((choice) => one.text(1, choice)),
    ['aazz', 'bbbz', 'cccc', 'dddd'],
  );
  t.equal(evaluated(one), PROMPT + 3, 'and its last token for each further one');
  t.equal(one.decoder.copies.length, 3);
  t.ok(one.decoder.steps.some((parts) => parts.length === 4));
  t.same(
    one.decoder.samplers.map(({ sampling }) => sampling.seed),
    [0, 1, 2, 3],
  );
  t.equal(freed(one, 1), 1, 'the first ends one step before the others, which end together');
  t.same(one.of(1).at(-1), { id: 1, kind: 'done' });
});

t.test('more choices than seats: the rest follow, and each seat is freed when it is not needed', async (t) => {
  const one = bench(4);
  await one.run(1, () => one.loop.generate(1, job(PROMPT, { n: 5, seats: 2, seed: 0 })));
  t.equal(new Set(one.decoder.steps.flat().map(({ sequence }) => sequence)).size, 2);
  t.same(
    [0, 1, 2, 3, 4].map((choice) => one.text(1, choice)),
    ['aazz', 'bbbz', 'cccc', 'dddd', 'eeee'],
  );
  t.equal(evaluated(one), PROMPT + 4);
  t.equal(freed(one, 1), 1);
  t.equal(one.loop.live, 0);
});

t.test('a freed seat serves the next job while the other choices continue', async (t) => {
  // The second choice ends at once.
  const one = new Bench(2, (_, { seed }) => (seed === 1 ? 0 : LETTER_A), { contextPerSeat: 200 });
  one.loop.generate(1, job(10, { n: 2, seats: 2, seed: 0, maxTokens: 60 }));
  await one.ends(1, 'seatFreed');
  one.loop.generate(2, job(10, { seed: 5, maxTokens: 2 }));
  await one.ends(2);
  t.equal(one.text(2), 'aa');
  t.notOk(one.of(1).some(({ kind }) => kind === 'done'));
  await one.ends(1);
});

t.test('without copies each sequence evaluates the prompt itself', async (t) => {
  const one = bench(3, { copyable: false });
  await one.run(1, () => one.loop.generate(1, job(PROMPT, { n: 3, seats: 3, seed: 0 })));
  t.same(
    [0, 1, 2].map((choice) => one.text(1, choice)),
    ['aazz', 'bbbz', 'cccc'],
  );
  t.equal(evaluated(one), 3 * PROMPT);
});

t.test('a fault in one choice ends the job and frees every sequence', async (t) => {
  const one = bench(3);
  one.decoder.onStep = () => {
    if (one.decoder.steps.at(-1)?.length === 3) one.decoder.failing.add(1);
  };
  one.loop.generate(1, job(PROMPT, { n: 3, seats: 3, seed: 0 }));
  await one.ends(1, 'failed');
  t.equal(one.of(1).filter(({ kind }) => kind === 'failed').length, 1);
  t.equal(one.of(1).at(-1)?.kind, 'failed');
  one.decoder.onStep = () => undefined;
  one.decoder.failing.clear();
  for (const id of [2, 3, 4]) one.loop.generate(id, job(PROMPT, { seed: 0 }));
  await Promise.all([2, 3, 4].map((id) => one.ends(id)));
  t.same(
    [2, 3, 4].map((id) => one.text(id)),
    ['aazz', 'aazz', 'aazz'],
  );
  t.ok(one.decoder.samplers.every(({ disposed }) => disposed));
});

t.test('a cancel during a copy frees all', async (t) => {
  const one = bench(3);
  one.decoder.onCopy = () => one.loop.cancel(1);
  one.loop.generate(1, job(PROMPT, { n: 3, seats: 3, seed: 0 }));
  one.decoder.onStep = () => {
    if (one.loop.live === 1) one.loop.generate(2, job(PROMPT, { seed: 0 }));
    one.decoder.onStep = () => undefined;
  };
  await one.ends(2);
  t.ok(
    one.of(1).every(({ kind }) => kind === 'started'),
    'no output came after it',
  );
  t.equal(one.decoder.copies.length, 1);
  t.equal(one.loop.live, 0);
  t.ok(one.decoder.samplers.every(({ disposed }) => disposed));
});

t.test('questions that may share decodes share one', async (t) => {
  const one = bench(4);
  const steps = await one.run(1, () =>
    one.loop.score(1, questions(PROMPT, [4, 5, 6, 7, 8], { isolate: false, seats: 3 })),
  );
  t.same(
    steps.map((parts) => parts.map(([, tokens]) => tokens)),
    [[32], [32], [32], [4], [4, 5, 6], [3, 3]],
    'the last two share the start of their tails with the held tokens',
  );
  const answers = one.of(1).filter((output) => output.kind === 'answer');
  t.same(answers.map(({ question }) => question).toSorted(), [0, 1, 2, 3, 4]);
  // Each sequence had the input and its own tail.
  for (const { question, labelMass } of answers) {
    const held = PROMPT + 4 + question;
    t.equal(labelMass, Math.exp(-held) + Math.exp(-2 * held));
  }
  t.equal(freed(one, 1), 1);
});

t.test('a job for whose seats others wait continues with one seat less, down to its last', async (t) => {
  const one = bench(4);
  const tails = new Array<number>(24).fill(4);
  const widths: number[] = [];
  one.decoder.onStep = (step) => {
    const parts = one.decoder.steps[step - 1] ?? [];
    widths.push(parts.length);
    // As soon as all four run, and then more often than it has seats to free.
    if (parts.length === 4) one.loop.reduceSeats(1);
    if (freed(one, 1) === 1) for (let i = 0; i < 5; i += 1) one.loop.reduceSeats(1);
  };
  const at: number[] = [];
  one.onOutputs = (outputs) => {
    for (const output of outputs) {
      if (output.kind === 'answer') at.push(0);
      if (output.kind === 'seatFreed') at.push(1);
    }
  };
  await one.run(1, () => one.loop.score(1, questions(PROMPT, tails, { isolate: false, seats: 4 })));
  t.equal(freed(one, 1), 3);
  t.equal(at.filter((each) => each === 0).length, tails.length, 'all are answered');
  const left = at.slice(at.lastIndexOf(1)).filter((each) => each === 0).length;
  t.ok(left >= 10, `${left} questions with one seat`);
  t.ok(widths.slice(-5).every((width) => width === 1));
  t.equal(one.loop.live, 0);
});

t.test('a job whose seats are recalled before it began starts with fewer', async (t) => {
  const one = bench(3);
  one.loop.generate(1, job(PROMPT, { n: 4, seats: 3, seed: 0 }));
  one.loop.reduceSeats(1);
  one.loop.reduceSeats(1);
  one.loop.reduceSeats(1);
  one.loop.reduceSeats(2);
  await one.ends(1);
  t.equal(new Set(one.decoder.steps.flat().map(({ sequence }) => sequence)).size, 1);
  t.same(
    [0, 1, 2, 3].map((choice) => one.text(1, choice)),
    ['aazz', 'bbbz', 'cccc', 'dddd'],
  );
  t.equal(freed(one, 1), 2, 'the seats that it was given and does not use');
});

t.test('isolated questions use one sequence, whatever the number of seats', async (t) => {
  const one = bench(4);
  const steps = await one.run(1, () => one.loop.score(1, questions(PROMPT, [4, 5], { isolate: true, seats: 2 })));
  t.ok(steps.every((parts) => parts.length === 1));
  t.equal(freed(one, 1), 0);
});
