import type { AddonRun } from './addon.js';
import type { PartResult, Run } from '../scheduler/decoder.js';

/**
 * Bounds of the polling interval of a run whose steps are long enough to be reported one by one: several polls a step.
 * Notifications from the run would cost its steps more than polling costs.
 */
const LOOK_MS = { least: 1, most: 8, ofStep: 1 / 8 } as const;

/**
 * Polls a run with this many parts until it has ended, and reports its steps meanwhile. Resolves with the results not
 * yet reported; rejects as the run does. `stepMs`: the expected time of a step. `seen` is called first, with the number
 * of steps so far and the time of each.
 */
export async function watched(
  run: AddonRun,
  { everyMs, made }: Run,
  parts: number,
  stepMs: number,
  seen: (steps: number, stepMs: number) => void,
): Promise<PartResult[]> {
  const from = performance.now();
  let steps = 0;
  let eachMs = stepMs;
  const take = (): PartResult[] => {
    const picks = run.take();
    if (picks.length === 0) return [];
    steps += picks.length / parts;
    eachMs = (performance.now() - from) / steps;
    seen(steps, eachMs);
    return tokensOf(picks, parts);
  };
  let looking: NodeJS.Timeout | undefined;
  const look = (): void => {
    looking = setTimeout(
      () => {
        const results = take();
        if (results.length > 0) made(results);
        look();
      },
      lookMs(eachMs, everyMs),
    );
  };
  look();
  try {
    await run.ended;
    return take();
  } finally {
    clearTimeout(looking);
  }
}

/**
 * The time of the next poll for steps of this length. Short steps are polled no more often than they may be reported:
 * if the polling thread shares the worker's core, each poll makes a step a quarter longer.
 */
function lookMs(stepMs: number, everyMs: number): number {
  return stepMs < everyMs ? everyMs : Math.max(LOOK_MS.least, Math.min(stepMs * LOOK_MS.ofStep, LOOK_MS.most));
}

/** The picks of some steps for each of the parts. */
function tokensOf(picks: Int32Array, parts: number): PartResult[] {
  return Array.from({ length: parts }, (_, i) => {
    const then: number[] = [];
    for (let at = i + parts; at < picks.length; at += parts) then.push(picks[at] ?? -1);
    return { kind: 'token', token: picks[i] ?? -1, then };
  });
}
