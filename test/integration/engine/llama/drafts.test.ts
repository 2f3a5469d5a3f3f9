/** What the addon drafts from a text, and how many tokens of it, without a model. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { RandomWords } from '../../../../bench/models/random-weights.js';
import { DRAFT_LENGTHS, engineAddon, type AddonDrafts } from '../../../../engine/llama/addon.js';
import { ALONE_COSTS } from '../../../../engine/llama/batch-decoder.js';
import { cpuLlama } from '../../../support/llama.js';
import { cases, rounds } from '../../../support/long-form.js';
import { sourceRoot } from '../../../support/source-root.js';

// The addon can be loaded once node-llama-cpp's is.
const llama = await cpuLlama(1);
t.teardown(() => llama.dispose());

t.test('what is drafted: the text after the longest earlier occurrence, and after a token in place of another', (t) => {
  const { RaDrafts } = engineAddon();
  const say = (drafts: AddonDrafts, from: number, ...tokens: readonly number[]): void =>
    tokens.forEach((token, i) => drafts.feed(from + i, token));
  const prompt = [1, 2, 3, 4, 5, 6, 7, 9, 9, 3, 4, 11, 12, 13, 14, 15, 16];
  const drafts = new RaDrafts(Uint32Array.from(prompt), 64);
  const at = prompt.length;
  t.same(
    [[...drafts.draft(4)], [...drafts.expected(false)]],
    [[], DRAFT_LENGTHS.map(() => 1)],
    'nothing before the reply has begun',
  );
  say(drafts, at, 3, 4);
  t.same([...drafts.draft(3)], [11, 12, 13], 'of two places with as much in common the later one');
  say(drafts, at + 2, 99);
  t.same([...drafts.draft(3)], [12, 13, 14], 'after a token in place of the one there');
  say(drafts, at + 2, 5, 6);
  t.same(
    [...drafts.draft(3)],
    [7, 9, 9],
    'another token than was told before: it has more in common with the other place',
  );
  say(drafts, at + 4, 7, 9, 9, 3);
  t.ok((drafts.expected(false)[1] ?? 0) > 3, 'after a long common text most drafts are expected to come');
  say(drafts, at + 5, 11, 12);
  t.same([...drafts.draft(3)], [13, 14, 15], 'what came after such a token is forgotten');
  t.same([...new RaDrafts(Uint32Array.of(7), 8).draft(3)], []);
  const repeats = new RaDrafts(Uint32Array.of(1, 2, 1, 2), 16);
  say(repeats, 4, 1, 2);
  t.same([...repeats.draft(5)], [1, 2, 1, 2, 1], 'past the end of the text it goes round');
  repeats.feed(9, 1);
  t.same([...repeats.draft(5)], [], 'nothing after tokens that it was not told');
  const bounded = new RaDrafts(Uint32Array.of(1, 2, 1, 2), 6);
  say(bounded, 4, 1, 2);
  t.ok(bounded.draft(5).length > 0);
  bounded.feed(6, 1);
  t.same([...bounded.draft(5)], [], 'nothing after more tokens than it was to hold');
  drafts.wipe();
  say(drafts, at + 7, 13);
  t.same([...drafts.draft(3)], []);
  t.end();
});

t.test('what other replies of the model showed counts for the next one, but for none that is to repeat', (t) => {
  const { RaDrafts, RaStepCosts } = engineAddon();
  const costs = new RaStepCosts(Float64Array.from(ALONE_COSTS.cpu));
  const prompt = Uint32Array.from({ length: 40 }, (_, i) => i);
  const begun = (of?: typeof costs): AddonDrafts => {
    const drafts = new RaDrafts(prompt, 80, true, undefined, of);
    [5, 6, 7].forEach((token, i) => drafts.feed(40 + i, token));
    return drafts;
  };
  const before = [...begun(costs).expected(true)];
  for (let reply = 0; reply < 20; reply += 1) begun(costs).feed(43, 99);
  const after = begun(costs);
  t.ok(
    (after.expected(true)[1] ?? 9) < 0.7 * (before[1] ?? 0),
    `${after.expected(true).join()} after ${before.join()}`,
  );
  t.same([...after.expected(false)], [...begun().expected(true)]);
  t.end();
});

/** Tokens of a decode and its ms; lines in between. */
type Steps = readonly (readonly [tokens: number, ms: number])[];

/**
 * What decodes take. 150 million weights in Q8_0 on one thread of a Xeon and of two EPYCs, processor time; 8 billion in Q8_0 on an H200
 * (bench/results/gpu-steps-8b.md), and by the bandwidth and the arithmetic of an L4.
 */
const DEVICES: Readonly<Record<string, { readonly device: keyof typeof ALONE_COSTS; readonly steps: Steps }>> = {
  xeon: {
    device: 'cpu',
    steps: [
      [1, 17.3],
      [4, 30],
      [8, 45],
      [16, 87],
      [32, 150],
      [64, 176],
      [512, 1400],
    ],
  },
  epyc: {
    device: 'cpu',
    steps: [
      [1, 14],
      [4, 33],
      [8, 51],
      [16, 89],
      [32, 186],
      [64, 330],
      [512, 2430],
    ],
  },
  turin: {
    device: 'cpu',
    steps: [
      [1, 7.5],
      [4, 41],
      [8, 55],
      [16, 86],
      [32, 158],
      [64, 286],
      [512, 2600],
    ],
  },
  h200: {
    device: 'gpu',
    steps: [
      [1, 4.61],
      [8, 8.36],
      [32, 12.2],
      [64, 16.3],
      [256, 28.6],
      [512, 48.3],
    ],
  },
  l4: {
    device: 'gpu',
    steps: [
      [1, 30],
      [8, 36],
      [32, 45],
      [64, 60],
      [256, 160],
      [512, 300],
    ],
  },
};

function decodeMs(steps: Steps, tokens: number): number {
  const to = Math.max(
    1,
    steps.findIndex(([count]) => count >= tokens),
  );
  const [[fromTokens, fromMs] = [0, 0], [toTokens, toMs] = [1, 0]] = steps.slice(to - 1, to + 1);
  return fromMs + ((tokens - fromTokens) / (toTokens - fromTokens)) * (toMs - fromMs);
}

/** Words and signs of this repository's documents, each with a number: text in which few repeated words are followed by the same ones. */
const PROSE = wordsOf(['engine', 'admission', 'batches', 'store', 'security'].map((name) => `docs/${name}.md`));

function wordsOf(files: readonly string[]): number[] {
  const ids = new Map<string, number>();
  const texts = files.map((file) => readFileSync(join(sourceRoot, file), 'utf8'));
  return (texts.join('\n').match(/\w+|[^\w\s]/g) ?? []).map(
    (word) => ids.get(word) ?? (ids.set(word, ids.size), ids.size - 1),
  );
}

/** Of words before a reply of prose. */
const PROSE_PROMPT = 1000;

/** A share of the reply's tokens is as in the prompt, which has as many. */
function replayOf(
  random: RandomWords,
  share: Share,
  length: number,
): { readonly prompt: readonly number[]; readonly reply: readonly number[] } {
  if (share === 'prose') {
    const at = (random.next() >>> 0) % (PROSE.length - PROSE_PROMPT - length);
    return { prompt: PROSE.slice(at, at + PROSE_PROMPT), reply: PROSE.slice(at + PROSE_PROMPT).slice(0, length) };
  }
  const token = (): number => (random.next() >>> 0) % 50_000;
  const prompt = Array.from({ length }, token);
  return { prompt, reply: prompt.map((each) => ((random.next() >>> 0) / 2 ** 32 < share ? each : token())) };
}

/** By sequences: how many replies each has, one after another. In the first ones the times are learned. */
const TURNS = { 1: 16, 8: rounds({ short: 3, long: 8 }) } as const;

/** Texts of short replies, by which a number of drafts gains more or less. */
const SHORT_TEXTS = 6;

type Share = number | 'prose';

interface Simulated {
  /** The index of the one number that is drafted; absent: as chosen. */
  readonly only?: number;
  /** Absent: true. */
  readonly mayVary?: boolean;
  /** Tokens of a reply; absent: 256. */
  readonly length?: number;
  /** Of the texts; absent: by the share. */
  readonly seed?: number;
  /** Whether each turn lasts until its last reply has ended; absent: until its first one has, since fewer sequences take other times. */
  readonly whole?: boolean;
}

/** Tokens per ms of replies on so many sequences. */
function simulated(
  name: string,
  sequences: keyof typeof TURNS,
  share: Share,
  { only, mayVary = true, length = 256, seed, whole = false }: Simulated = {},
): number {
  const { RaDrafts, RaStepCosts } = engineAddon();
  const { device, steps } = DEVICES[name] ?? { device: 'cpu', steps: [] };
  const costs = new RaStepCosts(Float64Array.from(ALONE_COSTS[device]), only);
  const random = new RandomWords(seed ?? (share === 'prose' ? 1 : Math.round(100 * share)));
  let [tokens, ms] = [0, 0];
  for (let turn = 0; turn < TURNS[sequences]; turn += 1) {
    if (turn === 1) [tokens, ms] = [0, 0];
    let running = Array.from({ length: sequences }, () => {
      const { prompt, reply } = replayOf(random, share, length);
      const drafts = new RaDrafts(Uint32Array.from(prompt), prompt.length + reply.length, mayVary, undefined, costs);
      drafts.feed(prompt.length - 1, prompt.at(-1) ?? 0);
      return { reply, drafts, said: 0, at: prompt.length };
    });
    while (whole ? running.length > 0 : running.length === sequences) {
      const left = running.length;
      const expected = new Float64Array(DRAFT_LENGTHS.length);
      for (const { drafts, reply, said } of running)
        for (const [choice, each] of drafts.expected(mayVary || sequences > 1).entries())
          expected[choice] = (expected[choice] ?? 0) + Math.min(each, reply.length - said);
      const choice = costs.choose(left, expected, DRAFT_LENGTHS.length - 1, undefined, mayVary);
      const count = DRAFT_LENGTHS[choice] ?? 0;
      const took = decodeMs(steps, left * (count + 1));
      costs.learn(left, choice, took);
      ms += took;
      for (const each of running) {
        const { drafts, reply, said, at } = each;
        const drafted = drafts.draft(Math.min(count, reply.length - said - 1));
        const wrong = drafted.findIndex((token, i) => token !== reply[said + i]);
        const came = 1 + (wrong < 0 ? drafted.length : wrong);
        for (let i = said; i < said + came; i += 1) drafts.feed(at + i, reply[i] ?? 0);
        each.said += came;
        tokens += came;
      }
      running = running.filter(({ reply, said }) => said < reply.length);
    }
  }
  return tokens / ms;
}

t.test(
  'a reply that may vary, or several: within 5 % of the best number on CPUs and GPUs, from their times alone',
  (t) => {
    for (const name of cases(Object.keys(DEVICES), (each) => each === 'xeon'))
      for (const sequences of [1, 8] as const)
        for (const share of cases([0, 0.2, 0.5, 0.8, 0.9, 0.95, 1], (each) => each === 0 || each === 0.8)) {
          const best = Math.max(...DRAFT_LENGTHS.map((_, only) => simulated(name, sequences, share, { only })));
          const of = simulated(name, sequences, share) / best;
          t.ok(of > 0.95, `${name}, ${sequences} sequences, ${share} as in the prompt: ${of.toFixed(3)} of the best`);
        }
    t.end();
  },
);

t.test('short replies that begin together: within 5 % of the best number until the last of them has ended', (t) => {
  for (const name of Object.keys(DEVICES))
    for (let seed = 1; seed <= SHORT_TEXTS; seed += 1) {
      const rate = (only?: number): number =>
        simulated(name, 8, 0.8, { length: 48, seed, whole: true, ...(only !== undefined && { only }) });
      const of = rate() / Math.max(...DRAFT_LENGTHS.map((_, only) => rate(only)));
      t.ok(of > 0.95, `${name}, texts ${seed}: ${of.toFixed(3)} of the best`);
    }
  t.end();
});

t.test('prose, in which little repeats: hardly slower than without drafts', (t) => {
  for (const name of Object.keys(DEVICES))
    for (const sequences of [1, 8] as const) {
      const rate = (more: Simulated): number => simulated(name, sequences, 'prose', { length: 128, ...more });
      const of = rate({}) / rate({ only: 0 });
      t.ok(of > 0.97, `${name}, ${sequences} sequences: ${of.toFixed(3)} of the rate without`);
    }
  t.end();
});

t.test(
  'a reply that is to repeat, by fixed costs: at no share 2 % slower than without drafts on these devices',
  (t) => {
    // On a Turin the fixed costs are too low, and it is slower.
    for (const name of Object.keys(DEVICES).filter((each) => each !== 'turin'))
      for (const share of [0, 0.2, 0.5, 0.8, 0.9, 1]) {
        const of = simulated(name, 1, share, { mayVary: false }) / simulated(name, 1, share, { only: 0 });
        t.ok(of > 0.98, `${name}, ${share} as in the prompt: ${of.toFixed(3)} of the rate without`);
      }
    t.end();
  },
);

t.test('how many are drafted by known chances: within 5 % of the best number, off where it does not pay', (t) => {
  const { RaStepCosts } = engineAddon();
  const costs = {
    cpu: (tokens: number) => 4 + 3.2 * tokens,
    // As measured on an H200 (bench/results/gpu-steps-8b.md): reading the weights, and a little for each token.
    gpu: (tokens: number) => 4.3 + 0.16 * tokens,
  };
  for (const [device, ms] of Object.entries(costs))
    for (const sequences of [1, 2, 8, 64])
      for (let chance = 0; chance <= 1; chance += 0.1) {
        const stepMs = (choice: number): number => ms(sequences * (1 + (DRAFT_LENGTHS[choice] ?? 0)));
        const expected = Float64Array.from(DRAFT_LENGTHS, (drafts) => {
          let [sum, all] = [1, 1];
          for (let i = 0; i < drafts; i += 1) sum += all *= chance;
          return sequences * sum;
        });
        const alone = DRAFT_LENGTHS.map((drafts) => ms(1 + drafts) / ms(1));
        const chosen = new RaStepCosts(Float64Array.from(alone));
        let [tokens, took] = [0, 0];
        for (let step = 0; step < 2000; step += 1) {
          const choice = chosen.choose(sequences, expected, DRAFT_LENGTHS.length - 1);
          chosen.learn(sequences, choice, stepMs(choice));
          tokens += expected[choice] ?? 0;
          took += stepMs(choice);
        }
        const best = Math.max(...DRAFT_LENGTHS.map((_, choice) => (expected[choice] ?? 0) / stepMs(choice)));
        const share = tokens / took / best;
        t.ok(share > 0.95, `${device}, ${sequences} sequences, ${chance.toFixed(1)}: ${share.toFixed(3)} of the best`);
        const plain = sequences / stepMs(0);
        t.ok(tokens / took > 0.98 * plain, 'never slower than without');
        const mostMs = 2 * stepMs(0);
        // Lately: after long a number that was slow is tried again.
        for (const choice of DRAFT_LENGTHS.keys()) chosen.learn(sequences, choice, stepMs(choice));
        const bounded = DRAFT_LENGTHS[chosen.choose(sequences, expected, DRAFT_LENGTHS.length - 1, mostMs)] ?? 0;
        t.ok(sequences === 1 || bounded === 0 || ms(sequences * (1 + bounded)) < 1.01 * mostMs, 'within the bound');
      }
  t.end();
});

t.test('a number that would hardly gain is not tried where it costs several sequences many tokens', (t) => {
  const { RaStepCosts } = engineAddon();
  const costs = new RaStepCosts(Float64Array.from(ALONE_COSTS.cpu));
  // 150 million weights in Q8_0, eight sequences, 95 % of the drafts came: a step with 15 drafts takes 350 ms or more there.
  for (const [choice, ms] of [40, 109, 178].entries()) costs.learn(8, choice, ms);
  const expected = Float64Array.of(8, 25, 41, 61, 77, 82);
  t.equal(DRAFT_LENGTHS[costs.choose(8, expected, 4)], 7);
  const all = Float64Array.from(DRAFT_LENGTHS, (drafts) => 8 * (1 + drafts));
  t.equal(
    DRAFT_LENGTHS[costs.choose(8, all, 4)],
    15,
    'where it gains if it takes as long as the shorter ones let expect',
  );
  t.end();
});

t.test('a number of drafts that was slow once is tried again, also where steps may not take long', (t) => {
  const { RaStepCosts } = engineAddon();
  const costs = new RaStepCosts(Float64Array.from(ALONE_COSTS.gpu));
  const expected = Float64Array.from(DRAFT_LENGTHS, (drafts) => 2 * (1 + drafts));
  const choose = (): number => costs.choose(2, expected, 1, 25);
  costs.learn(2, 0, 10);
  costs.learn(2, 1, 1000);
  t.equal(choose(), 0);
  for (let step = 0; step < 2000 && choose() === 0; step += 1) costs.learn(2, 0, 10);
  t.equal(choose(), 1);
  t.end();
});
