/**
 * How fast the machine itself is, by the time of a fixed piece of work. The neighbours of a virtual machine share its caches, the
 * bandwidth of its memory and the threads of its cores, and what they take of these is in no count of the kernel.
 */
import { median } from './stats.js';

/** Medians of a few rounds, ms. */
export interface MachineSpeed {
  /** Integer operations, each of which needs the result of the one before: no memory is used. */
  readonly arithmeticMs: number;
  /** A copy of one half of {@link MEMORY} bytes to the other. */
  readonly copyMs: number;
}

/** Some 10 ms of a processor of 2.5 GHz. */
const OPERATIONS = 4_000_000;
/** More than the caches of most processors hold. */
const MEMORY = 64 * 2 ** 20;
/** The first round does not count: V8 compiles the loop, and the kernel hands out the memory. */
const ROUNDS = 6;

/** Keeps the event loop for about a tenth of a second. */
export function machineSpeed(): MachineSpeed {
  const memory = new Uint8Array(MEMORY).fill(1);
  const rounds = Array.from({ length: ROUNDS }, () => {
    const start = performance.now();
    calculate(OPERATIONS);
    const between = performance.now();
    memory.copyWithin(MEMORY / 2, 0, MEMORY / 2);
    return { arithmeticMs: between - start, copyMs: performance.now() - between };
  }).slice(1);
  return {
    arithmeticMs: median(rounds.map(({ arithmeticMs }) => arithmeticMs)),
    copyMs: median(rounds.map(({ copyMs }) => copyMs)),
  };
}

/** The last result, so that V8 cannot leave the loop out. */
let last = 1;

/** Marsaglia's xorshift (Journal of Statistical Software 8, 2003). */
function calculate(operations: number): void {
  let x = last;
  for (let i = 0; i < operations; i += 1) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
  }
  last = x;
}

/**
 * Of many readings so many in a row count as one, by their median: about one in ten is of a slow second, which changes hardly
 * anything of a result that so many pieces make up.
 */
const IN_A_ROW = 10;

/** The least and the most of each of such times, ms. */
export interface SpeedRange {
  readonly arithmeticMs: readonly [least: number, most: number];
  readonly copyMs: readonly [least: number, most: number];
}

/** Of readings in the order in which they were taken: of each by itself where there are few, else of medians. */
export function speedRange(speeds: readonly MachineSpeed[]): SpeedRange {
  const size = speeds.length < 2 * IN_A_ROW ? 1 : IN_A_ROW;
  const count = Math.floor(speeds.length / size);
  // The last row also has the rest.
  const rows = Array.from({ length: count }, (_, i) =>
    speeds.slice(i * size, i < count - 1 ? (i + 1) * size : undefined),
  );
  const range = (of: (speed: MachineSpeed) => number): readonly [number, number] => {
    const values = rows.map((row) => Number(median(row.map(of)).toFixed(1)));
    return [Math.min(...values), Math.max(...values)];
  };
  return { arithmeticMs: range(({ arithmeticMs }) => arithmeticMs), copyMs: range(({ copyMs }) => copyMs) };
}

/** How many times as slow as at its fastest the machine was; 1: always the same. */
export function unevenness({ arithmeticMs, copyMs }: SpeedRange): number {
  return Math.max(arithmeticMs[1] / arithmeticMs[0], copyMs[1] / copyMs[0]);
}
