/** Our engine process against llama-batched-bench, which decodes the same batches and samples nothing: the limit. */
import type { EngineSetup } from '../../engine/protocol.js';
import { EngineDriver } from './engine-driver.js';
import { batchedBench } from './peers.js';
import type { Row } from './results.js';
import { median } from './stats.js';

/** Steps before anything is measured. */
const WARM_STEPS = 1500;

export interface LimitCase {
  /** For the table. */
  readonly model: string;
  readonly file: string;
  readonly threads: number;
  readonly gpu: EngineSetup['gpu'];
  readonly sequences: readonly number[];
  readonly promptTokens: number;
  readonly tokens: number;
  /** Pairs of runs. */
  readonly runs: number;
  /** Replies of one run, at least; at many sequences one batch is a run. */
  readonly replies: number;
}

/** A row for each number of sequences: medians of paired runs, one of the peer's, then ours greedy and at temperature 1. */
export async function limitRows(options: LimitCase): Promise<Row[]> {
  const { model, file, threads, gpu, promptTokens, tokens } = options;
  const contextPerSeat = promptTokens + tokens + 16;
  const engine = await EngineDriver.start(file, Math.max(...options.sequences), {
    threads,
    gpu,
    contextPerSeat,
    prefixReuse: 'off',
  });
  const ours = async (sequences: number, temperature: number): Promise<number> => {
    const load = { promptTokens, tokens, temperature };
    const round = await engine.rounds(Math.max(sequences, options.replies), sequences, load);
    return round.tokens / round.seconds;
  };
  const peer = async (sequences: number): Promise<number> => {
    const batches = Array.from({ length: Math.max(1, options.replies / sequences) }, () => sequences);
    const more = gpu === false ? ['-ngl', '0'] : ['-ngl', '99'];
    const runs = await batchedBench(file, { threads, promptTokens, tokens, sequences: batches, more });
    return runs.length / runs.reduce((sum, run) => sum + 1 / run.tokensPerSecond, 0);
  };
  // An engine serves for days: its first thousand steps, in which JavaScript is interpreted and compiled, are not its speed.
  for (let steps = 0; steps < WARM_STEPS; steps += options.replies * tokens) await ours(1, 0);
  const rows: Row[] = [];
  for (const sequences of options.sequences) {
    await ours(sequences, 0);
    const pairs: { peer: number; greedy: number; sampled: number }[] = [];
    for (let i = 0; i < options.runs; i++) {
      pairs.push({
        peer: await peer(sequences),
        greedy: await ours(sequences, 0),
        sampled: await ours(sequences, 1),
      });
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
  return rows;
}
