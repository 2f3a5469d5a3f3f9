/**
 * What the size of a step's prompt chunk does on a GPU, where the default is 1,024: the arguments are those of case.ts.
 *
 *     node dist/bench/gpu/prompts.bench.js 8b cuda
 */
import { EngineDriver, randomJob } from '../support/engine-driver.js';
import type { Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { gpuCase } from './case.js';

const { file, gpu, trial, brief, threads, keep } = await gpuCase();
const CHUNKS = trial ? [64, 256] : brief ? [512, 1024] : [256, 512, 1024, 2048];
const SEATS = trial ? 4 : 32;
const CONTEXT = trial ? 512 : 6144;
const LONG = trial ? 400 : 5000;
const RUNS = brief ? 1 : 3;

const rows: Row[] = [];
for (const prefillTokensPerStep of CHUNKS) {
  const engine = await EngineDriver.start(file, SEATS, {
    threads,
    gpu,
    contextPerSeat: CONTEXT,
    prefillTokensPerStep,
    prefillShare: 50,
    prefixReuse: 'off',
  });
  await longPrompt(engine);
  const alone: number[] = [];
  const gaps: number[] = [];
  const first: number[] = [];
  for (let run = 0; run < RUNS; run += 1) {
    alone.push(await longPrompt(engine));
    const beside = await longBesideReplies(engine);
    gaps.push(...beside.gaps);
    first.push(beside.firstMs);
  }
  const load = trial ? { promptTokens: 64, tokens: 16 } : { promptTokens: 512, tokens: 128 };
  const full = await engine.closedLoop(SEATS, 4 * SEATS, () => load);
  await engine.close();
  rows.push({
    'tokens a chunk': prefillTokensPerStep,
    'long prompt alone, tokens/s': LONG / (median(alone) / 1000),
    'its first token beside replies, ms': median(first),
    'gap p50 of the replies, ms': median(gaps),
    'gap p99 of the replies, ms': quantile(gaps, 0.99),
    'all seats busy, generated tokens/s': full.tokens / full.seconds,
  });
  process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
}
await keep(
  'prompts',
  'The size of a prompt chunk',
  `A prompt of ${LONG} tokens alone, and beside replies on all other of ${SEATS} seats with the default \`prefillShare\`: when its first token came, and the gaps between the replies' tokens until then; medians of ${RUNS}. All seats busy: 512 prompt tokens and 128 generated a request, all at once, the next when one ended.`,
  rows,
);

/** Ms until the first token of a long prompt that runs alone. */
async function longPrompt(engine: EngineDriver): Promise<number> {
  let firstMs = NaN;
  await engine.run([{ kind: 'generate', job: randomJob(1, { promptTokens: LONG, tokens: 1 }) }], ({ output, atMs }) => {
    if (output.kind === 'finished') firstMs = atMs;
    return undefined;
  });
  return firstMs;
}

/** The long prompt starts once each other seat has a reply; when its first token came, the others are cancelled. */
async function longBesideReplies(engine: EngineDriver): Promise<{ gaps: number[]; firstMs: number }> {
  const last = new Map<number, number>();
  const gaps: number[] = [];
  let sentMs: number | undefined;
  let firstMs = NaN;
  const others = SEATS - 1;
  await engine.run(
    Array.from({ length: others }, (_, i) => ({
      kind: 'generate' as const,
      job: randomJob(i, { promptTokens: 64, tokens: CONTEXT - 200 }),
    })),
    ({ index, output, atMs }) => {
      if (output.kind !== 'piece' && output.kind !== 'finished') return undefined;
      if (index === others) {
        firstMs = atMs - (sentMs ?? 0);
        return 'enough';
      }
      const before = last.get(index);
      last.set(index, atMs);
      if (sentMs !== undefined && before !== undefined) gaps.push(atMs - before);
      if (sentMs !== undefined || last.size < others) return undefined;
      sentMs = atMs;
      return [{ kind: 'generate', job: randomJob(others, { promptTokens: LONG, tokens: 1 }) }];
    },
  );
  return { gaps, firstMs };
}
