/**
 * Learned admission beside the best fixed `queue.maxWaitMs` and an oracle (oracle.ts), in simulated time:
 *
 *     node dist/bench/admission/patience/grid.js MINUTES [PATTERN] [PIECE]
 *
 * MINUTES are simulated; cells are chosen by a regular expression, for example '^short/(2|8) s/whole'. It stops after PIECE
 * minutes (4) and goes on when it is called again: what was simulated is kept in bench/.cache/patience, a folder for each code and a
 * file a cell. All cells of the present code that are there go to bench/results.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { digestOf, filesOf } from '../../support/bench-files.js';
import { keep, type Row } from '../../support/results.js';
import { callers, ENDURANCES, LOADS, MIXES, type Endurance, type Kind, type Mix } from './callers.js';
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
/** Cells are kept by the code that they are of. */
const HERE = 'bench/admission/patience';
const CODE = [`${HERE}/grid.ts`, ...filesOf(`${HERE}/simulate.ts`), ...filesOf(`${HERE}/oracle.ts`)];
const CACHE = `bench/.cache/patience/${digestOf(CODE)}`;
const KINDS: readonly Kind[] = ['stream', 'whole'];

const minutes = Number(process.argv[2] ?? 10);
const untilMs = minutes * 60_000;
const pattern = new RegExp(process.argv[3] ?? '');
const pieceMs = Number(process.argv[4] ?? 4) * 60_000;

/** What the learning queue is compared with. */
interface Beside {
  readonly fixed: { readonly maxWaitMs: number; readonly good: number };
  readonly oracle: OracleFigures;
}

interface Cell {
  readonly name: string;
  readonly mix: Mix;
  readonly endurance: Endurance;
  readonly kind: Kind;
  readonly load: number;
}

const cells = MIXES.flatMap((mix) =>
  ENDURANCES.flatMap((endurance) =>
    KINDS.flatMap((kind) =>
      LOADS.map((load): Cell => ({
        name: `${mix.name}/${endurance.name}/${kind}/${load}`,
        mix,
        endurance,
        kind,
        load,
      })),
    ),
  ),
);

mkdirSync(CACHE, { recursive: true });
for (const cell of cells.filter(({ name }) => pattern.test(name))) {
  if (performance.now() > pieceMs) {
    process.stdout.write('more to do: call it again\n');
    break;
  }
  const row = await kept(`learned-${minutes}-${cell.name}`, () => compared(cell));
  process.stdout.write(`${Object.values(row).join(' | ')}\n`);
}

const rows = cells.flatMap(({ name }): Row[] => {
  const file = fileOf(`learned-${minutes}-${name}`);
  return readdirSync(CACHE).includes(file) ? [JSON.parse(readFileSync(`${CACHE}/${file}`, 'utf8')) as Row] : [];
});
const over = rows.filter(({ load }) => Number(load) > 1);
const parts = over.map((row) => Number(row['of oracle']));
await keep('patience', {
  title: 'Overload by what is learned of callers, simulated',
  simulated: true,
  about: [
    `8 seats, six accounts that ask for the same, Poisson arrivals, ${minutes} simulated minutes a cell, of which the first two are not counted (where patience changes at half time, all before a minute after that). ${rows.length} of ${cells.length} cells.`,
    'Good: seat time of callers who got what they waited for, over all seat time. Oracle: the best of a queue that knows the distributions (bench/admission/patience/oracle.ts). Fixed: the best of seven fixed `queue.maxWaitMs` without learning, in that cell. Refused late: after a wait. Long: of the long requests, served; the same of the oracle.',
  ],
  rows,
  conclusions: [
    `From 1.2 times the load on, ${parts.filter((part) => part >= 0.97).length} of ${parts.length} cells reach 0.97 of the oracle (worst ${Math.min(...parts).toFixed(3)}); ${over.filter((row) => Number(row['beside fixed']) >= -0.02).length} are not below the best fixed wait by more than 0.02. At 0.8 times the load the most that was refused is ${Math.max(0, ...rows.filter(({ load }) => Number(load) < 1).map((row) => Number(row['refused']))).toFixed(4)}.`,
  ],
});

async function compared({ name, mix, endurance, kind, load }: Cell): Promise<Row> {
  const list = callers(load, endurance, mix, untilMs, SEED);
  // A patience that changes at half time must be learned within a minute.
  const fromMs = endurance.name.includes('then') ? untilMs / 2 + 60_000 : LEARNING_MS;
  const toMs = untilMs - TAIL_MS;
  const run = async (maxWaitMs: number, learns: boolean): Promise<Figures> =>
    figuresOf(await simulate(list, { kind, untilMs, maxWaitMs, learns }), fromMs, toMs);
  const learned = await run(LEARNS_UP_TO_MS, true);
  const { fixed, oracle: most } = await kept(`beside-${minutes}-${name}`, async (): Promise<Beside> => {
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

function fileOf(name: string): string {
  return `${name.replaceAll(/[^a-z0-9.]+/gi, '-')}.json`;
}

async function kept<T>(name: string, make: () => Promise<T>): Promise<T> {
  const file = `${CACHE}/${fileOf(name)}`;
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as T;
  } catch {
    const made = await make();
    writeFileSync(file, JSON.stringify(made));
    return made;
  }
}
