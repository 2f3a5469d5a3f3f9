/**
 * Where the time goes while prompts that come at once become replies: each decode of the step loop, by what was in it. Several
 * rounds on one loop, since it plans the first without any measurement. The arguments are those of case.ts.
 *
 *     node dist/bench/gpu/decodes.bench.js 8b cuda
 */
import { loadRuntime } from '../../engine/llama/runtime.js';
import type { StepPart } from '../../engine/scheduler/decoder.js';
import { STEP_MS } from '../../engine/scheduler/step-planner.js';
import { stepsOf } from '../../engine/scheduler/jobs.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import { warmUp } from '../../engine/scheduler/warm-up.js';
import { randomJob } from '../support/engine-driver.js';
import type { Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { gpuCase } from './case.js';

const { file, gpu, trial, brief, threads, keep } = await gpuCase();
const SEATS = trial ? 8 : 64;
const LOAD = { promptTokens: trial ? 64 : 512, tokens: trial ? 16 : 128, temperature: 0 };
const CHUNK = trial ? 64 : 512;
const ROUNDS = brief ? 2 : 4;
/** Sequences of decodes that are shown as one row. */
const BAND = SEATS / 4;

/** A call of the decoder: one decode, or a run of several of the same replies. */
interface Call {
  readonly parts: readonly StepPart[];
  readonly decodes: number;
  /** From the round's start. */
  readonly fromMs: number;
  readonly toMs: number;
}

const setup = {
  file,
  kind: 'chat',
  seats: SEATS,
  contextPerSeat: LOAD.promptTokens + LOAD.tokens + 16,
  threads,
  gpu,
  flashAttention: 'auto',
  prefillTokensPerStep: CHUNK,
  prefillShare: 100,
  prefixReuse: 'auto',
  heartbeatMs: 1000,
} as const;
const runtime = await loadRuntime(setup);
const { decoder, tokens } = runtime;
const device = runtime.gpu === false ? 'cpu' : 'gpu';
const limits = {
  ...setup,
  ...(device === 'gpu' && { stepMs: STEP_MS }),
  origin: { weights: '', kv: runtime.kv },
};
await warmUp(decoder, tokens, limits, device);

let calls: Call[] = [];
let roundFrom = performance.now();
const step = decoder.step.bind(decoder);
/** Records a call that ends now. */
function record(parts: readonly StepPart[], decodes: number, fromMs: number): void {
  calls.push({ parts, decodes, fromMs, toMs: performance.now() - roundFrom });
}
decoder.step = async function* (parts, run) {
  const fromMs = performance.now() - roundFrom;
  const running = step(parts, run);
  for (let decodes = 0; ;) {
    const { value, done } = await running.next();
    decodes += stepsOf(value);
    if (done === true) {
      record(parts, decodes, fromMs);
      return value;
    }
    yield value;
  }
};

let left = 0;
let ended = (): void => undefined;
const loop = new StepLoop(decoder, { ...tokens, isEnd: () => false }, limits, (_, outputs) => {
  for (const output of outputs) {
    if (output.kind === 'failed') throw new Error(output.reason);
    if (output.kind === 'done' && --left === 0) ended();
  }
});
const rows: Row[] = [];
for (let round = 1; round <= ROUNDS; round += 1) {
  calls = [];
  left = SEATS;
  roundFrom = performance.now();
  const all = new Promise<void>((resolve) => (ended = resolve));
  for (let i = 0; i < SEATS; i += 1) loop.generate(round * SEATS + i, randomJob(round * SEATS + i, LOAD));
  await all;
  rows.push(...rowsOf(round, performance.now() - roundFrom));
}
await loop.close();
await runtime.dispose();
await keep(
  'decodes',
  'The decodes of prompts that come at once, and of their replies',
  `${SEATS} prompts of ${LOAD.promptTokens} tokens at once and ${LOAD.tokens} generated for each, chunks of up to ${CHUNK} tokens, \`prefillShare\` 100; ${ROUNDS} rounds one after another, of which the first is planned without measurements. Sequences: that have tokens in the decode. Runs of ids: contiguous ones, each of which llama.cpp computes by itself, before free sequences close gaps.`,
  rows,
);

/** A row for each kind of decode and band of sequences, and one for the time between them. */
function rowsOf(round: number, ms: number): Row[] {
  const kinds = new Map<string, Call[]>();
  for (const call of calls) {
    const kind = kindOf(call);
    kinds.set(kind, [...(kinds.get(kind) ?? []), call]);
  }
  const shown = [...kinds].map(([kind, of]): Row => {
    const decodes = of.reduce((sum, each) => sum + each.decodes, 0);
    return {
      round,
      decode: kind,
      decodes,
      'prompt tokens a decode': median(of.map(({ parts }) => promptTokens(parts))),
      'most runs of ids': Math.max(...of.map(({ parts }) => runsOf(parts))),
      'median ms': median(of.map((call) => (call.toMs - call.fromMs) / call.decodes)),
      'ms in all': of.reduce((sum, { fromMs, toMs }) => sum + toMs - fromMs, 0),
    };
  });
  const within = calls.reduce((sum, { fromMs, toMs }) => sum + toMs - fromMs, 0);
  const between: Row = { round, decode: 'none: between them', 'ms in all': ms - within };
  const sum: Row = {
    round,
    decode: `all: ${((SEATS * LOAD.tokens * 1000) / ms).toFixed(0)} tokens/s`,
    'ms in all': ms,
  };
  for (const row of [...shown, between, sum]) process.stdout.write(`${JSON.stringify(row)}\n`);
  return [...shown, between, sum];
}

function kindOf({ parts }: Call): string {
  const replies = parts.filter(({ tokens }) => tokens.length === 1).length;
  if (replies === 0) return 'prompts alone';
  const most = Math.ceil(parts.length / BAND) * BAND;
  const sequences = `${most - BAND + 1} to ${most} sequences`;
  return replies === parts.length ? `${sequences}, a token each` : `${sequences}, with prompts`;
}

/** Of the parts that have more than one token. */
function promptTokens(parts: readonly StepPart[]): number {
  return parts.reduce((sum, part) => sum + (part.tokens.length > 1 ? part.tokens.length : 0), 0);
}

function runsOf(parts: readonly StepPart[]): number {
  return parts.filter(({ sequence }, i) => parts[i - 1]?.sequence !== sequence - 1).length;
}
