/** A background reply that was stopped goes on after its tokens when its job is sent again, as if it had never been stopped. */
import fc from 'fast-check';
import t from 'tap';
import type { GenerateJob, Output } from '../../../engine/protocol/jobs.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { StoppedReplies } from '../../../engine/scheduler/stopped-replies.js';
import { rounds } from '../../support/long-form.js';
import { Bench, job, LETTER_A, StepTime, END, type BenchOptions } from '../../support/step-bench.js';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz';

function background(more: Partial<GenerateJob> = {}): GenerateJob {
  return job(3, { background: true, maxTokens: 20, ...more });
}

/** Sends a job as `id` and stops it once its text has so many characters, or it has ended. */
async function runTo(bench: Bench, id: number, asked: GenerateJob, characters: number): Promise<void> {
  const reached = new Promise<void>((resolve) => {
    bench.onOutputs = () => {
      if (bench.text(id).length >= characters || isOver(bench, id)) resolve();
    };
  });
  bench.loop.generate(id, asked);
  await reached;
  bench.loop.cancel(id);
  // Its sequence is free once another job has ended in the only one.
  bench.loop.generate(id + 1000, job(1, { maxTokens: 1 }));
  await bench.ends(id + 1000);
}

const isOver = (bench: Bench, id: number): boolean => bench.of(id).some(({ kind }) => kind === 'done');

const finish = (bench: Bench, id: number): Extract<Output, { kind: 'finished' }> | undefined =>
  bench.of(id).find((output) => output.kind === 'finished');

const stepsWith = (bench: Bench, kind: string): number =>
  bench.decoder.steps.filter((parts) => parts.some((part) => part.kind === kind)).length;

t.test('it evaluates what it had with its prompt, and its answer has all of it', async (t) => {
  const bench = new Bench(1);
  await runTo(bench, 1, background(), 10);
  const had = bench.text(1).length;
  const before = stepsWith(bench, 'sample');
  bench.loop.generate(2, background());
  await bench.ends(2);
  t.equal(bench.text(2), ALPHABET.slice(2, 22));
  t.match(finish(bench, 2), { reason: 'length', completionTokens: 20 });
  t.equal(stepsWith(bench, 'sample') - before, 20 - had, 'only the others were chosen');
  const pieces = bench.of(2).filter(({ kind }) => kind === 'piece');
  t.match(pieces[0], { text: ALPHABET.slice(2, 2 + had + 1), tokens: had + 1 }, 'in one piece with the next one');
  bench.loop.generate(3, background());
  await bench.ends(3);
  t.equal(stepsWith(bench, 'sample') - before, 40 - had, 'once');
  t.strictSame(bench.decoder.violations, []);
});

t.test('whatever is stopped and when, also while it waits: each answer is that of a reply that never was', async () => {
  const stops = fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 5 });
  const options: fc.Arbitrary<BenchOptions> = fc.record({
    runTells: fc.constantFrom(0, 1, 3),
    saves: fc.boolean(),
    truncatable: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(stops, options, fc.constantFrom(4, 20, 40), async (characters, how, maxTokens) => {
      const next = (held: readonly number[]): number => (held.length > 24 ? END : LETTER_A + held.length);
      const asked = (): GenerateJob => background({ maxTokens, stops: ['st'] });
      const [whole, bench] = [new Bench(1, next, how), new Bench(1, next, how)];
      whole.loop.generate(1, asked());
      await whole.ends(1);
      let id = 1;
      for (const each of characters) await runTo(bench, (id += 1), asked(), each);
      bench.loop.generate(1, asked());
      await bench.ends(1);
      const [left, right] = [whole, bench].map((of) => JSON.stringify([of.text(1), finish(of, 1)]));
      if (left !== right || bench.decoder.violations.length > 0) throw new Error(`${left} and ${right}`);
    }),
    { numRuns: rounds({ short: 15, long: 1000 }) },
  );
});

t.test('it goes on with other random numbers, within its limit, and asks for more', async (t) => {
  const bench = new Bench(1, undefined, { contextPerSeat: 512 });
  const asked = (more: Partial<GenerateJob> = {}): GenerateJob =>
    background({ temperature: 1, mayVary: true, maxTokens: 300, ...more });
  await runTo(bench, 1, asked(), 200);
  bench.loop.generate(2, asked({ limit: 256 }));
  await bench.ends(2, 'piece');
  t.match(bench.of(2)[1], { tokens: 256 - 128 });
  t.equal(bench.decoder.samplers.at(-1)?.sampling.seed, 7 + 127);
  bench.loop.limit(2, { tokens: 300, last: true });
  await bench.ends(2);
  t.match(finish(bench, 2), { completionTokens: 300 });
});

t.test('only the same job goes on, and only one that need not begin again', async (t) => {
  const goesOn = (stopped: GenerateJob, sent: GenerateJob): boolean => {
    const replies = new StoppedReplies(1, new StepTime());
    replies.keep(stopped, [1, 2]);
    return replies.take(sent).length > 0;
  };
  const format = { markers: [] };
  const same: Partial<GenerateJob>[] = [
    { besideOthers: true, claims: { kept: [1] } },
    { temperature: 1, mayVary: true },
    { format: { ...format, grammar: { gbnf: 'root ::= "a"', stacks: 1 } } },
  ];
  for (const more of same) t.ok(goesOn(background(more), background({ limit: 200, ...more })), JSON.stringify(more));
  const others: Partial<GenerateJob>[] = [
    { scope: 'b' },
    { seed: 8 },
    { maxTokens: 21 },
    { stops: ['x'] },
    { prompt: tokenPrompt(Uint32Array.of(1, 1, 2)) },
    { format },
  ];
  for (const more of others) t.notOk(goesOn(background(), background(more)), JSON.stringify(more));
  const begun: Partial<GenerateJob>[] = [
    { n: 2 },
    { temperature: 1 },
    { frequencyPenalty: 0.1 },
    { presencePenalty: 0.1 },
    { format: { ...format, calls: {} } as never },
    { format: { ...format, thoughtLimit: {} } as never },
  ];
  for (const more of begun) t.notOk(goesOn(background(more), background(more)), JSON.stringify(more));
  const queued = background({ background: false });
  t.ok(goesOn(background(), queued), 'after a recall also on a seat of the queue');
  t.notOk(goesOn(queued, queued), 'which is not recalled');
  t.notOk(goesOn(background(), job(3, { maxTokens: 20 })), 'a reply that was never recalled');
});

t.test('the tokens of few are kept, for as long as states are', async (t) => {
  const time = new StepTime();
  const stopped = new StoppedReplies(2, time);
  const of = (scope: string): GenerateJob => background({ scope });
  for (const scope of ['a', 'b', 'c', 'd']) {
    stopped.keep(of(scope), [1, 2, 3]);
    time.ms += 10;
  }
  t.equal(stopped.take(of('b')).length, 0, 'room for others');
  stopped.tidy(0, new Set(['d']));
  t.equal(stopped.take(of('d')).length, 0, 'forgotten');
  t.strictSame([...stopped.take(of('c'))], [1, 2, 3]);
  t.equal(stopped.take(of('c')).length, 0, 'once');
  stopped.keep(of('e'), [1]);
  stopped.keep(of('e'), [1, 2]);
  stopped.tidy(time.ms + 1, new Set());
  t.equal(stopped.take(of('e')).length, 0, 'too old');

  const bench = new Bench(1, undefined, { contextPerSeat: 128 });
  await runTo(bench, 1, background({ scope: 'closed' }), 5);
  await bench.loop.forget('closed');
  const before = stepsWith(bench, 'sample');
  bench.loop.generate(2, background({ scope: 'closed' }));
  await bench.ends(2);
  t.equal(stepsWith(bench, 'sample') - before, 20);
});
