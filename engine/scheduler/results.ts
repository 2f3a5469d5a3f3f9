import type { Decoder, PartResult } from './decoder.js';
import { EngineFault } from './faults.js';
import type { Output } from '../protocol/jobs.js';
import type { Sequences } from './sequences.js';
import type { Jobs } from './jobs.js';
import type { BatchItem } from './batch-planner.js';

const NOTHING = new Uint32Array(0);

/** Number of steps in the results of a decode, of which each part has as many. */
export function stepsOf([first]: readonly PartResult[]): number {
  return first === undefined ? 0 : 1 + thenOf(first).length;
}

/** Passes the results of decodes to their branches, and records the tokens in the sequences. */
export class Results {
  readonly #decoder: Decoder;
  readonly #sequences: Sequences;
  readonly #jobs: Jobs;

  constructor(decoder: Decoder, sequences: Sequences, jobs: Jobs) {
    this.#decoder = decoder;
    this.#sequences = sequences;
    this.#jobs = jobs;
  }

  /**
   * `fed`: the input of each result; afterwards the input of the run's next step. Outputs of the jobs are added to
   * `out`. Halts a run in which a reply has ended.
   */
  deliver(items: readonly BatchItem[], results: readonly PartResult[], fed: Uint32Array[], out: Output[]): void {
    // All are recorded first: a job that fails wipes its prompt, of which other parts may be.
    for (const [i, result] of results.entries()) {
      const sequence = items[i]?.branch.sequence;
      if (sequence === undefined) continue;
      const tokens = fed[i] ?? NOTHING;
      if (result.kind === 'fault') this.#sequences.invalidated(sequence);
      else this.#sequences.evaluated(sequence, tokens, items.length === 1 && result.kind === 'filled');
      if (result.kind !== 'token') continue;
      const chosen = [result.token, ...thenOf(result)];
      fed[i] = Uint32Array.of(...chosen.slice(-1));
      if (chosen.length > 1) this.#sequences.evaluated(sequence, Uint32Array.from(chosen.slice(0, -1)), false);
    }
    for (const [i, result] of results.entries()) {
      const each = items[i];
      if (!each) continue;
      const { job, branch } = each;
      // An earlier step of the run has ended it.
      if (!this.#isRunning(each)) continue;
      try {
        if (result.kind === 'fault') throw new EngineFault(result.reason);
        branch.accept(result, out);
      } catch (error) {
        this.#jobs.fail(job, out, error);
      }
      if (!this.#isRunning(each)) this.#decoder.halt();
    }
  }

  /** Saves the states of prompts that have come to where they are to be saved. One that cannot be fails its job. */
  async save(items: readonly BatchItem[], out: Output[]): Promise<void> {
    for (const each of items) {
      const { job, branch, count } = each;
      if (count === 0 || !branch.progress.saves || !this.#isRunning(each)) continue;
      await this.#jobs.guard(job, out, () => this.#sequences.save(branch.sequence));
    }
  }

  #isRunning({ job, branch }: BatchItem): boolean {
    return this.#jobs.runs(job) && !branch.over;
  }
}

function thenOf(result: PartResult): readonly number[] {
  return result.kind === 'token' ? (result.then ?? []) : [];
}
