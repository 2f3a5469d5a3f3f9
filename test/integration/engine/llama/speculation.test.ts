/** Speculation by prompt lookup: replies have the tokens that they have without it, in fewer decodes where text repeats. */
import t, { type Test } from 'tap';
import { callRules } from '../../../../engine/grammar/calls.js';
import { grammarText } from '../../../../engine/grammar/gbnf.js';
import { schemaGrammar } from '../../../../engine/grammar/schema.js';
import { DRAFT_LENGTHS, engineAddon, type EngineAddon } from '../../../../engine/llama/addon.js';
import { loadRuntime } from '../../../../engine/llama/runtime.js';
import { ALL_ACCOUNTS } from '../../../../engine/protocol/cache-key.js';
import type { GenerateJob, Output, ScoreJob } from '../../../../engine/protocol/jobs.js';
import type { Speculation } from '../../../../engine/protocol/setup.js';
import { decodeOnce, type PartResult } from '../../../../engine/scheduler/decoder.js';
import type { Emit } from '../../../../engine/scheduler/outbox.js';
import { StepLoop } from '../../../../engine/scheduler/step-loop.js';
import { EMBEDDED_MODEL } from '../../../../sidecar/engine-client/weight-files.js';
import { sameDistribution } from '../../../support/chi-square.js';
import { FAMILIES } from '../../../support/families/families.js';
import { generateJob } from '../../../support/generate-job.js';
import { replyBySeed } from '../../../support/known-replies.js';
import { cpuLlama } from '../../../support/llama.js';
import { cases, rounds } from '../../../support/long-form.js';
import { testModel } from '../../../support/models.js';
import { RealLoop, type RealLoopOptions } from '../../../support/real-loop.js';

t.setTimeout(rounds({ short: 60_000, long: 1_800_000 }));

const llama = await cpuLlama(1);
const model = await llama.loadModel({ modelPath: await testModel() });
t.teardown(() => llama.dispose());

/** What a token of the model's text that ends a reply is. */
const END = Number(model.tokens.eos);

/** 200 tokens, no two of which are equal, and whose numbers have as many digits, so that no text is within another one. */
const OLD = Array.from({ length: 200 }, (_, i) => 1000 + ((i * 37) % 499));
/** The same with some replaced, some left out and some more. */
const EDITED = [
  ...OLD.slice(0, 60),
  1558,
  1559,
  ...OLD.slice(61, 120),
  ...OLD.slice(126, 180),
  1557,
  ...OLD.slice(180),
];

/** For samples: tokens of a reply, and those of them that are compared. */
const REPLY = 10;
const PLACES = [2, 5, 9];
/** For prompts and replies of some hundred tokens each. */
const LONG = { contextPerSeat: 2048 } as const;
const LETTERS = { markers: [], grammar: { gbnf: 'root ::= [a-z ]+' } };
const SAMPLINGS = cases<Partial<GenerateJob>>(
  [
    { temperature: 0.3 },
    { temperature: 0.6 },
    { temperature: 1 },
    { temperature: 1, topP: 0.9 },
    { temperature: 0.6, frequencyPenalty: 0.3, presencePenalty: 0.3 },
    { temperature: 0.6, format: LETTERS },
  ],
  (_, sampling) => sampling < 3,
);
/**
 * Series of seeds, 100,000 tokens of each sampling in all, in the long form: replies at once, and how many replies. One that is alone in
 * its steps has its number of drafts by counts, several by times, or as `drafts` says.
 */
const SERIES: readonly { readonly together: number; readonly replies: number; readonly drafts?: 3 }[] = cases(
  [
    { together: 1, replies: rounds({ short: 60, long: 1000 }) },
    { together: 4, replies: 1400 },
    { together: 32, replies: 7616, drafts: 3 },
  ],
  (_, series) => series === 0,
);

async function loop(t: Test, options: RealLoopOptions = {}): Promise<RealLoop> {
  const made = await RealLoop.make(model, { speculation: 'auto', prefillTokensPerStep: 256, ...options });
  t.teardown(() => made.dispose());
  return made;
}

/** With this number of drafts in each step that may have some, whatever they cost. */
async function draftingLoop(t: Test, drafts: 3 | 7 | 31, options: RealLoopOptions = {}): Promise<RealLoop> {
  const addon = engineAddon() as { RaStepCosts: EngineAddon['RaStepCosts'] };
  const Own = addon.RaStepCosts;
  addon.RaStepCosts = class extends Own {
    constructor(alone: Float64Array) {
      super(alone, DRAFT_LENGTHS.indexOf(drafts));
    }
  };
  const made = await loop(t, options);
  addon.RaStepCosts = Own;
  return made;
}

function known(t: Test, ...texts: readonly (readonly number[])[]): void {
  t.teardown(replyBySeed(new Map(texts.map((text, seed) => [seed, text]))));
}

const edit = (more: Parameters<typeof generateJob>[1] = {}) =>
  generateJob(OLD, { maxTokens: EDITED.length, seed: 0, ...more });

t.test('a reply whose limit is raised in parts has the same tokens, and none past the last one', async (t) => {
  known(t, EDITED);
  for (const speculation of ['off', 'auto'] as const) {
    const made = await loop(t, { speculation });
    for (const last of [111, 20]) {
      let tokens = 20;
      made.nextLimit = () => {
        tokens = Math.min(last, tokens + 13);
        return { tokens, last: tokens === last };
      };
      const cut = await made.run(edit({ limit: 20 }));
      t.same(cut.tokens, [EDITED.slice(0, last)], speculation);
      if (speculation === 'off') t.ok(cut.evaluated <= OLD.length + last, `${cut.evaluated} evaluated`);
    }
  }
});

t.test('a reply that runs alone has the same decodes whenever its limit is raised', async (t) => {
  known(t, EDITED);
  const made = await loop(t);
  const decodes: number[][] = [];
  // The last ones are so many that it waits at each limit.
  for (const turns of [0, 400, 40_000]) {
    let tokens = 100;
    made.nextLimit = async () => {
      for (let turn = 0; turn < turns; turn += 1) await new Promise(setImmediate);
      tokens = Math.min(EDITED.length, tokens + 50);
      return { tokens, last: tokens === EDITED.length };
    };
    const ran = await made.run(edit({ limit: tokens }));
    t.same(ran.tokens, [EDITED]);
    decodes.push([ran.decodes, ran.drafted, ran.accepted]);
  }
  t.same(decodes.slice(1), [decodes[0], decodes[0]]);
});

t.test('the tokens that a reply has without drafts, greedy, by seed, with top_p and penalties', async (t) => {
  const [plain, drafting] = [await loop(t, { speculation: 'off' }), await loop(t)];
  const prompt = Array.from({ length: 80 }, (_, i) => 97 + ((i * 7) % 20));
  let accepted = 0;
  for (const sampling of [
    { temperature: 0 },
    { temperature: 0.3 },
    { temperature: 0.8, topP: 0.9 },
    { temperature: 0.3, topK: 40, frequencyPenalty: 0.1, presencePenalty: 0.1 },
  ]) {
    for (const seed of [1, 2]) {
      const job = generateJob(prompt, { maxTokens: 150, seed, ...sampling });
      const [one, other] = [await plain.run(job), await drafting.run(job)];
      t.same(other.tokens, one.tokens, JSON.stringify({ seed, ...sampling }));
      t.equal(one.drafted, 0);
      accepted += other.accepted;
    }
  }
  t.ok(accepted > 100, `${accepted} drafts came`);
});

t.test('an edited text takes a fraction of the decodes', async (t) => {
  known(t, EDITED);
  const { tokens, decodes, drafted, accepted } = await (await loop(t)).run(edit());
  t.same(tokens, [EDITED]);
  t.ok(decodes < EDITED.length / 4, `${decodes} decodes for ${EDITED.length} tokens`);
  t.equal(accepted, EDITED.length - decodes, 'each decode gave one token besides');
  t.ok(accepted > drafted / 2, `${accepted} of ${drafted}`);
});

t.test('the state after a reply is that of its tokens: the next turn starts from it', async (t) => {
  known(t, EDITED);
  const turn = generateJob([...OLD, ...EDITED, 1500], { maxTokens: 40, temperature: 0, seed: 9 });
  const replies = [];
  for (const speculation of ['off', 'auto'] as const) {
    const made = await loop(t, { speculation, prefixReuse: 'any' });
    await made.run(edit());
    const next = await made.run(turn);
    t.ok(next.cached >= OLD.length + EDITED.length - 1, `${next.cached} cached`);
    replies.push(next.tokens);
  }
  t.same(replies[1], replies[0]);
});

t.test(
  'it ends at its most tokens, at an end token and at a stop string, wherever in the drafts that is',
  async (t) => {
    const text = [...OLD];
    known(t, text);
    const made = await loop(t, { end: END });
    for (let at = 1; at < 100; at += rounds({ short: 9, long: 1 })) {
      const [cut] = (await made.run(edit({ maxTokens: at }))).tokens;
      t.same(cut, OLD.slice(0, at), `${at} tokens`);
    }
    // One step drafts 63 at most, and all places within its drafts occur.
    for (let at = 20; at < 90; at += rounds({ short: 4, long: 1 })) {
      const stops = [`${OLD[at]} ${OLD[at + 1]}`];
      const [cut] = (await made.run(edit({ stops, maxTokens: 110 }))).tokens;
      t.same(cut, OLD.slice(0, at), `a stop string at ${at}`);
    }
    for (let at = 20; at < 90; at += rounds({ short: 8, long: 1 })) {
      t.same(await ended(made, text, at), [OLD.slice(0, at), 0], `an end token at ${at}`);
    }
  },
);

/** The tokens of a reply that ends where the prompt's text says that it does, and of a reply after it what it was given too many. */
async function ended(made: RealLoop, text: number[], at: number): Promise<[readonly number[] | undefined, number]> {
  text[at] = END;
  const prompt = [...OLD.slice(0, at), END, ...OLD.slice(at + 1)];
  const { tokens, drafted, accepted } = await made.run(generateJob(prompt, { maxTokens: 110, seed: 0 }));
  text[at] = OLD[at] ?? 0;
  return [tokens[0], Number(accepted > drafted)];
}

t.test('several replies: each its own text, also beside one that repeats nothing, and n of one prompt', async (t) => {
  const other = [...OLD.slice(50, 150), 1556, ...OLD.slice(0, 50)];
  const novel = Array.from({ length: 120 }, (_, i) => 100 + i);
  known(t, EDITED, other, novel);
  const made = await loop(t);
  const texts = [EDITED, other, novel];
  const ran = await Promise.all(
    texts.map((text, seed) => made.run(generateJob(OLD, { maxTokens: text.length, seed }))),
  );
  t.same(
    ran.map(({ tokens }) => tokens[0]),
    texts,
  );
  t.ok(ran.some(({ accepted }) => accepted > 0));
  const { tokens } = await made.run(generateJob(OLD, { n: 3, seats: 3, maxTokens: 100, seed: 0 }));
  t.same(
    tokens,
    texts.map((text) => text.slice(0, 100)),
  );
});

t.test('a reply near its end has no tokens too many, and the others of the step are drafted for', async (t) => {
  known(t, EDITED, EDITED);
  const { decoder } = await loop(t);
  const replies = [0, 1].map((sequence) => ({
    kind: 'sample' as const,
    sequence,
    sampler: decoder.sampler({ ...edit({ seed: sequence }), draftFrom: Uint32Array.from(OLD) }),
    tokens: Uint32Array.from(OLD.slice(-1)),
    said: [] as number[],
  }));
  for (const { sequence } of replies)
    await decodeOnce(decoder, [{ kind: 'prefill', sequence, tokens: Uint32Array.from(OLD.slice(0, -1)) }]);
  let most = 0;
  while ((replies[0]?.said.length ?? 0) < 100) {
    const run = { most: [100, 2], everyMs: 0, once: true };
    const first = replies[0]?.said.length === 0;
    const running = decoder.step(replies, first ? undefined : run);
    const heard = replies.map((): number[] => []);
    // A run that is halted on a busy machine may have made more than one step.
    for (let isOver = false; !isOver;) {
      const { done, value } = await running.next();
      // The last results are none where all were told before.
      for (const [i, result] of value.entries()) {
        if (result.kind === 'token') heard[i]?.push(result.token, ...(result.then ?? []));
        else if (result.kind !== 'none') throw new Error(`no token but ${result.kind}`);
      }
      isOver = done === true;
    }
    for (const [i, reply] of replies.entries()) {
      const tokens = heard[i] ?? [];
      t.ok(i === 0 || tokens.length <= 2, 'as many as it may have');
      if (i === 0) most = Math.max(most, tokens.length);
      reply.said.push(...tokens);
      reply.tokens = Uint32Array.of(...tokens.slice(-1));
    }
  }
  t.ok(most > 3, `${most} tokens in a step`);
  for (const { said, sampler } of replies) {
    t.same(said, EDITED.slice(0, said.length));
    sampler.dispose();
  }
});

t.test(
  'drafts that have no room in one decode come from two, and where the second fails nothing was picked',
  async (t) => {
    const texts = Array.from({ length: 4 }, () => OLD);
    known(t, ...texts);
    // 31 drafts in each step that may have some, of which a decode of 68 tokens has room for two sequences' ones.
    const made = await draftingLoop(t, 31, { prefillTokensPerStep: 64 });
    const { decoder } = await draftingLoop(t, 31, { prefillTokensPerStep: 64 });
    const step = made.decoder.step.bind(made.decoder);
    let most = 0;
    made.decoder.step = async function* (parts, run) {
      const running = step(parts, run);
      for (;;) {
        const { value, done } = await running.next();
        for (const each of parts.length === texts.length ? value : [])
          if (each.kind === 'token' && each.speculation)
            most = Math.max(most, each.speculation.drafted / each.speculation.steps);
        if (done === true) return value;
        yield value;
      }
    };
    const ran = await Promise.all(texts.map((_, seed) => made.run(generateJob(OLD, { maxTokens: OLD.length, seed }))));
    t.same(
      ran.map(({ tokens }) => tokens[0]),
      texts,
    );
    t.ok(most > 17, `${most} drafts of each, where one decode has room for 17 tokens of each`);

    const picked: PartResult[][] = [];
    for (const spoilt of [true, false]) {
      const parts = texts.map((_, sequence) => ({
        kind: 'sample' as const,
        sequence,
        sampler: decoder.sampler({
          ...edit({ seed: 10 + sequence }),
          frequencyPenalty: 1,
          draftFrom: Uint32Array.from(OLD),
        }),
        tokens: Uint32Array.of(spoilt && sequence === 3 ? 1e6 : (OLD.at(-1) ?? 0)),
      }));
      for (const { sequence } of parts) {
        await decoder.states.truncate(sequence, 0);
        for (let at = 0; at < OLD.length; at += 50)
          await decodeOnce(decoder, [{ kind: 'prefill', sequence, tokens: Uint32Array.from(OLD.slice(at, at + 50)) }]);
      }
      // Each alone where none is spoilt, as they are made again after the fault.
      const steps = spoilt ? [parts] : parts.map((part) => [part]);
      const results: PartResult[] = [];
      for (const step of steps) {
        const run = spoilt ? { most: step.map(() => 100), everyMs: 0, once: true } : undefined;
        results.push(...(await decoder.step(step, run).next()).value);
      }
      picked.push(results);
      for (const { sampler } of parts) sampler.dispose();
    }
    const [after = [], without = []] = picked;
    t.equal(after[3]?.kind, 'fault');
    t.same(
      after.slice(0, 3).map((result) => result.kind === 'token' && result.token),
      without.slice(0, 3).map((result) => result.kind === 'token' && result.token),
    );
  },
);

t.test('a step of several replies drafts no more than it has time for', async (t) => {
  known(t, EDITED, EDITED);
  const draftedIn = async (stepMs: number): Promise<number> => {
    const made = await loop(t, { stepMs });
    const step = made.decoder.step.bind(made.decoder);
    let drafted = 0;
    made.decoder.step = async function* (parts, run) {
      const running = step(parts, run);
      for (;;) {
        const { value, done } = await running.next();
        // A reply that is alone in its step drafts by counts alone.
        for (const each of parts.length > 1 ? value : [])
          if (each.kind === 'token') drafted += each.speculation?.drafted ?? 0;
        if (done === true) return value;
        yield value;
      }
    };
    const both = await Promise.all([0, 1].map((seed) => made.run(edit({ seed }))));
    t.same(
      both.map(({ tokens }) => tokens[0]),
      [EDITED, EDITED],
    );
    return drafted;
  };
  t.equal(await draftedIn(0.001), 0);
  t.ok((await draftedIn(1e9)) > 0);
});

t.test('drafts of another source than the text: they may be right or wrong, and the tokens are the same', async (t) => {
  const novel = Array.from({ length: 120 }, (_, i) => 100 + ((i * 31) % 400));
  known(t, novel);
  const addon = engineAddon() as { RaDrafts: EngineAddon['RaDrafts'] };
  const Own = addon.RaDrafts;
  t.teardown(() => (addon.RaDrafts = Own));
  const decodes: number[] = [];
  for (const foretold of [novel, novel.map((token, i) => (i % 10 === 9 ? 7 : token)), novel.map(() => 7)]) {
    addon.RaDrafts = class extends Own {
      constructor(prompt: Uint32Array) {
        super(Uint32Array.of(...prompt, ...foretold), prompt.length, false, 0.98);
      }
    };
    const made = await loop(t);
    const ran = await made.run(generateJob(OLD, { maxTokens: novel.length, seed: 0 }));
    t.same(ran.tokens, [novel]);
    t.equal(ran.accepted, novel.length - ran.decodes);
    decodes.push(ran.decodes);
  }
  const [right = 0, most = 0, none = 0] = decodes;
  t.ok(right < most && most < none && none === novel.length, decodes.join(' '));
});

t.test('a cancelled reply leaves nothing that changes another one', async (t) => {
  known(t, EDITED, EDITED);
  const made = await loop(t);
  const cancelled = made.start(edit({ seed: 1 }));
  const kept = made.start(edit());
  await cancelled.speaks;
  cancelled.cancel();
  t.same((await kept.ran).tokens, [EDITED]);
  t.same((await made.run(edit())).tokens, [EDITED]);
});

t.test('a reply that runs alone has the same decodes each time, whatever calls come from outside', async (t) => {
  known(t, EDITED);
  const made = await loop(t);
  const { decodes, drafted } = await made.run(edit());
  const disturbed = made.run(edit());
  const state = { over: false };
  void disturbed.then(() => (state.over = true));
  while (!state.over) {
    await made.forget('another account');
    await new Promise(setImmediate);
  }
  const again = await disturbed;
  t.same([again.tokens, again.decodes, again.drafted], [[EDITED], decodes, drafted]);
});

t.test('an isolated decision beside a reply with drafts has the numbers that it has without', async (t) => {
  known(t, EDITED);
  const decision: ScoreJob = {
    scope: ALL_ACCOUNTS,
    isolate: true,
    seats: 1,
    temperature: 1,
    // What the lookup would draft from.
    input: Uint32Array.from([...OLD, ...OLD.slice(0, 20)]),
    questions: [0, 1].map((i) => ({
      tail: Uint32Array.from(OLD.slice(20, 24 + i)),
      labels: Uint32Array.of(1, 2, 3),
      temperature: 1,
    })),
  };
  const alone = await (await loop(t, { speculation: 'off' })).run(decision);
  const made = await loop(t);
  const [replied, decided] = await Promise.all([made.run(edit()), made.run(decision)]);
  t.same([replied.tokens, decided.drafted], [[EDITED], 0]);
  t.ok(replied.accepted > 0);
  t.strictSame(
    decided.answers.map(({ probabilities }) => probabilities),
    alone.answers.map(({ probabilities }) => probabilities),
  );
});

t.test('measured times decide for a reply alone that may vary, and for no other one', async (t) => {
  const text = [...model.tokenize('the cat and the dog and the bird and the fish '.repeat(4))].map(Number);
  known(t, EDITED, text);
  const addon = engineAddon() as { RaStepCosts: EngineAddon['RaStepCosts'] };
  const Own = addon.RaStepCosts;
  // As if drafts had been measured, and took a thousand seconds.
  addon.RaStepCosts = class extends Own {
    constructor(alone: Float64Array) {
      super(alone);
      // A single slow step says little.
      for (let i = 0; i < 100; i += 1)
        for (const choice of DRAFT_LENGTHS.keys()) this.learn(1, choice, choice === 0 ? 1 : 1e6);
    }
  };
  const made = await loop(t);
  addon.RaStepCosts = Own;
  for (const job of [edit(), generateJob(text, { maxTokens: text.length, seed: 1, format: LETTERS })]) {
    const [repeats, varies] = [await made.run(job), await made.run({ ...job, mayVary: true })];
    t.same(varies.tokens, repeats.tokens);
    t.ok(repeats.drafted > 0);
    t.equal(varies.drafted, 0);
  }
});

t.test('under a grammar the same tokens, and a draft that it forbids ends there', async (t) => {
  const text = [...model.tokenize('the cat and the dog and the bird and the fish '.repeat(4))].map(Number);
  known(t, text);
  const [plain, drafting] = [await loop(t, { speculation: 'off' }), await loop(t)];
  const asked = { maxTokens: text.length, seed: 0, format: LETTERS };
  const ran = await drafting.run(generateJob(text, asked));
  t.same(ran.tokens, [text]);
  t.ok(ran.decodes < text.length / 3, `${ran.decodes} decodes for ${text.length} tokens`);
  t.equal(ran.accepted, text.length - ran.decodes);
  // Tokens of the model's own, after a prompt with what the grammar forbids.
  const forbidden = [...model.tokenize('the cat {and} the DOG and the 9 birds. '.repeat(4))].map(Number);
  let accepted = 0;
  for (const sampling of [
    { temperature: 0 },
    { temperature: 0.5 },
    { temperature: 1, topP: 0.9, frequencyPenalty: 0.2 },
  ]) {
    const job = generateJob(forbidden, { maxTokens: 100, seed: 3, format: LETTERS, ...sampling });
    const [one, other] = [await plain.run(job), await drafting.run(job)];
    t.same(other.tokens, one.tokens, JSON.stringify(sampling));
    accepted += other.accepted;
  }
  t.ok(accepted > 0, `${accepted} drafts came`);
  const both = [generateJob(text, asked), edit({ seed: 0, maxTokens: 50 })].map((job) => drafting.run(job));
  t.same(
    (await Promise.all(both)).map(({ tokens }) => tokens[0]),
    [text, text.slice(0, 50)],
    'beside a reply without one',
  );
});

t.test('a reply whose masks come from another thread has its drafts dropped until its mask is there', async (t) => {
  const text = [...model.tokenize('the cat and the dog and the bird and the fish '.repeat(4))].map(Number);
  known(t, text, text);
  // For one of two replies alone no drafts would be worth it.
  const made = await draftingLoop(t, 7);
  // Its first places are new ones, while the other reply's grammar is looked at within the step.
  const masked = { format: heldByThread('root ::= [a-z ]{40} [a-z ]+'), seed: 1 };
  const both = await Promise.all(
    [{ format: LETTERS, seed: 0 }, masked].map((more) =>
      made.run(generateJob(text, { maxTokens: text.length, ...more })),
    ),
  );
  t.same(
    both.map(({ tokens }) => tokens[0]),
    [text, text],
  );
  t.ok(both[1]!.drafted > 0, 'it shared steps with drafts');
});

t.test(
  'a reply that masks of the thread hold has drafts as far as its masks are known, and the same tokens',
  async (t) => {
    const text = [...model.tokenize('the cat and the dog and the bird and the fish '.repeat(4))].map(Number);
    const forget = replyBySeed(new Map([[0, text]]));
    const [plain, drafting] = [await loop(t, { speculation: 'off' }), await loop(t)];
    const format = heldByThread('root ::= [a-z ]+');
    const ran = await drafting.run(generateJob(text, { maxTokens: text.length, seed: 0, format }));
    forget();
    t.same(ran.tokens, [text]);
    t.ok(ran.decodes < text.length / 3, `${ran.decodes} decodes for ${text.length} tokens`);
    t.equal(ran.accepted, text.length - ran.decodes);
    const forbidden = [...model.tokenize('the cat {and} the DOG and the 9 birds. '.repeat(4))].map(Number);
    let accepted = 0;
    for (const sampling of [
      { temperature: 0 },
      { temperature: 0.5 },
      { temperature: 0.5, mayVary: true },
      { temperature: 1, topP: 0.9, frequencyPenalty: 0.2 },
    ]) {
      const job = generateJob(forbidden, { maxTokens: 100, seed: 3, format, ...sampling });
      const [one, other] = [await plain.run(job), await drafting.run(job)];
      t.same(other.tokens, one.tokens, JSON.stringify(sampling));
      accepted += other.accepted;
    }
    t.ok(accepted > 0, `${accepted} drafts came`);
  },
);

t.test(
  'a reply in a JSON schema that quotes its prompt has the same tokens, by either way of holding it',
  async (t) => {
    const { prompt, reply, gbnf } = quoted();
    known(t, reply, reply);
    const job = (more: Partial<GenerateJob>): GenerateJob =>
      generateJob(prompt, { maxTokens: reply.length, seed: 0, ...more });
    const within = await (await loop(t, LONG)).run(job({ format: { markers: [], grammar: { gbnf } } }));
    t.same(within.tokens, [reply]);
    const made = await loop(t, LONG);
    const format = heldByThread(gbnf);
    const first = await made.run(job({ format }));
    t.same(first.tokens, [reply]);
    t.ok(first.decodes < 0.6 * reply.length, `${first.decodes} decodes for ${reply.length} tokens`);
    t.equal(first.accepted, reply.length - first.decodes);
    // By then the masks of all places are known.
    const again = await made.run(job({ format }));
    t.same([again.tokens, again.decodes, again.drafted], [[reply], first.decodes, first.drafted], 'it repeats');
    const fixed = await draftingLoop(t, 7, LONG);
    await fixed.run(job({ format }));
    const [alone, other] = [job({ format, mayVary: true }), job({ format, seed: 1 })];
    const varies = await fixed.run(alone);
    t.same(varies.tokens, [reply]);
    const repeats = await fixed.run(job({ format }));
    t.ok(varies.drafted > repeats.drafted, `${varies.drafted} drafted, ${repeats.drafted} where it is to repeat`);
    const both = await Promise.all([job({ format }), other].map((each) => fixed.run(each)));
    t.same(
      both.map(({ tokens }) => tokens[0]),
      [reply, reply],
    );
    t.ok(both.every(({ accepted }) => accepted > reply.length / 3));
  },
);

t.test('the embedded model repeats itself under a schema: the same tokens in fewer decodes', async (t) => {
  const item = { type: 'object', properties: { name: { type: 'string' }, n: { type: 'integer' } } };
  const gbnf = grammarOf({ type: 'array', items: { ...item, required: ['name', 'n'] }, minItems: 20 });
  const own = await llama.loadModel({ modelPath: EMBEDDED_MODEL, vocabOnly: true });
  const prompt = [...own.tokenize('[{"name": "red car", "n": 1}, {"name": "blue car", "n": 2}]\n')].map(Number);
  await own.dispose();
  const [off, auto] = [
    await RealLoop.load(EMBEDDED_MODEL, { speculation: 'off' }),
    await RealLoop.load(EMBEDDED_MODEL, { speculation: 'auto' }),
  ];
  t.teardown(() => Promise.all([off, auto].map((each) => each.dispose())));
  for (const format of [heldByThread(gbnf), { markers: [], grammar: { gbnf } }]) {
    const job = generateJob(prompt, { maxTokens: 200, temperature: 0, format });
    const [one, other] = [await off.run(job), await auto.run(job)];
    t.same(other.tokens, one.tokens);
    t.ok(other.accepted > 20, `${other.accepted} drafts of ${other.drafted} came, ${other.decodes} decodes`);
  }
});

/** Held by masks that a thread computes beside the steps, as where a grammar has so many stacks. */
function heldByThread(gbnf: string) {
  return { markers: [], grammar: { gbnf, stacks: 100_000 } };
}

function grammarOf(schema: unknown): string {
  const made = schemaGrammar(schema);
  const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
  if (text.kind !== 'ok') throw new Error(text.why);
  return text.gbnf;
}

/** Sentences, and the JSON of a schema in which most of them are quoted. */
function quoted() {
  const sentences = Array.from(
    { length: 8 },
    (_, i) => `Part ${i * 7} of the ${['red', 'green', 'blue'][i % 3]} pump is worn at its ${i}th bearing`,
  );
  const found = sentences.filter((_, i) => i % 4 !== 1).map((quote, line) => ({ quote, line }));
  const item = { type: 'object', properties: { quote: { type: 'string' }, line: { type: 'integer' } } };
  const gbnf = grammarOf({ type: 'array', items: { ...item, required: ['quote', 'line'] } });
  const tokens = (text: string): number[] => [...model.tokenize(text)].map(Number);
  return { prompt: tokens(sentences.join('. ')), reply: tokens(JSON.stringify(found)), gbnf };
}

t.test('a call that begins within the drafts constrains the tokens after it', async (t) => {
  const syntax = { mark: 'e', open: 'e{"name": "', between: '", "arguments": ', next: '}e{"name": "', close: '}' };
  const rules = callRules(syntax, [{ name: 'go', parameters: { type: 'object', properties: {} } }], {
    single: false,
    answer: false,
  });
  if (rules.kind !== 'ok') throw new Error(rules.why);
  const format = { markers: [], calls: { syntax, functions: ['go'], single: false, gbnf: rules.gbnf } };
  // A call of a function that there is not, which is drafted. The reply begins as the prompt does, up to that function's name.
  const words = Array.from({ length: 60 }, (_, i) => `${'abcdfghiklmno'[i % 13]}${i} `).join('');
  const prompt = [...model.tokenize(`${words}e{"name": "no", "arguments": {"a": 1}} and then no more`)].map(Number);
  const named = prompt.findIndex((_, i) => textOf(prompt.slice(0, i + 1)).includes('"no'));
  t.ok(named > 60 && textOf(prompt.slice(0, named)).includes('e{'), `${named} tokens`);
  const begins = prompt.slice(0, named);
  known(t, begins, begins, begins, begins);
  const all: Output[][] = [];
  for (const speculation of ['off', 'auto'] as const) {
    const asked = { maxTokens: named + 60, temperature: 0.7, format };
    all.push(
      await outputsOf(
        t,
        [0, 1, 2, 3].map((seed) => generateJob(prompt, { seed, ...asked })),
        speculation,
      ),
    );
  }
  const [off = [], auto = []] = all.map((outputs) => outputs.filter(({ kind }) => kind === 'call'));
  t.ok(off.length > 4, `${off.length} parts of calls`);
  t.same(auto, off);
  const texts = all.map((outputs) => outputs.map((output) => (output.kind === 'piece' ? output.text : '')).join(''));
  t.equal(texts[1], texts[0]);
  t.ok(all[1]?.some((output) => output.kind === 'finished' && (output.acceptedTokens ?? 0) > 0));
});

function textOf(tokens: readonly number[]): string {
  return model.detokenize(tokens as Parameters<typeof model.detokenize>[0][number][]);
}

/** Replies with their text, one after another, of an engine of its own. */
async function outputsOf(t: Test, jobs: readonly GenerateJob[], speculation: Speculation): Promise<Output[]> {
  const limits = {
    seats: 1,
    contextPerSeat: 1024,
    prefillTokensPerStep: 256,
    prefillShare: 100,
    prefixReuse: 'off',
    speculation,
  } as const;
  const file = {
    file: await testModel(),
    kind: 'chat',
    threads: 1,
    gpu: false,
    flashAttention: 'auto',
    heartbeatMs: 1000,
  } as const;
  const runtime = await loadRuntime({ ...limits, ...file });
  t.teardown(() => runtime.dispose());
  return await new Promise((resolve) => {
    const outputs: Output[] = [];
    let begun = 0;
    const next = (): void => {
      const job = jobs[begun];
      if (job) loop.generate(++begun, job);
      else resolve(outputs);
    };
    const emit: Emit = (_, more) => {
      outputs.push(...more);
      if (more.some(({ kind }) => kind === 'done' || kind === 'failed')) next();
    };
    const origin = { weights: '', kv: 'f16' };
    const loop = new StepLoop(runtime.decoder, runtime.tokens, { ...limits, origin }, emit);
    next();
  });
}

t.test('nothing is drafted for a model whose state cannot be truncated', async (t) => {
  const family = FAMILIES.find(({ name }) => name === 'mamba2');
  if (!family) throw new Error('no such family');
  const made = await RealLoop.load(await family.model(), { speculation: 'auto' });
  t.teardown(() => made.dispose());
  const prompt = Array.from({ length: 60 }, (_, i) => 40 + (i % 6));
  const { drafted, tokens } = await made.run(generateJob(prompt, { maxTokens: 40, temperature: 0 }));
  t.same([drafted, tokens[0]?.length], [0, 40]);
});

t.test('sampled tokens come as often as without drafts', async (t) => {
  const seats = Math.max(...SERIES.map(({ together }) => together));
  const size = { seats, contextPerSeat: 256, prefixReuse: 'any' } as const;
  const plain = await loop(t, { ...size, speculation: 'off' });
  const [chosen, fixed] = [await loop(t, size), await draftingLoop(t, 3, size)];
  const start = Array.from({ length: 40 }, (_, i) => 97 + ((i * 7) % 20));
  // A loop of its own: otherwise one of those compared would have the prompt's state from other decodes, whose last digits differ.
  const before = await loop(t, { speculation: 'off' });
  for (const sampling of SAMPLINGS) {
    // Its own most probable text is what the model repeats, and what is drafted.
    const most = await before.run(generateJob(start, { ...sampling, maxTokens: 60, temperature: 0 }));
    const prompt = [...start, ...(most.tokens[0] ?? [])];
    // Tokens of one reply depend on each other: those of one place in all replies do not.
    const places = new Map(PLACES.map((place) => [place, new Map<number, [plain: number, drafting: number]>()]));
    for (const [series, { together, replies, drafts }] of SERIES.entries()) {
      let [accepted, tokens] = [0, 0];
      for (let at = 0; at < replies; at += together) {
        const asked = { n: together, seats: together, maxTokens: REPLY, ...sampling };
        // Not of the same seeds, which give the same tokens.
        for (const [of, made] of [plain, drafts === 3 ? fixed : chosen].entries()) {
          const seed = 1 + at + 5_000_000 * of + 10_000_000 * series;
          const ran = await made.run(generateJob(prompt, { seed, ...asked }));
          if (of === 1) [accepted, tokens] = [accepted + ran.accepted, tokens + REPLY * ran.tokens.length];
          for (const reply of ran.tokens)
            for (const [place, counts] of places) {
              const count = counts.get(reply[place] ?? END) ?? [0, 0];
              count[of as 0 | 1] += 1;
              counts.set(reply[place] ?? END, count);
            }
        }
      }
      const what = `${JSON.stringify(sampling)}, ${together} at once, ${drafts ?? 'chosen'} drafts: ${accepted} of ${tokens} drafted`;
      // Where times are measured, several at once have drafts only if these pay on this machine now: there may be none to compare.
      if (together === 1 || drafts) t.ok(accepted > tokens / 100, what);
      else t.comment(what);
    }
    for (const [place, counts] of places) {
      const p = sameDistribution([...counts.values()]);
      t.ok(p > 0.01, `${JSON.stringify(sampling)}, token ${place}: p ${p.toFixed(3)}, ${counts.size} tokens`);
    }
  }
});
