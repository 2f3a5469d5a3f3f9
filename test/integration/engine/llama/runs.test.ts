/** A run, whose steps follow one another without JavaScript, has the results of its single steps. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readGgufFileInfo, type Llama, type LlamaModel } from 'node-llama-cpp';
import t, { type Test } from 'tap';
import { decodeRun } from '../../../support/decode-run.js';
import { BatchDecoder, StepPolls } from '../../../../engine/llama/batch-decoder.js';
import { BatchSampler, samplerOf } from '../../../../engine/llama/batch-sampler.js';
import {
  decodeOnce,
  type StepPart,
  type PartResult,
  type Sampler,
  type Sampling,
} from '../../../../engine/scheduler/decoder.js';
import { engineAddon, keepThreads, type EngineAddon, type Spread } from '../../../../engine/llama/addon.js';
import { FAMILIES } from '../../../support/families/families.js';
import { testModel } from '../../../support/models.js';
import { cases } from '../../../support/long-form.js';
import { cpuLlama } from '../../../support/llama.js';

/** llama.cpp rounds a sequence's cells up to this. */
const CELLS = 256;
const SEQUENCES = [0, 1, 2];
const PROMPT = 12;
/** A token that no prompt here has. */
const SPOILT = 1500;
const GREEDY: Sampling = {
  temperature: 0,
  topP: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  seed: 1,
  maxTokens: CELLS,
};
/** A grammar that allows every text. */
const ANYTHING = 'root ::= [^\\x00]*';
const SEEDED: readonly Sampling[] = SEQUENCES.map((seed) => ({ ...GREEDY, temperature: 1, seed }));
const PENALIZED: readonly Sampling[] = SEEDED.map((seeded) => ({ ...seeded, topP: 0.9, frequencyPenalty: 0.8 }));

type Read = Extract<StepPart, { kind: 'sample' | 'score' }>;

interface Bench {
  readonly decoder: BatchDecoder;
  readonly isEnd: (token: number) => boolean;
}

/** Loaded once for all tests that use them. */
const loaded = new Map<string, Promise<{ readonly llama: Llama; readonly model: LlamaModel }>>();

async function modelOf(threads: number, file: string): Promise<LlamaModel> {
  const key = `${threads} ${file}`;
  const load = async (): Promise<{ readonly llama: Llama; readonly model: LlamaModel }> => {
    const llama = await cpuLlama(threads);
    return { llama, model: await llama.loadModel({ modelPath: file }) };
  };
  const made = loaded.get(key) ?? load();
  if (!loaded.has(key)) t.teardown(async () => (await made).llama.dispose());
  loaded.set(key, made);
  return (await made).model;
}

async function bench(t: Test, threads = 1, spread?: Spread, file?: string, flashAttention = false): Promise<Bench> {
  const model = await modelOf(threads, file ?? (await testModel()));
  const context = await model.createContext({
    sequences: SEQUENCES.length,
    contextSize: CELLS,
    batchSize: CELLS,
    ...(file !== undefined && { flashAttention }),
  });
  t.teardown(() => context.dispose());
  keepThreads(context, threads, spread);
  const decoder = await BatchDecoder.create(context, threads);
  return { decoder, isEnd: (token) => model.isEogToken(token as Parameters<typeof model.isEogToken>[0]) };
}

/** Replies on all sequences, started anew: the tokens of each so far, and its next one. */
class Replies {
  readonly said: number[][] = SEQUENCES.map(() => []);
  /** Calls of the decoder. */
  calls = 0;
  everyMs = 0;
  fault: string | undefined;
  readonly #decoder: BatchDecoder;
  readonly #samplers: Sampler[];

  private constructor(decoder: BatchDecoder, samplings: readonly Sampling[]) {
    this.#decoder = decoder;
    this.#samplers = SEQUENCES.map((i) => decoder.sampler(samplings[i] ?? GREEDY));
  }

  /** `grammars`: of those that have one. */
  static async begin(
    decoder: BatchDecoder,
    samplings: readonly Sampling[] = [],
    grammars: readonly (string | undefined)[] = [],
  ): Promise<Replies> {
    const replies = new Replies(decoder, samplings);
    for (const [i, gbnf] of grammars.entries()) if (gbnf !== undefined) replies.sampler(i).constrain(gbnf, []);
    for (const sequence of SEQUENCES) await decoder.states.truncate(sequence, 0);
    await replies.#step((i) => Uint32Array.from({ length: PROMPT }, (_, at) => 97 + ((at * 7 + i) % 20)));
    return replies;
  }

  /**
   * Steps until each has so many tokens, or one fails. `most`: steps of one run; absent: single steps. `told`: called
   * while one runs.
   */
  async until(count: number, most?: number, reported?: () => void): Promise<this> {
    while (this.fault === undefined && this.length < count) {
      for (const sampler of this.#samplers) await sampler.pending;
      await this.step(most === undefined ? undefined : Math.min(most, count - this.length), reported);
    }
    return this;
  }

  sampler(i: number): Sampler {
    const sampler = this.#samplers[i];
    if (!sampler) throw new Error('no sampler');
    return sampler;
  }

  /** The tokens of each. */
  get length(): number {
    return this.said[0]?.length ?? 0;
  }

  /** One call of the decoder. */
  step(most?: number, reported: () => void = () => undefined): Promise<void> {
    return this.#step(
      (i) => Uint32Array.of(this.said[i]?.at(-1) ?? 0),
      most === undefined ? undefined : { most, everyMs: this.everyMs },
      reported,
    );
  }

  async #step(
    tokens: (i: number) => Uint32Array,
    run?: Parameters<typeof decodeRun>[2],
    reported: () => void = () => undefined,
  ): Promise<void> {
    const parts = SEQUENCES.map((sequence, i): StepPart => {
      return { kind: 'sample', sequence, tokens: tokens(i), sampler: this.sampler(i) };
    });
    this.calls += 1;
    await decodeRun(this.#decoder, parts, run, (results) => {
      this.#hear(results);
      reported();
    });
  }

  #hear(results: readonly PartResult[]): void {
    for (const [i, result] of results.entries()) {
      if (result.kind === 'fault') this.fault = result.reason;
      else if (result.kind === 'token') this.said[i]?.push(result.token, ...(result.then ?? []));
    }
  }
}

t.test('greedy, by seed, with top_p and penalties, whatever the length of the runs', async (t) => {
  for (const threads of [1, 2]) {
    const { decoder } = await bench(t, threads);
    // Two threads wait for each other in a busy loop, which on a busy machine takes many times as long as the work.
    const all = [[], SEEDED, PENALIZED];
    for (const samplings of threads === 1 ? all : cases(all, (_, index) => index === 2)) {
      const { said } = await (await Replies.begin(decoder, samplings)).until(60);
      for (const most of [1, 7, 100]) {
        const run = await (await Replies.begin(decoder, samplings)).until(60, most);
        t.same(run.said, said, `runs of ${most}`);
        if (most === 100) t.ok(run.calls < 60, `${run.calls} calls`);
      }
    }
  }
});

t.test('replies that grammars constrain, beside a free one', async (t) => {
  const { decoder } = await bench(t);
  // Few characters may come; many, of which some are refused; and none after some.
  const grammars = [undefined, 'root ::= [a-m]{400}', 'root ::= [^e-z]{400}'];
  const stuck = [undefined, 'root ::= [a-m]{9} [\\x00-\\x00]', grammars[2]];
  for (const samplings of [SEEDED, PENALIZED]) {
    const { said } = await (await Replies.begin(decoder, samplings, grammars)).until(60);
    const failed = await (await Replies.begin(decoder, samplings, stuck)).until(60);
    t.match(failed.fault, /no token goes on/);
    for (const most of [1, 7, 100]) {
      const run = await (await Replies.begin(decoder, samplings, grammars)).until(60, most);
      t.same(run.said, said, `runs of ${most}`);
      if (most === 100) t.ok(run.calls < 10, `${run.calls} calls`);
      const halted = await Replies.begin(decoder, samplings, grammars);
      await halted.until(60, most, () => decoder.halt());
      t.same(halted.said, said, `halted runs of ${most}`);
      const { fault, said: before } = await (await Replies.begin(decoder, samplings, stuck)).until(60, most);
      t.same([fault, before], [failed.fault, failed.said], 'no token before a fault is lost');
    }
  }
});

t.test('a run follows replies through the places of their grammars, once these are known', async (t) => {
  const { decoder } = await bench(t);
  const grammars = [undefined, 'root ::= [a-m]{400}', 'root ::= [^e-z]* [\\x00-\\x00]'];
  const { states } = decoder;
  const extend = states.extend.bind(states);
  let parts = 0;
  states.extend = (part) => {
    parts += 1;
    return extend(part);
  };
  for (const samplings of [SEEDED, PENALIZED]) {
    const { said } = await (await Replies.begin(decoder, samplings, grammars)).until(60);
    // In the first reply that masks of the thread constrain each place is a new one.
    for (const [masked, most] of [
      [false, 3],
      [true, 60],
      [true, 3],
    ] as const) {
      const again = await Replies.begin(decoder, samplings, grammars);
      const part: StepPart = { kind: 'sample', sequence: 1, tokens: new Uint32Array(0), sampler: again.sampler(1) };
      const { constraint } = samplerOf(part);
      if (masked) constraint.goToMasks();
      parts = 0;
      t.same((await again.until(60, 100)).said, said);
      t.equal(constraint.inline, !masked);
      t.ok(parts <= most * SEQUENCES.length, `${parts / SEQUENCES.length} runs`);
    }
  }
});

t.test('a reply whose limit took long goes over to masks after its run, and loses no token', async (t) => {
  const { decoder } = await bench(t);
  const grammars = [undefined, 'root ::= [a-m]{400}'];
  const { said } = await (await Replies.begin(decoder, SEEDED, grammars)).until(40);
  const again = await Replies.begin(decoder, SEEDED, grammars);
  again.everyMs = 1e6;
  const { constraint } = samplerOf({
    kind: 'sample',
    sequence: 1,
    tokens: new Uint32Array(0),
    sampler: again.sampler(1),
  });
  const limit = constraint.limit.bind(constraint);
  constraint.limit = () => {
    constraint.limit = limit;
    for (const from = performance.now(); performance.now() < from + 150;);
    return limit();
  };
  t.same((await again.until(40, 3)).said, said);
  t.notOk(constraint.inline);
});

t.test('tokens do not wait for a mask of the thread that their next step needs', async (t) => {
  const { decoder } = await bench(t);
  // Too many classes to find within a step which characters may come.
  const letters = Array.from('abcdefghijklmnopqrstuvwx');
  const wide = letters.flatMap((a, i) =>
    letters.slice(i + 1).flatMap((b, j) => letters.slice(i + j + 2).map((c) => `[${a}${b}${c}]`)),
  );
  const gbnf = `root ::= [a-x]{9} (wide [a-x]){9} [a-x]{400}\nwide ::= ${wide.join(' | ')}`;
  const grammars = [undefined, gbnf];
  const { said, fault } = await (await Replies.begin(decoder, SEEDED, grammars)).until(30);
  t.equal(fault, undefined);
  const replies = await Replies.begin(decoder, SEEDED, grammars);
  replies.everyMs = 1e6;
  // The clock does not count here: a token that is slow on a busy machine would leave the grammar to the thread from there on.
  const part: StepPart = { kind: 'sample', sequence: 1, tokens: new Uint32Array(0), sampler: replies.sampler(1) };
  const { constraint } = samplerOf(part);
  constraint.relieve = () => undefined;
  const reports: { call: number; waits: boolean }[] = [];
  const reported = (): number => reports.push({ call: replies.calls, waits: replies.sampler(1).pending !== undefined });
  t.same((await replies.until(30, 30, reported)).said, said);
  const at = reports.findIndex(({ waits }) => waits);
  t.equal(reports[at]?.call, reports[at + 1]?.call, 'the step followed when the mask was there');
});

t.test('an error beside the steps of a run takes back what no result has, and loses nothing before it', async (t) => {
  const { decoder } = await bench(t);
  const { said } = await (await Replies.begin(decoder)).until(200);
  const replies = await Replies.begin(decoder);
  const { states } = decoder;
  const judge = states.judge.bind(states);
  let calls = 0;
  states.judge = (...given) => {
    calls += 1;
    if (calls === 3) throw new Error('beside the steps');
    judge(...given);
  };
  t.same((await replies.until(200, 200)).said, said);
  t.ok(calls > 3);
});

t.test('a step that is neither made nor undone ends its run, and no token before it is lost', async (t) => {
  const { decoder } = await bench(t);
  const replies = await Replies.begin(decoder, SEEDED, [undefined, 'root ::= [a-m]{400}']);
  const { states } = decoder;
  const extend = states.extend.bind(states);
  let left = 5 * SEQUENCES.length;
  states.extend = (part) => {
    if (left-- > 0) return extend(part);
    throw new Error('not made');
  };
  states.undo = () => {
    throw new Error('not undone');
  };
  await t.rejects(replies.step(60), /not undone/);
  t.equal(replies.length, 1 + 5);
});

t.test('picked by one thread or by several', async (t) => {
  const all = async (spread: Spread): Promise<number[][][]> => {
    const { decoder } = await bench(t, 1, spread);
    const said: number[][][] = [];
    for (const samplings of [[], SEEDED, PENALIZED]) {
      said.push((await (await Replies.begin(decoder, samplings)).until(60, 20)).said);
    }
    return said;
  };
  // Each has enough logits to be worth a thread.
  t.same(await all({ threads: 2, logits: 1 }), await all({ threads: 0, logits: 1 }));
});

/** Replies of 100 tokens in single steps, the first of which ends after `from` tokens and before `to`. */
async function ending(
  { decoder, isEnd }: Bench,
  from: number,
  to: number,
): Promise<{ readonly samplings: readonly Sampling[]; readonly said: number[][]; readonly end: number }> {
  for (let seed = 0; ; seed += SEQUENCES.length) {
    const samplings = SEQUENCES.map((i) => ({ ...GREEDY, temperature: 1, seed: seed + i }));
    const { said } = await (await Replies.begin(decoder, samplings)).until(100);
    const ends = said.map((tokens) => tokens.findIndex(isEnd)).filter((at) => at >= 0);
    const end = Math.min(Infinity, ...ends);
    if (end > from && end < to) return { samplings, said, end };
  }
}

t.test('when halted it stops, reports all results, and continues from there', async (t) => {
  const made = await bench(t);
  const { samplings, said } = await ending(made, 60, Infinity);
  const replies = await Replies.begin(made.decoder, samplings);
  await replies.step();
  const step = replies.step(50);
  made.decoder.halt();
  await step;
  t.ok(replies.length < 52, `${replies.length - 2} of 50`);
  await replies.until(100, 50, () => made.decoder.halt());
  t.same(replies.said, said);
});

t.test('no step follows one in which a reply ends', async (t) => {
  const made = await bench(t);
  // Late enough for a run to be going on.
  const { samplings, said, end } = await ending(made, 10, 90);
  const replies = await Replies.begin(made.decoder, samplings);
  while (replies.length <= end) await replies.step(80);
  t.same(
    replies.said,
    said.map((tokens) => tokens.slice(0, end + 1)),
  );
});

t.test('a sequence that becomes full in a later step fails in that step, and no token is lost', async (t) => {
  const { decoder } = await bench(t);
  const single = await (await Replies.begin(decoder)).until(2 * CELLS);
  t.equal(single.fault, 'no room left in the KV cache');
  t.equal(single.said[0]?.length, CELLS - PROMPT + 1, 'as many as it has room for, and one that is not evaluated');
  const run = await (await Replies.begin(decoder)).until(2 * CELLS, 2 * CELLS);
  t.equal(run.fault, single.fault);
  t.same(run.said, single.said);
});

t.test('a run makes the copies that were begun before it', async (t) => {
  const { decoder } = await bench(t);
  const replies = await Replies.begin(decoder);
  await decoder.states.truncate(2, 0);
  await decoder.states.copy(2, 0);
  await decoder.states.truncate(2, PROMPT);
  await replies.until(4, 3);
  const state = await decoder.states.saveWhole(0);
  t.equal(state.length, PROMPT + 3);
  state.dispose();
});

t.test(
  'a reply whose logits are not numbers ends with a fault, and neither its neighbours nor its sequence',
  async (t) => {
    const file = join(t.testdir(), 'overflow.gguf');
    await writeFile(file, await withoutEmbedding(SPOILT));
    for (const samplings of [[], SEEDED, PENALIZED]) {
      const { decoder } = await bench(t, 1, undefined, file);
      const plain = await (await Replies.begin(decoder, samplings)).until(20);
      for (const [way, last] of spoilt(decoder)) {
        const replies = await Replies.begin(decoder, samplings);
        await replies.until(8, 4);
        const parts = SEQUENCES.map((sequence): StepPart => {
          const tokens = Uint32Array.from(replies.said[sequence]?.slice(-1) ?? []);
          return sequence === 1 ? last : { kind: 'sample', sequence, tokens, sampler: replies.sampler(sequence) };
        });
        const results = await decodeOnce(decoder, parts);
        if (last.kind === 'sample') last.sampler.dispose();
        t.match(results[1], { kind: 'fault', reason: 'its logits are not numbers' }, way);
        for (const sequence of [0, 2]) {
          const next = { kind: 'token', token: plain.said[sequence]?.[replies.length] };
          t.match(results[sequence], next, 'the neighbours go on, with the random numbers of their seeds');
        }
        const again = await (await Replies.begin(decoder, samplings)).until(20);
        t.same([again.fault, again.said], [undefined, plain.said], 'its cells spoil nothing that comes after');
      }
    }
  },
);

t.test('a reply whose logits are not numbers in a later step of a run has the tokens before', async (t) => {
  const file = join(t.testdir(), 'overflow.gguf');
  await writeFile(file, await withoutEmbedding(SPOILT));
  const { decoder } = await bench(t, 1, undefined, file);
  const plain = await (await Replies.begin(decoder)).until(20);
  const replies = await Replies.begin(decoder);
  // All steps of a run are reported together.
  replies.everyMs = 1e6;
  const sampler = replies.sampler(1);
  if (!(sampler instanceof BatchSampler)) throw new Error('another sampler');
  const text = [101, 102, 103, SPOILT];
  sampler.freely.picker.follow(Int32Array.from(text));
  await replies.until(20, 20);
  t.equal(replies.fault, 'its logits are not numbers');
  t.same(replies.said[1]?.slice(1), text);
  for (const i of [0, 2])
    t.same(replies.said[i], plain.said[i]?.slice(0, 2 + text.length), 'and so have its neighbours');
  const again = await (await Replies.begin(decoder)).until(20);
  t.same([again.fault, again.said], [undefined, plain.said], 'its cells spoil nothing that comes after');
});

t.test('a reply whose logits are not numbers after a draft that came ends with a fault', async (t) => {
  const file = join(t.testdir(), 'overflow.gguf');
  await writeFile(file, await withoutEmbedding(SPOILT));
  await cpuLlama(1);
  const addon = engineAddon() as { RaStepCosts: EngineAddon['RaStepCosts'] };
  const Own = addon.RaStepCosts;
  t.teardown(() => (addon.RaStepCosts = Own));
  // Three drafts in each step that may have some.
  addon.RaStepCosts = class extends Own {
    constructor(alone: Float64Array) {
      super(alone, 1);
    }
  };
  // With flash attention the rows before a token are not computed from its cells.
  const { decoder } = await bench(t, 1, undefined, file, true);
  const plain = await (await Replies.begin(decoder)).until(20);
  const text = [101, 102, 103, SPOILT];
  const draftFrom = Uint32Array.of(...text, ...Array.from({ length: PROMPT - text.length }, (_, i) => 200 + i));
  for (const way of ['free', 'within the step', 'by the thread'] as const) {
    const replies = await Replies.begin(decoder);
    const sampler = decoder.sampler({ ...GREEDY, draftFrom });
    if (way !== 'free') sampler.constrain(ANYTHING, []);
    const part = (tokens: readonly number[]): Extract<StepPart, { kind: 'sample' }> => {
      return { kind: 'sample', sequence: 1, tokens: Uint32Array.from(tokens), sampler };
    };
    const { constraint, freely } = samplerOf(part([]));
    if (way === 'by the thread') constraint.goToMasks();
    freely.picker.follow(Int32Array.from(text));
    for (const tokens of [[100], [101]]) {
      await sampler.pending;
      await decodeOnce(decoder, [part(tokens)]);
    }
    await sampler.pending;
    const parts = SEQUENCES.map((sequence): StepPart => {
      const tokens = Uint32Array.from(replies.said[sequence]?.slice(-1) ?? []);
      return sequence === 1 ? part([102]) : { kind: 'sample', sequence, tokens, sampler: replies.sampler(sequence) };
    });
    const heard: PartResult[][] = SEQUENCES.map(() => []);
    const run = { most: SEQUENCES.map(() => 20), everyMs: 0, once: true };
    for (let running = decoder.step(parts, run), isOver = false; !isOver;) {
      const { done, value } = await running.next();
      for (const [i, result] of value.entries()) if (result.kind !== 'none') heard[i]?.push(result);
      isOver = done === true;
    }
    sampler.dispose();
    t.match(heard[1]?.at(-1), { kind: 'fault', reason: 'its logits are not numbers' }, way);
    for (const sequence of [0, 2]) t.match(heard[sequence], [{ token: plain.said[sequence]?.[1] }], 'its neighbours');
    const again = await (await Replies.begin(decoder)).until(20);
    t.same([again.fault, again.said], [undefined, plain.said], 'its cells spoil nothing that comes after');
  }
});

t.test('nothing is learned of the time of steps from one whose logits are not numbers', async (t) => {
  const file = join(t.testdir(), 'overflow.gguf');
  await writeFile(file, await withoutEmbedding(SPOILT));
  const { decoder } = await bench(t, 1, undefined, file);
  // The expected time of a step after each poll that found some, and of each run the one that it began with.
  const begins: number[] = [];
  let after: number[] = [];
  const polled = Reflect.get<StepPolls, 'polled'>(StepPolls.prototype, 'polled');
  t.teardown(() => (StepPolls.prototype.polled = polled));
  let isNew = true;
  StepPolls.prototype.polled = function (now, steps) {
    if (isNew) begins.push(this.stepMs);
    isNew = false;
    polled.call(this, now, steps);
    if (steps > 0) after.push(this.stepMs);
  };
  const run = async (text: readonly number[]): Promise<void> => {
    const replies = await Replies.begin(decoder);
    replies.everyMs = 1e6;
    const part: StepPart = { kind: 'sample', sequence: 1, tokens: new Uint32Array(0), sampler: replies.sampler(1) };
    samplerOf(part).freely.picker.follow(Int32Array.from(text));
    [isNew, after] = [true, []];
    await replies.until(20, 20);
  };
  await run([101, 102, 103, 104, SPOILT]);
  // The step that failed is polled by itself, after the others, which one poll or several found.
  const learned = after.at(-2);
  t.ok(after.length >= 2, `${after.length} polls`);
  await run([]);
  t.same(begins, [Infinity, learned]);
});

t.test('where no sequence holds numbers alone, all are cleared', async (t) => {
  const file = join(t.testdir(), 'overflow.gguf');
  await writeFile(file, await withoutEmbedding(SPOILT));
  const { decoder } = await bench(t, 1, undefined, file);
  const plain = await (await Replies.begin(decoder)).until(20);
  await Replies.begin(decoder);
  const state = await decoder.states.saveWhole(1);
  const samplers = SEQUENCES.map(() => decoder.sampler(GREEDY));
  const results = await decodeOnce(
    decoder,
    SEQUENCES.map((sequence, i) => ({
      kind: 'sample',
      sequence,
      tokens: Uint32Array.of(SPOILT),
      sampler: samplers[i] as Sampler,
    })),
  );
  for (const sampler of samplers) sampler.dispose();
  for (const { kind } of results) t.equal(kind, 'fault');
  await t.rejects(decoder.states.restoreWhole(1, state), /cells that hold no number/, 'its other cells would stay');
  const again = await (await Replies.begin(decoder)).until(20);
  t.same([again.fault, again.said], [undefined, plain.said]);
  state.dispose();
});

t.test('a recurrent state that is no number is not what later sequences begin with', async (t) => {
  for (const name of ['mamba2', 'qwen3next']) {
    const family = FAMILIES.find((each) => each.name === name);
    if (!family) throw new Error(`no family ${name}`);
    const file = join(t.testdir(), `${name}.gguf`);
    await writeFile(file, await withoutEmbedding(SPOILT, await family.model()));
    const { decoder } = await bench(t, 1, undefined, file);
    const plain = await (await Replies.begin(decoder)).until(6);
    await Replies.begin(decoder);
    const sampler = decoder.sampler(GREEDY);
    const [result] = await decodeOnce(decoder, [
      { kind: 'sample', sequence: 1, tokens: Uint32Array.of(SPOILT), sampler },
    ]);
    sampler.dispose();
    t.equal(result?.kind, 'fault', name);
    for (let round = 0; round < 3; round += 1) {
      const again = await (await Replies.begin(decoder)).until(6);
      t.same([again.fault, again.said], [undefined, plain.said], `round ${round}`);
    }
  }
});

t.test('numbers that llama.cpp takes for something else: the largest seed, and temperatures near 0', async (t) => {
  const { decoder } = await bench(t);
  const said = async (sampling: Partial<Sampling>): Promise<number[][]> =>
    (await (await Replies.begin(decoder, Array<Sampling>(3).fill({ ...GREEDY, topK: 40, ...sampling }))).until(6)).said;
  const fixed = { temperature: 1, seed: 2 ** 32 - 1 };
  t.same(await said(fixed), await said(fixed));
  const greedy = await said({});
  for (const temperature of [1e-30, 1e-40, 5e-324]) t.same(await said({ temperature }), greedy, String(temperature));
});

/** Each way in which logits are read, of sequence 1, and whether it is found that they are not numbers. */
function spoilt(decoder: BatchDecoder): [way: string, part: Read][] {
  const head = { sequence: 1, tokens: Uint32Array.of(SPOILT) };
  const sampled = (sampling: Partial<Sampling>, gbnf?: string): Read => {
    const sampler = decoder.sampler({ ...GREEDY, ...sampling });
    if (gbnf !== undefined) sampler.constrain(gbnf, []);
    return { kind: 'sample', ...head, sampler };
  };
  return [
    ['a reply', sampled({})],
    ['a reply with top_k', sampled({ topK: 40, temperature: 1 })],
    ['a reply with min_p', sampled({ minP: 0.1, temperature: 1 })],
    ['a reply under a grammar', sampled({}, 'root ::= [a-z]+')],
    ['a decision', { kind: 'score', ...head, labels: Uint32Array.of(97, 98) }],
  ];
}

/** A model, by default the test model, with an embedding of this token that is no number in any format. */
async function withoutEmbedding(token: number, model?: string): Promise<Buffer> {
  const path = model ?? (await testModel());
  const bytes = await readFile(path);
  const name = Buffer.from('token_embd.weight');
  const at = bytes.indexOf(name) + name.length;
  const [width, tokens] = [Number(bytes.readBigUInt64LE(at + 4)), Number(bytes.readBigUInt64LE(at + 12))];
  const offset = Number(bytes.readBigUInt64LE(at + 24));
  const { tensorInfo = [], totalTensorInfoSize, totalMetadataSize } = await readGgufFileInfo(path);
  const data = Math.ceil((totalMetadataSize + (totalTensorInfoSize ?? 0)) / 32) * 32;
  const others = tensorInfo.map((tensor) => Number(tensor.offset)).filter((other) => other > offset);
  const row = Math.floor((Math.min(...others, bytes.length - data) - offset) / tokens);
  t.ok(width > 0 && row > width / 2, `${row} bytes a row of ${width}`);
  return bytes.fill(0xff, data + offset + token * row, data + offset + (token + 1) * row);
}
