import type { AddonRun } from './native.js';
import { NOT_A_NUMBER, NOT_NUMBERS } from './not-a-number.js';
import type { PartResult, Run } from '../scheduler/decoder.js';
import { StepPolls } from './step-polls.js';

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
