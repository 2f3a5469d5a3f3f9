/**
 * Learned admission (FairQueueConfig.learns) beside the best fixed `queue.maxWaitMs`, in simulated time. The service does not
 * use it yet: with it the queue's fairness tests fail. It prints a line a cell of the grid:
 *
 *     node dist/bench/admission/patience/grid.js MINUTES [PATTERN]     MINUTES simulated; cells by a regular expression
 *
 * for example `grid.js 12 '^short/(2|8) s/whole'`. All cells of an hour each take hours.
 */
import { callers, ENDURANCES, LOADS, MIXES, type Endurance, type Kind, type Mix } from './callers.js';
import { figuresOf, simulate } from './simulate.js';

const FIXED_MS = [125, 250, 500, 1000, 2000, 4000, 8000];
/** The queue's default. */
const LEARNS_UP_TO_MS = 10_000;
const SEED = 1;
/** What is learned at first is left out. */
const LEARNING_MS = 120_000;
/** Requests of the last seconds may still run at the end. */
const TAIL_MS = 10_000;

const untilMs = Number(process.argv[2] ?? 12) * 60_000;
const pattern = new RegExp(process.argv[3] ?? '');

for (const mix of MIXES)
  for (const endurance of ENDURANCES)
    for (const kind of ['stream', 'whole'] as const)
      for (const load of LOADS) {
        const name = `${mix.name}/${endurance.name}/${kind}/${load}`;
        if (!pattern.test(name)) continue;
        process.stdout.write(`${name.padEnd(44)} ${await cell(mix, endurance, kind, load)}\n`);
      }

async function cell(mix: Mix, endurance: Endurance, kind: Kind, load: number): Promise<string> {
  const list = callers(load, endurance, mix, untilMs, SEED);
  // A patience that changes at half time is to be known a minute later.
  const fromMs = endurance.name.includes('then') ? untilMs / 2 + 60_000 : LEARNING_MS;
  const run = async (maxWaitMs: number, learns: boolean): Promise<ReturnType<typeof figuresOf>> =>
    figuresOf(await simulate(list, { kind, untilMs, maxWaitMs, learns }), fromMs, untilMs - TAIL_MS);
  const learned = await run(LEARNS_UP_TO_MS, true);
  let best = { maxWaitMs: 0, good: 0 };
  for (const maxWaitMs of FIXED_MS) {
    const { good } = await run(maxWaitMs, false);
    if (good > best.good) best = { maxWaitMs, good };
  }
  const ratio = (learned.good / best.good).toFixed(3);
  return `${ratio} of maxWaitMs ${best.maxWaitMs}: good seat time ${learned.good.toFixed(3)} of ${best.good.toFixed(3)}, refused ${learned.refused.toFixed(3)}`;
}
