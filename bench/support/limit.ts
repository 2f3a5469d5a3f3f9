/** The engine process against llama-batched-bench, which decodes the same batches and samples nothing: the limit. */
import type { EngineSetup } from '../../engine/protocol/setup.js';
import { EngineDriver, type Load } from './engine-driver.js';
import { peakMiB } from './memory.js';
import { batchedBench } from './peers.js';
import type { Row } from './results.js';
import { median } from './stats.js';

type Sampling = Omit<Load, 'promptTokens' | 'tokens'>;

const GREEDY: Sampling = { temperature: 0 };
const SAMPLED: Sampling = { temperature: 1 };
/** The sampling parameters of many clients. */
const NARROWED: Sampling = { temperature: 1, topP: 0.9, frequencyPenalty: 0.5 };

/** Steps before the measurement, unless the case has another number. */
const WARM_STEPS = 1500;

/** What an engine and llama.cpp's own bench both run. */
export interface LimitCase {
  /** For the table. */
  readonly model: string;
  readonly file: string;
  readonly threads: number;
  readonly gpu: EngineSetup['gpu'];
  /** A row of the table for each of these numbers. */
  readonly sequences: readonly number[];
  readonly promptTokens: number;
  readonly tokens: number;
  /** Pairs of runs. */
  readonly runs: number;
  /** Replies of one run, at least; at many sequences one batch is a run. */
  readonly replies: number;
  readonly warmSteps?: number;
  /** As BatchedOptions has it. */
  readonly libraries?: 'peers' | 'npm';
}

/** A pair of runs, tokens a second. */
interface Pair {
  readonly peer: number;
  readonly greedy: number;
  readonly sampled: number;
  readonly narrowed: number;
  /** Memory, MiB. */
  readonly peerPeak: number;
  readonly enginePeak: number;
}

/**
 * A row for each number of sequences: medians of paired runs, one of the peer’s, then of the engine with each kind of
 * sampling. Each pair has its own engine and its own peer: the placement of their memory changes some percent, and
 * stays for a process.
 */
export async function limitRows(options: LimitCase): Promise<Row[]> {
  const pairs = new Map(options.sequences.map((sequences): [number, Pair[]] => [sequences, []]));
  for (let i = 0; i < options.runs; i++) {
    const engine = await warmEngine(options);
    for (const [sequences, all] of pairs) {
      const pair = await pairOf(engine, sequences, options);
      process.stdout.write(`${JSON.stringify({ sequences, ...pair })}\n`);
      all.push(pair);
    }
    await engine.close();
  }
  return [...pairs].map(([sequences, all]) => {
    const row = {
      model: options.model,
      threads: options.threads,
      sequences,
      'llama-batched-bench, tokens/s': median(all.map(({ peer }) => peer)),
      'ours, greedy': median(all.map(({ greedy }) => greedy)),
      'ratio, greedy': median(all.map(({ peer, greedy }) => greedy / peer)),
      'ours, temperature 1': median(all.map(({ sampled }) => sampled)),
      'ratio, temperature 1': median(all.map(({ peer, sampled }) => sampled / peer)),
      'ratio, top_p and penalty': median(all.map(({ peer, narrowed }) => narrowed / peer)),
      'peak MiB, llama-batched-bench': median(all.map(({ peerPeak }) => peerPeak)),
      'peak MiB, our engine': median(all.map(({ enginePeak }) => enginePeak)),
    };
    process.stdout.write(`${JSON.stringify(row)}\n`);
    return row;
  });
}

/**
 * An engine serves for days: its first thousand steps, in which JavaScript is interpreted and compiled, do not
 * represent its speed.
 */
async function warmEngine(options: LimitCase): Promise<EngineDriver> {
  const { file, threads, gpu, promptTokens, tokens, sequences } = options;
  const contextPerSeat = promptTokens + tokens + 16;
  const engine = await EngineDriver.start(file, Math.max(...sequences), {
    threads,
    gpu,
    contextPerSeat,
  });
  const { warmSteps = WARM_STEPS } = options;
  for (let steps = 0; steps < warmSteps; steps += options.replies * tokens) await ours(engine, 1, GREEDY, options);
  return engine;
}

async function pairOf(engine: EngineDriver, sequences: number, options: LimitCase): Promise<Pair> {
  await ours(engine, sequences, GREEDY, options);
  const { tokensPerSecond, peak } = await theirs(sequences, options);
  return {
    peer: tokensPerSecond,
    peerPeak: peak,
    greedy: await ours(engine, sequences, GREEDY, options),
    sampled: await ours(engine, sequences, SAMPLED, options),
    narrowed: await ours(engine, sequences, NARROWED, options),
    enginePeak: await peakMiB(engine.pid),
  };
}

async function ours(
  engine: EngineDriver,
  sequences: number,
  sampling: Sampling,
  { promptTokens, tokens, replies }: LimitCase,
): Promise<number> {
  const load = { promptTokens, tokens, ...sampling };
  const round = await engine.rounds(Math.max(sequences, replies), sequences, load);
  return round.tokens / round.seconds;
}

async function theirs(sequences: number, options: LimitCase): Promise<{ tokensPerSecond: number; peak: number }> {
  const { file, threads, gpu, promptTokens, tokens, replies, libraries = 'peers' } = options;
  const batches = Array.from({ length: Math.max(1, replies / sequences) }, () => sequences);
  const more = gpu === false ? ['-ngl', '0'] : ['-ngl', '99'];
  const runs = await batchedBench(file, { threads, promptTokens, tokens, sequences: batches, more, libraries });
  const tokensPerSecond = runs.length / runs.reduce((sum, run) => sum + 1 / run.tokensPerSecond, 0);
  return { tokensPerSecond, peak: Math.max(...runs.map(({ peakMiB: each }) => each)) };
}
