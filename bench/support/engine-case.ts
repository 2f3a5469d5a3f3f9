import type { EngineSetup } from '../../engine/protocol/setup.js';

/** What an engine and llama.cpp's own bench both run. */
export interface EngineCase {
  readonly file: string;
  readonly threads: number;
  readonly gpu: EngineSetup['gpu'];
  /** A row of the table for each of these numbers. */
  readonly sequences: readonly number[];
  readonly promptTokens: number;
  readonly tokens: number;
  /** Pairs of runs. */
  readonly runs: number;
}
