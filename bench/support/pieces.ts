/**
 * Benches of many minutes in pieces: measurements are kept in bench/.cache, and the next start continues after them.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { digestOf, filesOf, runningBench } from './bench-files.js';
import { processor } from './machine.js';
import { countNoises, NoiseMeter, type Noise } from './noise.js';
import type { Row } from './results.js';
import { median } from './stats.js';

/** From dist/bench/support. */
const PIECES = fileURLToPath(new URL('../../../bench/.cache/pieces/', import.meta.url));

const bench = runningBench();

/** A digest of what the bench depends on; '' if none runs. Taken before the bench, since files may be changed while it runs. */
const presentCode = bench === undefined ? '' : digestOf(filesOf(bench));

interface Kept<Piece> {
  /** What they are of. */
  readonly code: string;
  /** The processor that they are of. */
  readonly machine: string;
  readonly pieces: Piece[];
  /** Of each piece. */
  readonly noises: Noise[];
}

/**
 * Runs the missing ones of `count` pieces, one after another, and returns all. They are kept under `name` until
 * `forget`, or until the code is another one than `code`, a digest of it, or the processor another one.
 */
export async function inPieces<Piece>(
  name: string,
  count: number,
  make: (i: number) => Promise<Piece>,
  code = presentCode,
): Promise<readonly Piece[]> {
  const file = `${PIECES}${name}.json`;
  const kept = JSON.parse(await readFile(file, 'utf8').catch(() => '{}')) as Partial<Kept<Piece>>;
  const machine = processor();
  const { pieces = [], noises = [] } = kept.code === code && kept.machine === machine ? kept : {};
  await mkdir(PIECES, { recursive: true });
  while (pieces.length < count) {
    const noise = new NoiseMeter();
    pieces.push(await make(pieces.length));
    noises.push(noise.read());
    await writeFile(file, JSON.stringify({ code, machine, pieces, noises } satisfies Kept<Piece>));
    process.stdout.write(`${name}: ${pieces.length} of ${count}\n`);
  }
  countNoises(noises);
  return pieces;
}

/** The next start measures them anew. */
export async function forget(name: string): Promise<void> {
  await rm(`${PIECES}${name}.json`, { force: true });
}

/** Medians of tables with the same rows: of numbers, and of each number in cells like `1.5 / 20.3`. */
export function medianRows(tables: readonly (readonly Row[])[]): Row[] {
  return (tables[0] ?? []).map((row, i) =>
    Object.fromEntries(
      Object.keys(row).map((column) => [column, medianCell(tables.map((table) => table[i]?.[column] ?? ''))]),
    ),
  );
}

function medianCell(cells: readonly (number | string)[]): number | string {
  const [first = ''] = cells;
  if (typeof first === 'number') return median(cells.map(Number));
  const parts = cells.map((cell) => String(cell).split(' / ').map(Number));
  if (parts.some((each) => each.length < 2 || each.some(Number.isNaN))) return first;
  return (parts[0] ?? []).map((_, at) => median(parts.map((each) => each[at] ?? NaN)).toFixed(1)).join(' / ');
}
