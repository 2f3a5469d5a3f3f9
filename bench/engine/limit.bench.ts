/** Our engine process against llama-batched-bench, which decodes the same batches and samples nothing: the limit. */
import { EngineDriver, type Load } from '../support/engine-driver.js';
import { random13m, random150m } from '../support/models.js';
import { batchedBench } from '../support/peers.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const SEQUENCES = [1, 8, 32];
const PROMPT_TOKENS = 16;
const TOKENS = 64;
const RUNS = 5;
/** Of one run of ours, so many at a time as there are sequences; the peer does one batch of each. */
const REPLIES = 32;

const rows: Row[] = [];
for (const [model, file] of [
  ['150m', await random150m()],
  ['13m', await random13m()],
] as const) {
  for (const threads of [1, 2]) {
    const engine = await EngineDriver.start(file, Math.max(...SEQUENCES), { threads });
    const rate = async (sequences: number, temperature: number): Promise<number> => {
      const load: Load = { promptTokens: PROMPT_TOKENS, tokens: TOKENS, temperature };
      const { tokens, seconds } = await engine.rounds(Math.max(sequences, REPLIES / 4), sequences, load);
      return tokens / seconds;
    };
    for (const sequences of SEQUENCES) {
      const peer = async (): Promise<number> => {
        // A single sequence is over in no time: so many that a run is as long as ours.
        const batches = Array.from({ length: Math.max(1, REPLIES / 4 / sequences) }, () => sequences);
        const runs = await batchedBench(file, {
          threads,
          promptTokens: PROMPT_TOKENS,
          tokens: TOKENS,
          sequences: batches,
        });
        return runs.length / runs.reduce((sum, run) => sum + 1 / run.tokensPerSecond, 0);
      };
      await rate(sequences, 0);
      const pairs: { peer: number; greedy: number; sampled: number }[] = [];
      for (let i = 0; i < RUNS; i++) {
        pairs.push({ peer: await peer(), greedy: await rate(sequences, 0), sampled: await rate(sequences, 1) });
      }
      rows.push({
        model,
        threads,
        sequences,
        'llama-batched-bench, tokens/s': median(pairs.map((pair) => pair.peer)),
        'ours, greedy': median(pairs.map((pair) => pair.greedy)),
        'ratio, greedy': median(pairs.map((pair) => pair.greedy / pair.peer)),
        'ours, temperature 1': median(pairs.map((pair) => pair.sampled)),
        'ratio, temperature 1': median(pairs.map((pair) => pair.sampled / pair.peer)),
      });
      process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
    }
    await engine.close();
  }
}

await keep('engine-limit', {
  title: 'The engine process against llama-batched-bench',
  about: [
    `Tokens generated a second, prefill included: ${PROMPT_TOKENS} prompt tokens and ${TOKENS} generated per sequence. Medians of ${RUNS} runs, each of ours right after one of the peer's; the ratio is the median of these pairs.`,
    'llama-batched-bench (built from the bundled source by `make peers`, with native instructions and OpenMP) decodes and never samples or turns a token into text; our engine process (the prebuilt addon) samples every token, finds stops, makes text and sends messages. Greedy: temperature 0. Temperature 1 with no top-k, the default of the API, is exp() over the whole vocabulary of 50,257 for every token, in llama.cpp’s own sampler.',
    'Random weights, Q8_0, GPT-2’s vocabulary: `150m` and `13m` of engine/models/recipes.ts. In the 13m model the output layer and the sampling of 50,257 logits are nearly all of the work.',
  ],
  rows,
});
