/** Several engine processes at once, each on a core or a device of its own, against as many of llama.cpp's own bench. */
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { EngineCase } from './engine-case.js';
import { EngineDriver } from './engine-driver.js';
import { batchedBench } from './peers.js';
import type { Row } from './results.js';
import { median } from './stats.js';

/** Of each process in a run, at least. */
const REPLIES = 8;

/** Where one process works. */
export interface Place {
  readonly setup?: Partial<EngineSetup>;
  readonly environment?: Readonly<Record<string, string>>;
}

export interface ReplicaCase extends EngineCase {
  readonly places: readonly Place[];
  /** Steps before anything is measured. */
  readonly warmSteps: number;
}

/** A row for each number of sequences: medians of paired runs, each with new engines. */
export async function replicaRows(given: ReplicaCase): Promise<Row[]> {
  const { places, sequences, runs } = given;
  const pairs = new Map(sequences.map((each): [number, { peer: number; engine: number }[]] => [each, []]));
  for (let run = 0; run < runs; run += 1) {
    const engines = await startedOn(places, given);
    for (const [each, all] of pairs) {
      const peer = await theirs(each, given);
      all.push({ peer, engine: await ours(engines, each, given) });
    }
    await Promise.all(engines.map((engine) => engine.close()));
  }
  const count = places.length === 2 ? 'two' : String(places.length);
  return [...pairs].map(([each, all]) => ({
    'sequences of each': each,
    [`${count} llama-batched-bench, tokens/s`]: median(all.map(({ peer }) => peer)),
    [`${count} replicas, tokens/s`]: median(all.map(({ engine }) => engine)),
    ratio: median(all.map(({ peer, engine }) => engine / peer)),
  }));
}

async function startedOn(places: readonly Place[], given: ReplicaCase): Promise<EngineDriver[]> {
  const { file, threads, gpu, promptTokens, tokens, sequences, warmSteps } = given;
  const seats = Math.max(...sequences) * (given.places.length / places.length);
  const setup = { threads, gpu, contextPerSeat: promptTokens + tokens + 16 } as const;
  const engines = await Promise.all(
    places.map((place) => EngineDriver.start(file, seats, { ...setup, ...place.setup }, place.environment)),
  );
  for (let steps = 0; steps < warmSteps; steps += REPLIES * tokens) await ours(engines, 1, given);
  return engines;
}

/** Tokens a second of all at once: each counts for as long as it ran. */
async function ours(
  engines: readonly EngineDriver[],
  sequences: number,
  { promptTokens, tokens }: ReplicaCase,
): Promise<number> {
  const load = { promptTokens, tokens, temperature: 0 };
  const all = await Promise.all(engines.map((engine) => engine.rounds(Math.max(sequences, REPLIES), sequences, load)));
  return all.reduce((sum, { tokens, seconds }) => sum + tokens / seconds, 0);
}

async function theirs(
  sequences: number,
  { file, places, threads, gpu, promptTokens, tokens }: ReplicaCase,
): Promise<number> {
  const batches = Array.from({ length: Math.max(1, REPLIES / sequences) }, () => sequences);
  const more = ['-ngl', gpu === false ? '0' : '99'];
  const rates = await Promise.all(
    places.map(async ({ setup, environment = {} }) => {
      const where = setup?.cores === undefined ? {} : { cores: setup.cores };
      const given = { threads, promptTokens, tokens, sequences: batches, more, environment, ...where };
      const runs = await batchedBench(file, given);
      return runs.length / runs.reduce((sum, { tokensPerSecond }) => sum + 1 / tokensPerSecond, 0);
    }),
  );
  return rates.reduce((sum, rate) => sum + rate, 0);
}
