import t from 'tap';
import type { EmbedJob, Output } from '../../../engine/protocol/jobs.js';
import { FakeClock } from '../../support/fake-clock.js';
import { CLEAR_MS, PoolingLoop, type Pooling, type PoolingLimits } from '../../../engine/scheduler/pooling-loop.js';

const LIMITS: PoolingLimits = { stepTokens: 8, stepInputs: 4, contextPerSeat: 16, vocabulary: 100 };

/** Lengths of the inputs that a step had, by the first token of each. */
type Step = readonly string[];

/** The result of an input is its first token. A token of 99 fails its step. */
class FakePooling implements Pooling {
  readonly width = 1;
  readonly steps: Step[] = [];
  cleared = 0;
  /** Called while a step computes. */
  during: (step: number) => void = () => undefined;

  async decode(tokens: Uint32Array, lengths: Uint32Array): Promise<Float32Array> {
    let at = 0;
    const inputs = Array.from(lengths, (length) => {
      const first = tokens[at] ?? 0;
      at += length;
      return { first, length };
    });
    this.steps.push(inputs.map(({ first, length }) => `${first}x${length}`));
    this.during(this.steps.length);
    await new Promise(setImmediate);
    if (tokens.includes(99)) throw new Error('Eval has failed');
    return Float32Array.from(inputs, ({ first }) => (first === 98 ? NaN : first));
  }

  clear(): void {
    this.cleared += 1;
  }
}

function jobOf(scope: string, inputs: readonly (readonly number[])[], weight = 1): EmbedJob {
  const lengths = Uint32Array.from(inputs, ({ length }) => length);
  return { seats: 1, scope, weight, tokens: Uint32Array.from(inputs.flat()), lengths };
}

const inputs = (count: number, first: number, length = 4): number[][] =>
  Array.from({ length: count }, () => [first, ...Array.from({ length: length - 1 }, () => 0)]);

function open(limits: Partial<PoolingLimits> = {}): {
  readonly pooling: FakePooling;
  readonly loop: PoolingLoop;
  readonly clock: FakeClock;
  readonly outputs: Output[];
  /** Settles when this many jobs have ended. */
  readonly ends: (count: number) => Promise<void>;
} {
  const pooling = new FakePooling();
  const clock = new FakeClock();
  const outputs: Output[] = [];
  let wake = (): void => undefined;
  const loop = new PoolingLoop(
    pooling,
    { ...LIMITS, ...limits },
    (_, more) => {
      outputs.push(...more);
      wake();
    },
    clock,
  );
  const ends = async (count: number): Promise<void> => {
    while (outputs.filter(({ kind }) => kind === 'done' || kind === 'failed').length < count)
      await new Promise<void>((resolve) => (wake = resolve));
  };
  return { pooling, loop, clock, outputs, ends };
}

/** Results of a job, in the order in which they came. */
function resultsOf(outputs: readonly Output[], id: number): number[] {
  return outputs.flatMap((output) => (output.id === id && output.kind === 'vectors' ? [...output.values] : []));
}

t.test('inputs of all jobs share steps of so many tokens and inputs', async (t) => {
  const { pooling, loop, clock, outputs, ends } = open();
  loop.embed(1, jobOf('a', [[1, 0, 0], [2]]));
  loop.embed(2, jobOf('b', [[3, 0], [4, 0, 0, 0, 0, 0], [5]]));
  await ends(2);
  t.same(pooling.steps, [
    ['1x3', '3x2'],
    ['4x6', '5x1', '2x1'],
  ]);
  t.same(resultsOf(outputs, 1), [1, 2]);
  t.same(resultsOf(outputs, 2), [3, 4, 5]);
  t.same(
    outputs.filter(({ id }) => id === 1).map(({ kind }) => kind),
    ['started', 'vectors', 'vectors', 'done'],
  );
  clock.advance(CLEAR_MS - 1);
  t.equal(pooling.cleared, 0);
  clock.advance(1);
  t.equal(pooling.cleared, 1, 'nothing of the inputs is left');
  await loop.close();
});

t.test('an input that is longer than a step has one of its own; no input is split', async (t) => {
  const { pooling, loop, ends } = open();
  loop.embed(1, jobOf('a', [...inputs(1, 1, 16), ...inputs(5, 2, 1)]));
  await ends(1);
  t.same(pooling.steps, [['1x16'], ['2x1', '2x1', '2x1', '2x1'], ['2x1']]);
});

t.test('an input of an account that had none is in the next step', async (t) => {
  const { pooling, loop, ends } = open();
  pooling.during = (step) => step === 5 && loop.embed(2, jobOf('b', inputs(1, 7)));
  loop.embed(1, jobOf('a', inputs(40, 1)));
  await ends(2);
  t.same(pooling.steps[5], ['7x4', '1x4']);
});

t.test('also where each input of the other account fills a step', async (t) => {
  const { pooling, loop, ends } = open();
  pooling.during = (step) => step === 5 && loop.embed(2, jobOf('b', inputs(1, 7)));
  loop.embed(1, jobOf('a', inputs(20, 1, 8)));
  await ends(2);
  t.same(pooling.steps[5], ['7x4'], 'it waits for one step');
});

t.test(
  'accounts that always have inputs get tokens by their weights, whatever the lengths of inputs and lists',
  async (t) => {
    const { pooling, loop, ends } = open();
    const send = (id: number, scope: string, length: number, weight: number): void =>
      loop.embed(id, jobOf(scope, inputs(Math.ceil(900 / length), id, length), weight));
    send(1, 'a', 2, 1);
    send(2, 'b', 6, 3);
    send(3, 'b', 3, 3);
    await ends(3);
    const tokens = { 1: 0, 2: 0, 3: 0 } as Record<string, number>;
    // All three have inputs in the first 200 steps of some 340.
    for (const [first = '', length] of pooling.steps
      .slice(0, 200)
      .flat()
      .map((each) => each.split('x')))
      tokens[first] = (tokens[first] ?? 0) + Number(length);
    const share = ((tokens['2'] ?? 0) + (tokens['3'] ?? 0)) / (tokens['1'] ?? 1);
    t.ok(Math.abs(share / 3 - 1) < 0.02, `weights 3 and 1: ${share}`);
  },
);

t.test('an account gains nothing by short lists with pauses, and loses nothing by them', async (t) => {
  const { pooling, loop, outputs } = open({ stepInputs: 1 });
  let next = 2;
  pooling.during = (step) => {
    // Its next list comes a step after the last one was done.
    const busy = loop.report.live > 1;
    if (step < 200 && !busy) loop.embed(next++, jobOf('b', inputs(3, 7)));
    if (step === 200) loop.cancel(1);
  };
  loop.embed(1, jobOf('a', inputs(2000, 1)));
  while (loop.report.live > 0) await new Promise(setImmediate);
  const served = pooling.steps.slice(0, 200).filter(([first]) => first === '7x4').length;
  t.ok(Math.abs(served - 100) <= 4, `${served} of 200`);
  t.ok(outputs.length > 0);
});

t.test('an account’s lists end one after another, and delay none of its single inputs', async (t) => {
  const { pooling, loop, ends } = open();
  // Each step has two inputs, and a single one comes while each computes.
  pooling.during = (step) => step <= 32 && loop.embed(100 + step, jobOf('a', inputs(1, 50, 3)));
  for (let id = 1; id <= 4; id += 1) loop.embed(id, jobOf('a', inputs(8, id)));
  await ends(36);
  const last = (id: number): number => pooling.steps.findLastIndex((step) => step.includes(`${id}x4`)) + 1;
  t.same([1, 2, 3, 4].map(last), [8, 16, 24, 32]);
  for (const [i, step] of pooling.steps.slice(1, 33).entries())
    t.ok(step.includes('50x3'), `the single input of step ${i + 1} is in the next one`);
});

/** Accounts with endless lists and with single inputs, in time: a step takes a millisecond for each token. */
class Simulation {
  readonly clock = new FakeClock();
  /** Tokens that were computed, by the first token of their inputs. */
  readonly computed = new Map<number, number>();
  steps = 0;
  readonly #ends = new Map<number, () => void>();
  readonly #loop: PoolingLoop;
  #last = 0;

  constructor(stepTokens: number) {
    const pooling: Pooling = {
      width: 1,
      decode: async (tokens, lengths) => {
        this.steps += 1;
        let at = 0;
        for (const length of lengths) {
          const first = tokens[at] ?? 0;
          this.computed.set(first, (this.computed.get(first) ?? 0) + length);
          at += length;
        }
        await this.wait(tokens.length);
        return new Float32Array(lengths.length);
      },
      clear: () => undefined,
    };
    this.#loop = new PoolingLoop(
      pooling,
      { stepTokens, stepInputs: 128, contextPerSeat: stepTokens, vocabulary: 100 },
      (_, outputs) => {
        for (const { id, kind } of outputs) if (kind === 'done') this.#ends.get(id)?.();
      },
      this.clock,
    );
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => void this.clock.after(ms, resolve));
  }

  /** Settles once its results are sent. */
  embed(job: EmbedJob): Promise<void> {
    this.#last += 1;
    const id = this.#last;
    return new Promise((resolve) => {
      this.#ends.set(id, resolve);
      this.#loop.embed(id, job);
    });
  }

  /** An account's endless lists, one after another, by parts of 8,192 tokens with a millisecond between two. */
  lists(
    scope: string,
    first: number,
    { length, weight = 1 }: { readonly length: number; readonly weight?: number },
  ): void {
    const part = jobOf(scope, inputs(8192 / length, first, length), weight);
    const list = async (): Promise<void> => {
      for (;;) {
        await this.embed({ ...part, tokens: part.tokens.slice() });
        await this.wait(1);
      }
    };
    void list();
  }

  /** Lets time pass until `over` settles. */
  async until(over: Promise<void>): Promise<void> {
    let ended = false;
    void over.then(() => (ended = true));
    const isOver = (): boolean => ended;
    while (!isOver()) {
      for (let turn = 0; turn < 2; turn += 1) await new Promise(setImmediate);
      if (this.clock.pending > 0) this.clock.step(Infinity);
    }
  }
}

t.test('single inputs beside the endless lists of others take a step and a half at most', async (t) => {
  const STEP = 512;
  const times = async (simulation: Simulation): Promise<number[]> => {
    const all: number[] = [];
    const single = async (): Promise<void> => {
      for (let i = 0; i < 300; i += 1) {
        await simulation.wait((i * 137) % 1000);
        const from = simulation.clock.now();
        await simulation.embed(jobOf('one', inputs(1, 7, 16)));
        all.push(simulation.clock.now() - from);
      }
    };
    await simulation.until(single());
    return all;
  };
  const idle = await times(new Simulation(STEP));
  t.same(new Set(idle), new Set([16]));
  const busy = new Simulation(STEP);
  busy.lists('other', 1, { length: 32, weight: 4 });
  busy.lists('third', 2, { length: 128 });
  const beside = await times(busy);
  t.ok(Math.max(...beside) <= 1.5 * STEP, `${Math.max(...beside)} ms`);
  t.ok((busy.computed.get(1) ?? 0) > 300 * STEP, 'the lists were never idle');
});

t.test('a list of inputs of about half a step or more has one in every second step beside single inputs', async (t) => {
  const STEP = 256;
  for (const [length, least] of [
    [120, 115],
    [176, 170],
    [200, 100],
    [240, 120],
  ] as const) {
    const simulation = new Simulation(STEP);
    simulation.lists('list', 1, { length });
    let longest = 0;
    const single = async (scope: string): Promise<void> => {
      for (;;) {
        const from = simulation.clock.now();
        await simulation.embed(jobOf(scope, inputs(1, 7, 16)));
        longest = Math.max(longest, simulation.clock.now() - from);
      }
    };
    // The second one is sent while the first step runs, so that their steps alternate.
    void single('one');
    void simulation.wait(1).then(() => single('two'));
    await simulation.until(simulation.wait(100_000));
    const tokens = (simulation.computed.get(1) ?? 0) / simulation.steps;
    t.ok(tokens >= least, `inputs of ${length}: ${tokens} tokens of the list a step`);
    t.ok(longest <= 1.5 * STEP, `${longest} ms`);
  }
});

t.test('endless lists of two accounts have shares by weight within 2 %', async (t) => {
  const simulation = new Simulation(512);
  simulation.lists('standard', 1, { length: 32, weight: 4 });
  simulation.lists('batch', 2, { length: 128 });
  await simulation.until(simulation.wait(1_000_000));
  const [standard = NaN, batch = NaN] = [1, 2].map((first) => simulation.computed.get(first));
  t.ok(Math.abs(standard / batch / 4 - 1) < 0.02, `${standard} and ${batch} tokens`);
});

t.test('a list has its share beside the single inputs of many others from its beginning', async (t) => {
  const simulation = new Simulation(512);
  const single = async (scope: string): Promise<void> => {
    for (;;) await simulation.embed(jobOf(scope, inputs(1, 7, 64), 4));
  };
  for (let i = 0; i < 16; i += 1) void single(`one-${i}`);
  await simulation.until(simulation.wait(10_000));
  simulation.lists('list', 1, { length: 64, weight: 4 });
  await simulation.until(simulation.wait(16 * 512));
  const share = (simulation.computed.get(1) ?? 0) / (16 * 512);
  t.ok(share > 0.8 / 17, `${share}`);
});

t.test('a cancel ends a job between two inputs, and it emits nothing more', async (t) => {
  const { pooling, loop, outputs, ends } = open();
  pooling.during = (step) => step === 3 && loop.cancel(1);
  loop.embed(1, jobOf('a', inputs(20, 1)));
  loop.embed(2, jobOf('b', inputs(4, 2)));
  await ends(1);
  t.same(resultsOf(outputs, 1), [1], 'those of the second step were not sent, those of the third are dropped');
  t.same(resultsOf(outputs, 2), [2, 2, 2, 2]);
  t.notOk(outputs.some(({ id, kind }) => id === 1 && kind === 'done'));
  t.equal(loop.report.live, 0);
});

t.test('what cannot be computed fails alone', async (t) => {
  const { loop, outputs, ends } = open();
  loop.embed(1, jobOf('a', [[1], [2]]));
  loop.embed(2, jobOf('b', [[99]]));
  loop.embed(3, jobOf('c', [[98]]));
  await ends(3);
  t.same(resultsOf(outputs, 1), [1, 2]);
  const reasons = outputs.flatMap((output) => (output.kind === 'failed' ? [[output.id, output.reason]] : []));
  t.same(reasons, [
    [2, 'llama.cpp could not decode'],
    [3, 'a result is not a number'],
  ]);
});

t.test('a job that llama.cpp must not see fails at once', async (t) => {
  const { pooling, loop, outputs } = open();
  loop.embed(1, jobOf('a', [[100]]));
  loop.embed(2, jobOf('a', [[]]));
  loop.embed(3, jobOf('a', inputs(1, 1, 17)));
  loop.embed(4, jobOf('a', []));
  loop.embed(5, jobOf('a', [[1]], 0));
  t.same(
    outputs.map((output) => (output.kind === 'failed' ? output.reason : output.kind)),
    [
      'a token outside the vocabulary',
      'an input without tokens',
      'does not fit the context',
      'an input without tokens',
      'no weight',
    ],
  );
  t.same(pooling.steps, []);
  await loop.close();
});
