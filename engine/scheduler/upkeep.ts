import type { Jobs } from './jobs.js';
import type { Sequences } from './sequences.js';

/**
 * Decides when the step loop drops states that are too old or whose account is forgotten: in the round after it was
 * asked to, and while jobs of a forgotten scope run.
 */
export class Upkeep {
  readonly #sequences: Sequences;
  readonly #jobs: Jobs;
  #due = false;
  #urgent = false;
  /** Called at its end. */
  readonly #dropped: (() => void)[] = [];

  constructor(sequences: Sequences, jobs: Jobs) {
    this.#sequences = sequences;
    this.#jobs = jobs;
  }

  /** Whether it is to run in the next round. */
  get due(): boolean {
    return this.#due;
  }

  /** Whether a prefill ahead of the next request has to end, so that the states are dropped at once. */
  get urgent(): boolean {
    return this.#urgent;
  }

  /** Settles when all that was to be dropped is dropped; never, if the loop is closed before. */
  request(urgent: boolean): Promise<void> {
    this.#due = true;
    this.#urgent ||= urgent;
    return new Promise((resolve) => this.#dropped.push(resolve));
  }

  /** Once a round, between decodes. */
  async round(): Promise<void> {
    if (!this.#due) return;
    this.#due = this.#urgent = false;
    const dropped = this.#dropped.splice(0);
    if (await this.#sequences.tidy((scope) => this.#jobs.uses(scope))) {
      this.#due = true;
      this.#dropped.unshift(...dropped);
    } else for (const each of dropped) each();
  }
}
