/** Replies whose next token’s mask is computed beside the steps: they skip these steps, and all other jobs continue. */
import t from 'tap';
import type { Sampling } from '../../../engine/scheduler/decoder.js';
import { alphabet, Bench, job, questions } from '../../support/step-bench.js';

const EXPENSIVE = 99;

/** Delays replies with the seed {@link EXPENSIVE}, each of whose tokens waits until the test opens it. */
class Gate {
  #open: (() => void)[] = [];
  readonly pends = ({ seed }: Sampling): Promise<void> | undefined =>
    seed === EXPENSIVE ? new Promise((resolve) => this.#open.push(resolve)) : undefined;

  get waiting(): number {
    return this.#open.length;
  }

  open(): void {
    for (const open of this.#open.splice(0)) open();
  }
}

const slow = { seed: EXPENSIVE };

t.test('the others continue without it, and it joins the next step once it is ready', async (t) => {
  const gate = new Gate();
  const bench = new Bench(3, alphabet, { pends: gate.pends });
  bench.loop.generate(1, job(1, slow));
  bench.loop.generate(2, job(1, { maxTokens: 9 }));
  await bench.ends(2);
  t.equal(bench.text(2), 'abcdefghi');
  t.equal(bench.text(1), '', 'the waiting one had no output');
  bench.loop.generate(3, job(1, { maxTokens: 30 }));
  bench.decoder.onStep = () => gate.open();
  await bench.ends(3);
  t.equal(bench.text(1), 'abcd', 'its text is unaffected');
  t.ok(
    bench.decoder.steps.some((parts) => parts.length === 2),
    'in steps that it shares',
  );
  t.same(bench.decoder.violations, []);
});

t.test('if all wait the loop waits too, and continues with the first that is ready', async (t) => {
  const gate = new Gate();
  const bench = new Bench(2, alphabet, { pends: gate.pends });
  const finished = bench.ends(1);
  bench.loop.generate(1, job(1, slow));
  let opened = 0;
  while (!bench.of(1).some(({ kind }) => kind === 'done')) {
    const before = bench.decoder.steps.length;
    if (gate.waiting > 0) opened += 1;
    gate.open();
    await new Promise(setImmediate);
    if (bench.decoder.steps.length > before + 2) throw new Error('steps without anything to decode');
  }
  await finished;
  t.equal(bench.text(1), 'abcd');
  t.ok(opened >= 4, 'one for each token');
});

t.test('cancelled, displaced by other jobs or closed while it waits', async (t) => {
  const gate = new Gate();
  const bench = new Bench(2, alphabet, { pends: gate.pends });
  bench.loop.generate(1, job(1, slow));
  await bench.ends(1, 'started');
  bench.loop.generate(2, job(20));
  await bench.ends(2);
  t.equal(bench.text(2).length, 4, 'a job that arrives meanwhile is served');
  bench.loop.score(3, questions(3, [2]));
  await bench.ends(3);
  bench.loop.cancel(1);
  bench.loop.generate(4, job(1));
  await bench.ends(4);
  t.equal(bench.loop.live, 0);
  t.same(
    bench.of(1).filter(({ kind }) => kind !== 'started'),
    [],
    'a cancelled one has no output',
  );
  t.ok(bench.decoder.samplers.every(({ disposed }) => disposed));
  bench.loop.generate(5, job(1, slow));
  await bench.ends(5, 'started');
  await bench.loop.close();
  t.same(bench.decoder.violations, []);
});

t.test('a long prompt is evaluated meanwhile, except its end; n replies wait independently', async (t) => {
  const gate = new Gate();
  const bench = new Bench(3, alphabet, { pends: gate.pends });
  bench.loop.generate(1, job(20, { ...slow, n: 2, seats: 2, maxTokens: 3 }));
  await bench.ends(1, 'started');
  while (gate.waiting === 0 || bench.decoder.steps.length < 2) await new Promise(setImmediate);
  t.same(
    bench.decoder.steps.map((parts) => parts.map(({ kind, tokens }) => [kind, tokens.length])),
    [[['prefill', 8]], [['prefill', 8]]],
  );
  const done = bench.ends(1);
  bench.decoder.onStep = () => gate.open();
  gate.open();
  await done;
  t.equal(bench.text(1, 0), 'tuv');
  t.equal(bench.text(1, 1), 'tuv');
  t.same(bench.decoder.violations, []);
});

t.test('while one waits, a run of the others does not delay it', async (t) => {
  const gate = new Gate();
  const bench = new Bench(2, alphabet, { pends: gate.pends, runTells: 1 });
  bench.loop.generate(1, job(1, { ...slow, maxTokens: 1 }));
  bench.loop.generate(2, job(1, { maxTokens: 12 }));
  bench.decoder.onStep = (step) => {
    if (step === 4) gate.open();
  };
  await Promise.all([bench.ends(1), bench.ends(2)]);
  const joined = bench.decoder.steps.findIndex((parts) => parts.some(({ sequence }) => sequence === 0));
  t.equal(joined, 4, 'it is in the step after the one in which it became ready');
});

t.test('it skips steps where that leaves no gap between the others', async (t) => {
  const gate = new Gate();
  const bench = new Bench(4, alphabet, { pends: gate.pends });
  const format = { grammar: { gbnf: 'root ::= "a"', stacks: 2 }, markers: [] };
  bench.loop.generate(1, job(1, { ...slow, format }));
  bench.loop.generate(2, job(1));
  bench.loop.generate(3, job(1));
  await Promise.all([bench.ends(2), bench.ends(3)]);
  t.same(
    bench.decoder.steps[0]?.map(({ sequence }) => sequence),
    [0, 1],
  );
  while (bench.loop.live > 0) {
    gate.open();
    await new Promise(setImmediate);
  }
  t.same(
    bench.decoder.steps.at(-1)?.map(({ sequence }) => sequence),
    [3],
  );
});
