/** Flash attention on a CPU, on and off: next tokens, and chunks of a prompt, by the number of tokens before them. */
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import type { Decoder, Part } from '../../engine/scheduler/decoder.js';
import { random13m, random150m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { cpuLlama } from '../../test/support/llama.js';

const REPLIES = 8;
const SMALL = 8;
const WHOLE = 256;
const RUNS = 5;
const THREADS = 1;
const GREEDY = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1, maxTokens: 1 };

const tokens = (length: number, salt = 0): Uint32Array =>
  Uint32Array.from({ length }, (_, i) => 300 + ((i * 7 + salt) % 20_000));

async function timed(decoder: Decoder, parts: readonly Part[]): Promise<number> {
  const from = performance.now();
  const results = await decoder.step(parts);
  const ms = performance.now() - from;
  if (results.some(({ kind }) => kind === 'fault')) throw new Error('llama.cpp could not decode');
  return ms;
}

/** Every sequence from `from` on to `to`, in whole chunks. */
async function fill(decoder: Decoder, from: number, to: number): Promise<void> {
  for (let at = from; at < to; at += WHOLE) {
    for (let sequence = 0; sequence < REPLIES; sequence++) {
      await timed(decoder, [{ kind: 'prefill', sequence, tokens: tokens(Math.min(WHOLE, to - at), at) }]);
    }
  }
}

/** Milliseconds of the three kinds of steps after `depth` tokens, which every sequence has before and after. */
async function measure(decoder: Decoder, depth: number): Promise<Record<'next' | 'small' | 'whole', number>> {
  const sampler = decoder.sampler(GREEDY);
  const next = Array.from({ length: REPLIES }, (_, sequence) => ({
    kind: 'sample' as const,
    sequence,
    tokens: tokens(1, sequence),
    sampler,
  }));
  const chunk = (length: number): Part[] => [{ kind: 'prefill', sequence: 0, tokens: tokens(length) }];
  const cases = { next, small: chunk(SMALL), whole: chunk(WHOLE) };
  const ms = { next: NaN, small: NaN, whole: NaN };
  for (const name of ['next', 'small', 'whole'] as const) {
    ms[name] = await timed(decoder, cases[name]);
    for (const { sequence } of cases[name]) await decoder.truncate(sequence, depth);
  }
  sampler.dispose();
  return ms;
}

const llama = await cpuLlama(THREADS);
const rows: Row[] = [];
for (const [name, file, depths] of [
  ['13m', await random13m(), [64, 256, 512, 1024, 2048, 4000]],
  // Filling it takes 3 ms a token.
  ['150m', await random150m(), [64, 512, 1024]],
] as const) {
  const model = await llama.loadModel({ modelPath: file });
  const decoders: Decoder[] = [];
  for (const flashAttention of [true, false]) {
    const context = await model.createContext({
      sequences: REPLIES,
      contextSize: Math.max(...depths) + WHOLE,
      batchSize: WHOLE + REPLIES,
      threads: THREADS,
      flashAttention,
    });
    const decoder = await BatchDecoder.create(context, THREADS);
    decoders.push(decoder);
  }
  const [flash, plain] = decoders;
  if (!flash || !plain) throw new Error('no decoders');
  let held = 0;
  for (const depth of depths) {
    for (const decoder of decoders) await fill(decoder, held, depth);
    held = depth;
    const pairs: { flash: Awaited<ReturnType<typeof measure>>; plain: Awaited<ReturnType<typeof measure>> }[] = [];
    for (let i = 0; i < RUNS; i++) {
      pairs.push({ flash: await measure(flash, depth), plain: await measure(plain, depth) });
    }
    const of = (how: 'flash' | 'plain', what: 'next' | 'small' | 'whole'): number =>
      median(pairs.map((pair) => pair[how][what]));
    rows.push({
      model: name,
      'tokens before': depth,
      'next tokens: flash, ms': of('flash', 'next'),
      'next tokens: plain, ms': of('plain', 'next'),
      'small chunk: flash, ms': of('flash', 'small'),
      'small chunk: plain, ms': of('plain', 'small'),
      'whole chunk: flash, ms': of('flash', 'whole'),
      'whole chunk: plain, ms': of('plain', 'whole'),
    });
    process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
  }
}

await keep('attention', {
  title: 'Flash attention on a CPU',
  about: [
    `One process, two contexts of the same model, with flash attention and without (plain), ${THREADS} compute thread: one step of each kind in turn, medians of ${RUNS}. Next tokens: of ${REPLIES} replies together, sampled greedily. Chunks: of one prompt, ${SMALL} tokens and ${WHOLE}.`,
    'The heads of 13m are 32 wide, those of 150m 64. On a CPU `flashAttention: auto` goes without for decisions, and where heads are narrower than 64 and a seat holds more than 512 tokens: small chunks behind a long prompt, which is what prompts get beside replies, take many times as long with it there.',
  ],
  rows,
});
process.exit(0);
