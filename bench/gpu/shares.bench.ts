/**
 * What `stepMs` does to prompts that come while all seats are busy, on a GPU: the arguments are those of case.ts.
 *
 *     node dist/bench/gpu/shares.bench.js 8b cuda
 */
import { EngineDriver, randomJob, type Job } from '../support/engine-driver.js';
import type { Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { gpuCase } from './case.js';

const { file, gpu, trial, brief, threads, keep } = await gpuCase();
const TARGETS_MS = trial || brief ? [50, 100, 200] : [50, 100, 200, 400];
const SEATS = trial ? 4 : 64;
const REPLIES = (brief ? 2 : 4) * SEATS;
const PROMPT_TOKENS = trial ? 64 : 512;
const TOKENS = trial ? 16 : 128;

const rows: Row[] = [];
for (const stepMs of TARGETS_MS) {
  const engine = await EngineDriver.start(file, SEATS, {
    threads,
    gpu,
    contextPerSeat: PROMPT_TOKENS + 2 * TOKENS,
    prefillTokensPerStep: 0,
    stepMs,
  });
  // The planner learns what steps take, as in an engine that has run for a while.
  await engine.round(SEATS, { promptTokens: PROMPT_TOKENS, tokens: TOKENS / 8 });
  const sentMs: number[] = [];
  const lastMs = new Map<number, number>();
  const first: number[] = [];
  const gaps: number[] = [];
  let tokens = 0;
  let endedMs = 0;
  const next = (atMs: number): Job => {
    const i = sentMs.push(atMs) - 1;
    // From half to one and a half times as many, so that replies do not begin and end together.
    const some = Math.round(TOKENS * (0.5 + ((i * 37) % 64) / 63));
    return { kind: 'generate', job: randomJob(i, { promptTokens: PROMPT_TOKENS, tokens: some }) };
  };
  await engine.run(
    Array.from({ length: SEATS }, () => next(0)),
    ({ index, output, atMs }) => {
      if (output.kind === 'piece') {
        const before = lastMs.get(index);
        if (before === undefined) first.push(atMs - (sentMs[index] ?? 0));
        else gaps.push(atMs - before);
        lastMs.set(index, atMs);
      }
      if (output.kind === 'finished') tokens += output.completionTokens;
      if (output.kind !== 'done') return undefined;
      endedMs = atMs;
      return sentMs.length < REPLIES ? [next(atMs)] : undefined;
    },
  );
  await engine.close();
  rows.push({
    'stepMs, ms': stepMs,
    'tokens/s': (tokens * 1000) / endedMs,
    'TTFT p50 ms': median(first),
    'TTFT p99 ms': quantile(first, 0.99),
    'gap p50 ms': median(gaps),
    'gap p99 ms': quantile(gaps, 0.99),
  });
  process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
}
await keep(
  'targets',
  'The time of a step that prompts fill, with all seats busy',
  `${SEATS} callers of the engine process alone, each of which sends its next prompt when its reply has ended, ${REPLIES} replies in all: prompts of ${PROMPT_TOKENS} tokens, replies of ${TOKENS} on average, temperature 1, \`prefillTokensPerStep\` as many as suit the device.`,
  rows,
);
