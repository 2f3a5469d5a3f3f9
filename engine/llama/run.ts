import type { AddonRun } from './addon.js';
import type { PartResult, Run } from '../scheduler/decoder.js';

/**
 * How often a run of steps that are long enough to be told of one by one is looked at: several times a step, within these
 * bounds. It is not asked to tell, for that would cost its steps more than looking costs anyone.
 */
const LOOK_MS = { least: 1, most: 8, ofStep: 1 / 8 } as const;

/**
 * Looks at a run of so many parts until it is over, and tells of its steps meanwhile. Resolves with what was not told;
 * rejects as the run does. `stepMs`: what a step is likely to take. `seen` hears first, of all steps so far, and of what
 * each took.
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
 * When a run whose steps take so long is looked at next. Short ones no more often than they may be told of: where the one who
 * looks was put on the worker's core, each look takes a step a quarter longer.
 */
function lookMs(stepMs: number, everyMs: number): number {
  return stepMs < everyMs ? everyMs : Math.max(LOOK_MS.least, Math.min(stepMs * LOOK_MS.ofStep, LOOK_MS.most));
}

/** What some steps picked for each of so many parts. */
function tokensOf(picks: Int32Array, parts: number): PartResult[] {
  return Array.from({ length: parts }, (_, i) => {
    const then: number[] = [];
    for (let at = i + parts; at < picks.length; at += parts) then.push(picks[at] ?? -1);
    return { kind: 'token', token: picks[i] ?? -1, then };
  });
}
