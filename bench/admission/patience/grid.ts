/**
 * Learned admission beside the best fixed `queue.maxWaitMs` and an oracle (oracle.ts), in simulated time, a cell on each core:
 *
 *     node dist/bench/admission/patience/grid.js MINUTES [PATTERN] [PIECE]
 *
 * MINUTES are simulated; cells are chosen by a regular expression, for example '^short/(2|8) s/whole'. It begins no cell after PIECE
 * minutes (4) and goes on when it is called again: what was simulated is kept in bench/.cache/patience, a folder for each code and a
 * file a cell. All cells of the present code that are there go to bench/results.
 */
import { mkdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Piscina } from 'piscina';
import { digestOf, filesOf } from '../../support/bench-files.js';
import { keep, type Row } from '../../support/results.js';
import { CELL_NAMES, keptAs, type CellTask } from './cell.js';
import { ifKept } from './kept.js';

/** Cells are kept by the code that they are of. */
const HERE = 'bench/admission/patience';
const CACHE = `bench/.cache/patience/${digestOf(filesOf(`${HERE}/cell.ts`))}`;

const minutes = Number(process.argv[2] ?? 10);
const pattern = new RegExp(process.argv[3] ?? '');
const pieceMs = Number(process.argv[4] ?? 4) * 60_000;

mkdirSync(CACHE, { recursive: true });
const cores = availableParallelism();
const pool = new Piscina<CellTask, Row>({
  filename: fileURLToPath(new URL('./cell.js', import.meta.url)),
  minThreads: cores,
  maxThreads: cores,
});
const due = CELL_NAMES.filter((name) => pattern.test(name));
// Each core takes the next cell when it is done with one, so that none is begun past the limit.
await Promise.all(
  Array.from({ length: cores }, async () => {
    while (performance.now() <= pieceMs) {
      const name = due.shift();
      if (name === undefined) return;
      const row = await pool.run({ name, minutes, cache: CACHE });
      process.stdout.write(`${Object.values(row).join(' | ')}\n`);
    }
  }),
);
await pool.destroy();
if (due.length > 0) process.stdout.write('more to do: call it again\n');

const rows = CELL_NAMES.flatMap((name): Row[] => {
  const row = ifKept(CACHE, keptAs(name, minutes)) as Row | undefined;
  return row === undefined ? [] : [row];
});
const over = rows.filter(({ load }) => Number(load) > 1);
const parts = over.map((row) => Number(row['of oracle']));
await keep('patience', {
  title: 'Overload by what is learned of callers, simulated',
  simulated: true,
  about: [
    `8 seats, six accounts that ask for the same, Poisson arrivals, ${minutes} simulated minutes a cell, of which the first two are not counted (where patience changes at half time, all before a minute after that). ${rows.length} of ${CELL_NAMES.length} cells.`,
    'Good: seat time of callers who got what they waited for, over all seat time. Oracle: the best of a queue that knows the distributions (bench/admission/patience/oracle.ts). Fixed: the best of seven fixed `queue.maxWaitMs` without learning, in that cell. Refused late: after a wait. Long: of the long requests, served; the same of the oracle.',
  ],
  rows,
  conclusions: [
    `From 1.2 times the load on, ${parts.filter((part) => part >= 0.97).length} of ${parts.length} cells reach 0.97 of the oracle (worst ${Math.min(...parts).toFixed(3)}); ${over.filter((row) => Number(row['beside fixed']) >= -0.02).length} are not below the best fixed wait by more than 0.02. At 0.8 times the load the most that was refused is ${Math.max(0, ...rows.filter(({ load }) => Number(load) < 1).map((row) => Number(row['refused']))).toFixed(4)}.`,
  ],
});
