/**
 * The two decoders behind engine/scheduler/decoder.ts, compared in one process: the gain of the layer below the
 * iterators.
 */
import { getLlama, LlamaLogLevel } from 'node-llama-cpp';
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import type { Decoder } from '../../engine/scheduler/decoder.js';
import { IteratorDecoder, sequenceOrder } from '../../engine/llama/iterator-decoder.js';
import type { GenerateJob } from '../../engine/protocol/jobs.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import { endlessEmbedded, random13m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

const SEQUENCES = [1, 8, 32];
const PROMPT_TOKENS = 16;
const TOKENS = 64;
const RUNS = 5;
const THREADS = 1;
const LIMITS = {
  seats: Math.max(...SEQUENCES),
  contextPerSeat: 256,
  prefillTokensPerStep: 512,
  prefillShare: 100,
  prefixReuse: 'off',
  origin: { weights: '', kv: 'f16' },
} as const;

/** Tokens a second of `sequences` parallel replies, with a loop of their own over the decoder. */
async function rate(decoder: Decoder, sequences: number): Promise<number> {
  const tokens = { isEnd: () => false, bytes: () => new Uint8Array(), control: () => undefined };
  const from = performance.now();
  await new Promise<void>((resolve, reject) => {
    let running = sequences;
    const loop = new StepLoop(decoder, tokens, LIMITS, (_, outputs) => {
      for (const output of outputs) {
        if (output.kind === 'failed') reject(new Error(output.reason));
        if (output.kind === 'done') running -= 1;
      }
      if (running === 0) resolve();
    });
    for (let id = 0; id < sequences; id++) loop.generate(id, job(id));
  });
  return (sequences * TOKENS * 1000) / (performance.now() - from);
}

function job(id: number): GenerateJob {
  const prompt = Uint32Array.from({ length: PROMPT_TOKENS }, (_, i) => 60 + ((i * 7 + id) % 90));
  const sampling = { temperature: 1, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: id };
  return {
    prompt: tokenPrompt(prompt),
    n: 1,
    seats: 1,
    maxTokens: TOKENS,
    stops: [],
    scope: ALL_ACCOUNTS,
    ...sampling,
  };
}

const llama = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.error, maxThreads: THREADS });
const rows: Row[] = [];
for (const [name, file] of [
  ['embedded', await endlessEmbedded()],
  ['13m, GPT-2 vocabulary', await random13m()],
] as const) {
  const model = await llama.loadModel({ modelPath: file });
  const context = (): ReturnType<typeof model.createContext> =>
    model.createContext({
      sequences: LIMITS.seats,
      contextSize: LIMITS.contextPerSeat,
      batchSize: LIMITS.prefillTokensPerStep + LIMITS.seats,
      threads: THREADS,
      batching: { itemPrioritizationStrategy: sequenceOrder },
    });
  const contexts = [await context(), await context()] as const;
  const iterators = new IteratorDecoder(contexts[0], true);
  const batches = await BatchDecoder.create(contexts[1], THREADS);
  if (!batches) throw new Error('this version of node-llama-cpp is not the one that batch-decoder.ts knows');
  for (const sequences of SEQUENCES) {
    const rates: { iterators: number; batches: number }[] = [];
    // The first run warms up and is dropped.
    for (let run = 0; run <= RUNS; run++) {
      rates.push({ iterators: await rate(iterators, sequences), batches: await rate(batches, sequences) });
    }
    const kept = rates.slice(1);
    rows.push({
      model: name,
      sequences,
      'iterators, tokens/s': median(kept.map((pair) => pair.iterators)),
      'batches, tokens/s': median(kept.map((pair) => pair.batches)),
      ratio: median(kept.map((pair) => pair.batches / pair.iterators)),
    });
  }
  for (const used of contexts) await used.dispose();
  await model.dispose();
}

await keep('decoders', {
  title: 'The two decoders side by side',
  about: [
    `One process, one step loop over each decoder in turn: ${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated per sequence, temperature 1, ${THREADS} compute thread; medians of ${RUNS} pairs after one to warm up. No messages between processes and no text: the rest of the engine is in engine-steps-native.md.`,
    'Iterators: node-llama-cpp’s public API in lockstep (engine/llama/iterator-decoder.ts), the fallback. Batches: the layer below it (engine/llama/batch-decoder.ts), used where its version is known.',
  ],
  rows,
});
process.exit(0);
