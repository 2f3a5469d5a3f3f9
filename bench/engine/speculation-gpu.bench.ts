/**
 * Where speculation pays on a GPU: the drafts and the choice of their number are those of the engine, on edits from this repository's
 * history, and each step takes what it took on an H200. Nothing is decoded, so that it runs anywhere in seconds.
 */
import { cpuLlama } from '../../test/support/llama.js';
import { bundleCheckout } from '../../test/support/models.js';
import { DRAFT_LENGTHS, engineAddon, MOST_LOGITS, type AddonDrafts } from '../../engine/llama/addon.js';
import { ALONE_COSTS } from '../../engine/llama/batch-decoder.js';
import { STEP_MS } from '../../engine/scheduler/step-planner.js';
import { RandomWords } from '../models/random-weights.js';
import { knownEdits } from '../support/edits.js';
import { keep, type Row } from '../support/results.js';

const SEQUENCES = [1, 2, 4, 8, 16, 32, 64] as const;
/** Replies that are simulated for each number of sequences, at least; as many as there are sequences run at once. */
const REPLIES = 32;
const EDITS = 16;

/** Tokens of a step and its ms on an H200, 8 billion weights in Q8_0, tokens chosen (bench/results/gpu-steps-8b.md); lines in between. */
const STEPS = [
  [1, 4.61],
  [8, 8.36],
  [32, 12.2],
  [64, 16.3],
  [256, 28.6],
  [512, 48.3],
  [1022, 92.3],
] as const;

/** The second one is that of the measured model: the logits of some 130 tokens are as many as a step with drafts may have. */
const SMALL = 32_000;
const VOCABULARIES = { '32,000': SMALL, '128,256': 128_256 } as const;

function stepMs(tokens: number): number {
  const to = STEPS.findIndex(([count]) => count >= tokens);
  const at = to < 0 ? STEPS.length - 1 : Math.max(1, to);
  const [[fromTokens, fromMs] = STEPS[0], [toTokens, toMs] = STEPS[0]] = STEPS.slice(at - 1, at + 1);
  return fromMs + ((tokens - fromTokens) / (toTokens - fromTokens)) * (toMs - fromMs);
}

/** Of a step with drafts, as in engine/native/next-token.cpp. */
const MOST_DECODES = 2;

/** A prompt, and a reply that is known before. */
interface Replay {
  readonly prompt: readonly number[];
  readonly reply: readonly number[];
}

interface Running extends Replay {
  readonly drafts: AddonDrafts;
  said: number;
}

interface Simulated {
  readonly perSecond: number;
  readonly tokensPerStep: number;
  /** Of its steps, those with drafts. */
  readonly drafting: number;
}

const llama = await cpuLlama(1);
// Ours can be loaded once llama.cpp's is.
const { RaDrafts, RaStepCosts } = engineAddon();

/** Replies one after another on so many sequences. `only`: the index of the one number of drafts; absent: the engine's choice. */
function simulate(replays: readonly Replay[], sequences: number, vocabulary: number, only?: number): Simulated {
  const costs = new RaStepCosts(Float64Array.from(ALONE_COSTS.gpu), only);
  // Sequences of one decode with so many drafts.
  const together = (drafts: number): number => Math.floor(MOST_LOGITS / vocabulary / (drafts + 1));
  const last = DRAFT_LENGTHS.findLastIndex((drafts) => sequences <= MOST_DECODES * together(drafts));
  const waiting = Array.from({ length: Math.max(REPLIES, sequences) }, (_, i) => replays[i % replays.length]);
  let running: Running[] = [];
  let [ms, tokens, steps, drafting, turns] = [0, 0, 0, 0, 0];
  for (;;) {
    while (running.length < sequences) {
      const next = waiting.shift();
      if (!next) break;
      const { prompt, reply } = next;
      const length = prompt.length + reply.length;
      running.push({
        ...next,
        drafts: new RaDrafts(Uint32Array.from(prompt), length, true, undefined, costs),
        said: 0,
      });
    }
    // With fewer the rest would be of other numbers of sequences.
    if (running.length < sequences) break;
    const expected = new Float64Array(DRAFT_LENGTHS.length);
    for (const { drafts, prompt, reply, said } of running) {
      drafts.feed(prompt.length + said - 1, (said === 0 ? prompt.at(-1) : reply[said - 1]) ?? 0);
      for (const [choice, each] of drafts.expected(sequences > 1).entries())
        expected[choice] = (expected[choice] ?? 0) + Math.min(each, reply.length - said);
    }
    const choice = last <= 0 ? 0 : costs.choose(sequences, expected, last, STEP_MS);
    const count = DRAFT_LENGTHS[choice] ?? 0;
    const first = count === 0 ? sequences : Math.min(sequences, together(count));
    const took = stepMs(first * (count + 1)) + (first < sequences ? stepMs((sequences - first) * (count + 1)) : 0);
    costs.learn(sequences, choice, took);
    for (const each of running) {
      const { drafts, prompt, reply, said } = each;
      const drafted = drafts.draft(Math.min(count, reply.length - said - 1));
      const wrong = drafted.findIndex((token, i) => token !== reply[said + i]);
      const came = 1 + (wrong < 0 ? drafted.length : wrong);
      for (let i = 0; i < came; i += 1) drafts.feed(prompt.length + said + i, reply[said + i] ?? 0);
      each.said += came;
      tokens += came;
    }
    ms += took;
    steps += 1;
    turns += sequences;
    drafting += count > 0 ? 1 : 0;
    running = running.filter(({ drafts, reply, said }) => {
      if (said < reply.length) return true;
      drafts.wipe();
      return false;
    });
  }
  return { perSecond: (1000 * tokens) / ms, tokensPerStep: tokens / turns, drafting: drafting / steps };
}

const model = await llama.loadModel({
  modelPath: `${await bundleCheckout()}/models/ggml-vocab-gpt-2.gguf`,
  vocabOnly: true,
});
const tokensOf = (text: string): number[] => [...model.tokenize(text)].map(Number);
const edits = knownEdits(EDITS).map(({ request, before, after }): Replay => ({
  prompt: tokensOf(`${before}\n\n${request}\n\n`),
  reply: tokensOf(after),
}));
const random = new RandomWords(1);
const randomTokens = (count: number): number[] => Array.from({ length: count }, () => (random.next() >>> 0) % 50_000);
await llama.dispose();

/** A share of the reply's tokens is as in the prompt. */
function mixed(share: number): Replay[] {
  return Array.from({ length: EDITS }, (): Replay => {
    const prompt = randomTokens(512);
    const reply = prompt.map((token) => ((random.next() >>> 0) / 2 ** 32 < share ? token : (randomTokens(1)[0] ?? 0)));
    return { prompt, reply };
  });
}

const WORKLOADS: readonly (readonly [name: string, replays: readonly Replay[]])[] = [
  ['edits', edits],
  ...[0, 0.5, 0.8, 0.9, 0.95, 1].map(
    (share) => [`${Math.round(100 * share)} % as in the prompt`, mixed(share)] as const,
  ),
];

const rows: Row[] = [];
for (const [vocabulary, size] of Object.entries(VOCABULARIES))
  for (const [replies, replays] of size === SMALL ? WORKLOADS : WORKLOADS.slice(0, 1))
    for (const sequences of SEQUENCES) {
      const fixed = DRAFT_LENGTHS.map((_, only) => simulate(replays, sequences, size, only));
      const auto = simulate(replays, sequences, size);
      const [off] = fixed;
      const best = fixed.reduce((one, other) => (other.perSecond > one.perSecond ? other : one));
      rows.push({
        replies,
        vocabulary,
        sequences,
        'tokens/s, off': off?.perSecond ?? NaN,
        'tokens/s, auto': auto.perSecond,
        ratio: auto.perSecond / (off?.perSecond ?? NaN),
        'tokens a step and reply': auto.tokensPerStep,
        'steps with drafts': auto.drafting,
        'best fixed number of drafts': DRAFT_LENGTHS[fixed.indexOf(best)] ?? NaN,
        'of the best': auto.perSecond / best.perSecond,
      });
    }

const of = (column: string, some: readonly Row[]): number[] => some.map((row) => Number(row[column]));
const text = rows.filter(({ replies }) => replies === 'edits');
const plain = rows.filter(({ replies }) => replies === '0 % as in the prompt');
const synthetic = rows.filter(({ replies }) => replies !== 'edits');
const gains = (vocabulary: string): string =>
  text
    .filter((row) => row['vocabulary'] === vocabulary)
    .map(({ sequences, ratio }) => `${sequences}: ${Number(ratio).toFixed(2)}`)
    .join(', ');
const verdict = (held: boolean): string => (held ? 'Held' : 'Missed');
const [slowest, worst] = [Math.min(...of('ratio', rows)), Math.min(...of('of the best', synthetic))];
await keep('speculation-gpu', {
  title: 'Speculation with the costs of a GPU, simulated',
  about: [
    'Replies whose text is known, each token of which comes as the engine would pick it: the drafts, the expectation of each reply and the choice of the number of drafts are those of engine/native/speculation.cpp. A step takes what a step of as many tokens took on an H200 with 8 billion weights in Q8_0 ([gpu-steps-8b](gpu-steps-8b.md)), on a clock of the bench. It is not known what several tokens of several sequences take there in one decode: a token of a further sequence and one more of the same sequence count alike.',
    `edits: the new file of edits from this repository’s history, after the old one, GPT-2’s vocabulary. Others: random tokens, of which a share is as in the prompt. The logits of a decode with drafts are at most ${MOST_LOGITS.toLocaleString('en')}, and a step has two decodes at most, so that a larger vocabulary allows fewer drafts with many sequences. The best fixed number drafts as many in each step.`,
  ],
  rows,
  conclusions: [
    `Where it pays: edits with 32,000 tokens by sequences, times the tokens a second without: ${gains('32,000')}; with 128,256: ${gains('128,256')}.`,
    `${verdict(slowest >= 0.98 && Math.max(...of('steps with drafts', plain)) < 0.02)}: off where it does not pay: at least ${slowest.toFixed(3)} of the tokens a second without (goal 0.98), and random replies have drafts in ${(100 * Math.max(...of('steps with drafts', plain))).toFixed(1)} % of their steps at most.`,
    `${verdict(worst >= 0.95)}: the chosen numbers give at least ${worst.toFixed(3)} of the best fixed number’s tokens a second where a share is as in the prompt (goal 0.95).`,
  ],
  simulated: true,
});
process.exit(0);
