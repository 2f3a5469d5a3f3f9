/**
 * When a run is polled for the tokens of its steps: about once a step, just before it is expected to end. The polling thread may
 * share a core with the thread that computes, and each poll then delays the step.
 */

/** Of a step: the first poll comes so much before its expected end, and later ones follow each other after `again`. */
const OF_STEP = { early: 1 / 12, again: 1 / 8 } as const;

/** Between two polls, ms. */
const LEAST_MS = 1;
/** Between two polls of a step that takes longer than expected, or of which nothing is known, ms. */
const MOST_MS = 8;

export class StepPolls {
  readonly #everyMs: number;
  #foundAt: number;
  #stepMs: number;
  #found = true;

  /**
   * `now`: when the run starts, ms; `stepMs`: the expected time of a step, Infinity if it is not known; `everyMs`: shorter steps are
   * polled together, so often: each poll would make one a quarter longer.
   */
  constructor(now: number, stepMs: number, everyMs: number) {
    this.#foundAt = now;
    this.#stepMs = stepMs;
    this.#everyMs = everyMs;
  }

  /** The time of a step, as the last poll that found one showed it. */
  get stepMs(): number {
    return this.#stepMs;
  }

  /** The time from the start, or from the last poll, to the next poll, ms. */
  get nextMs(): number {
    if (this.#stepMs < this.#everyMs) return this.#everyMs;
    if (this.#found && Number.isFinite(this.#stepMs)) return Math.max(LEAST_MS, this.#stepMs * (1 - OF_STEP.early));
    return Math.max(LEAST_MS, Math.min(this.#stepMs * OF_STEP.again, MOST_MS));
  }

  /** A poll at `now` found so many steps. */
  polled(now: number, steps: number): void {
    this.#found = steps > 0;
    if (!this.#found) return;
    this.#stepMs = (now - this.#foundAt) / steps;
    this.#foundAt = now;
  }
}
