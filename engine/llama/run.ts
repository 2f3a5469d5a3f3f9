import type { AddonRun } from './native.js';
import { NOT_A_NUMBER, NOT_NUMBERS } from './not-a-number.js';
import type { PartResult, Run } from '../scheduler/decoder.js';

/**
 * Polls a run with this many parts until it has ended, and reports its steps meanwhile. Resolves with the results not
 * yet reported; rejects as the run does. `stepMs`: the expected time of a step. `seen` is called first, with the number
 * of steps so far, the expected time of a further one, and the results.
 */
export async function watched(
  run: AddonRun,
  { everyMs, made }: Run,
  parts: number,
  stepMs: number,
  seen: (steps: number, stepMs: number, results: readonly PartResult[]) => void,
): Promise<PartResult[]> {
  const polls = new StepPolls(performance.now(), stepMs, everyMs);
  let steps = 0;
  let next: NodeJS.Timeout | undefined;
  const take = (): PartResult[] => {
    const picks = run.take();
    const found = picks.length / parts;
    polls.polled(performance.now(), found);
    if (found === 0) return [];
    steps += found;
    const results = tokensOf(picks, parts);
    seen(steps, polls.stepMs, results);
    return results;
  };
  const poll = (): void => {
    next = setTimeout(() => {
      const results = take();
      if (results.length > 0) made(results);
      poll();
    }, polls.nextMs);
  };
  poll();
  try {
    await run.ended;
    return take();
  } finally {
    clearTimeout(next);
  }
}

/** The picks of some steps for each of the parts. */
function tokensOf(picks: Int32Array, parts: number): PartResult[] {
  return Array.from({ length: parts }, (_, i) => {
    const then: number[] = [];
    for (let at = i + parts; at < picks.length; at += parts) then.push(picks[at] ?? -1);
    const token = picks[i] ?? -1;
    return token === NOT_A_NUMBER || then.includes(NOT_A_NUMBER) ? NOT_NUMBERS : { kind: 'token', token, then };
  });
}

/**
 * When a run is polled for the tokens of its steps: about twice a step, at the time when it is expected to end. The polling thread
 * may share a core with the thread that computes, and each poll then delays the step.
 */

/** Of a step: the first poll comes so much before its expected end, and later ones follow each other after `again`. */
const OF_STEP = { early: 1 / 12, again: 1 / 8 } as const;

/** A step is expected to take at most so many times as long as the one before: a single slow one does not delay the poll after it. */
const LONGER = 5 / 4;

/** Between two polls, ms. */
const LEAST_MS = 1;
/** Between two polls of a step that takes longer than expected, or of which nothing is known, ms. */
const MOST_MS = 8;

export class StepPolls {
  readonly #everyMs: number;
  #foundAt: number;
  /** The time of a step, as the last poll that found one showed it, and as it is expected of the next one. */
  #tookMs: number;
  #stepMs: number;
  #found = true;

  /**
   * `now`: when the run starts, ms; `stepMs`: the expected time of a step, Infinity if it is not known; `everyMs`: shorter steps are
   * polled together, so often: each poll would make one a quarter longer.
   */
  constructor(now: number, stepMs: number, everyMs: number) {
    this.#foundAt = now;
    this.#tookMs = stepMs;
    this.#stepMs = stepMs;
    this.#everyMs = everyMs;
  }

  /** The expected time of a step. */
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
    const tookMs = (now - this.#foundAt) / steps;
    this.#stepMs = Math.min(tookMs, this.#tookMs * LONGER);
    this.#tookMs = tookMs;
    this.#foundAt = now;
  }
}
