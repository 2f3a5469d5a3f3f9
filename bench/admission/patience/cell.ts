/** One cell of the grid, as a task of a worker (piscina): the learning queue, fixed waits and the oracle on the same callers. */
import type { Row } from '../../support/results.js';
import { callers, ENDURANCES, LOADS, MIXES, type Endurance, type Kind, type Mix } from './callers.js';
import { kept } from './kept.js';
import { oracle, type OracleFigures } from './oracle.js';
import { figuresOf, simulate, type Figures } from './simulate.js';

const FIXED_MS = [125, 250, 500, 1000, 2000, 4000, 8000];
/** The queue’s default. */
const LEARNS_UP_TO_MS = 10_000;
const SEED = 1;
/** The first minutes, in which the queue learns, are left out. */
const LEARNING_MS = 120_000;
/** Requests of the last seconds may still run at the end. */
const TAIL_MS = 10_000;
const KINDS: readonly Kind[] = ['stream', 'whole'];

interface Cell {
  readonly name: string;
  readonly mix: Mix;
  readonly endurance: Endurance;
  readonly kind: Kind;
  readonly load: number;
}

/** What the learning queue is compared with. */
interface Beside {
  readonly fixed: { readonly maxWaitMs: number; readonly good: number };
  readonly oracle: OracleFigures;
}

export interface CellTask {
  readonly name: string;
  /** Simulated. */
  readonly minutes: number;
  /** The folder for what was simulated. */
  readonly cache: string;
}

const CELLS: readonly Cell[] = MIXES.flatMap((mix) =>
  ENDURANCES.flatMap((endurance) =>
    KINDS.flatMap((kind) =>
      LOADS.map((load) => ({ name: `${mix.name}/${endurance.name}/${kind}/${load}`, mix, endurance, kind, load })),
    ),
  ),
);

/** All cells, in the order of the table. */
export const CELL_NAMES: readonly string[] = CELLS.map(({ name }) => name);

/** Where a cell's row is kept. */
export function keptAs(name: string, minutes: number): string {
  return `learned-${minutes}-${name}`;
}

/** The row of a cell; from the cache if it is there. Rejects if there is no such cell. */
export default async function rowOf({ name, minutes, cache }: CellTask): Promise<Row> {
  const cell = CELLS.find((each) => each.name === name);
  if (cell === undefined) throw new Error(`no cell ${name}`);
  return await kept(cache, keptAs(name, minutes), () => compared(cell, minutes, cache));
}

async function compared({ name, mix, endurance, kind, load }: Cell, minutes: number, cache: string): Promise<Row> {
  const untilMs = minutes * 60_000;
  const list = callers(load, endurance, mix, untilMs, SEED);
  // A patience that changes at half time must be learned within a minute.
  const fromMs = endurance.name.includes('then') ? untilMs / 2 + 60_000 : LEARNING_MS;
  const toMs = untilMs - TAIL_MS;
  const run = async (maxWaitMs: number, learns: boolean): Promise<Figures> =>
    figuresOf(await simulate(list, { kind, untilMs, maxWaitMs, learns }), fromMs, toMs);
  const learned = await run(LEARNS_UP_TO_MS, true);
  const { fixed, oracle: most } = await kept(cache, `beside-${minutes}-${name}`, async (): Promise<Beside> => {
    let best = { maxWaitMs: 0, good: 0 };
    for (const maxWaitMs of FIXED_MS) {
      const { good } = await run(maxWaitMs, false);
      if (good > best.good) best = { maxWaitMs, good };
    }
    return { fixed: best, oracle: oracle(list, { kind, mix, endurance, untilMs, fromMs, toMs }) };
  });
  const shown = (value: number | null): string => (value === null || Number.isNaN(value) ? '' : value.toFixed(3));
  return {
    replies: mix.name,
    patience: endurance.name,
    kind,
    load,
    good: shown(learned.good),
    oracle: shown(most.good),
    'of oracle': shown(learned.good / most.good),
    fixed: shown(fixed.good),
    'at ms': fixed.maxWaitMs,
    'beside fixed': shown(learned.good - fixed.good),
    refused: shown(learned.refused),
    late: shown(learned.refusedLate),
    left: shown(learned.left),
    vain: shown(learned.vain),
    long: shown(learned.longServed),
    'oracle’s': shown(most.longServed),
  };
}
