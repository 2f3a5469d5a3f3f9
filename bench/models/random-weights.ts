/**
 * Random weight matrices, made directly in the file's number format: a byte of the generator is a weight, so that a
 * large model takes seconds. Every weight is one of the 128 odd numbers from -127 to 127 times a
 * constant: uniform, symmetric, mean 0. (In Q8_0 that is exact; even numbers are left out so that -128, which a quantizer never
 * writes, cannot occur.)
 */
import { encodeF16, Q8_0_BYTES, Q8_0_WEIGHTS, quantizeQ8, toHalf } from './number-formats.js';

/** Number formats of random weights. */
export type WeightType = 'F16' | 'Q8_0';

/** Length of the bias lane (see random-model.ts): a whole Q8_0 block, so that it is stored with a scale of its own. */
export const LANE = Q8_0_WEIGHTS;

export interface RandomMatrix {
  readonly type: WeightType;
  /** Weights per row; a multiple of 32. */
  readonly columns: number;
  readonly rows: number;
  /** Standard deviation of the weights. */
  readonly deviation: number;
  readonly seed: number;
  /** The first rows are all zero up to here. */
  readonly zeroRows?: number;
  /** The value of a row's first `LANE` weights, in place of random ones. */
  readonly lane?: (row: number) => number;
}

/** Standard deviation of the odd numbers from -127 to 127, all equally likely. */
const LEVELS_DEVIATION = Math.sqrt((128 ** 2 - 1) / 3);
const PIECE_BYTES = 1 << 20;

/** Yields the matrix row by row in pieces of about 1 MiB; every piece is the same buffer, filled again. */
export function* randomMatrix(matrix: RandomMatrix): Generator<Uint8Array> {
  const rowBytes = matrix.type === 'F16' ? 2 * matrix.columns : (matrix.columns / Q8_0_WEIGHTS) * Q8_0_BYTES;
  const rowsPerPiece = Math.min(matrix.rows, Math.max(1, Math.floor(PIECE_BYTES / rowBytes)));
  const words = new Uint32Array(Math.ceil((rowsPerPiece * rowBytes) / 4));
  const random = new RandomWords(matrix.seed);
  const scale = matrix.deviation / LEVELS_DEVIATION;
  const fill = matrix.type === 'F16' ? halfFiller(scale) : blockFiller(scale);
  for (let row = 0; row < matrix.rows; row += rowsPerPiece) {
    const rows = Math.min(rowsPerPiece, matrix.rows - row);
    fill(words, random);
    const piece = new Uint8Array(words.buffer, 0, rows * rowBytes);
    for (let i = 0; i < rows; i++) {
      if (row + i < (matrix.zeroRows ?? 0)) piece.fill(0, i * rowBytes, (i + 1) * rowBytes);
      else if (matrix.lane) piece.set(encodeLane(matrix.type, matrix.lane(row + i)), i * rowBytes);
    }
    yield piece;
  }
}

function encodeLane(type: WeightType, value: number): Uint8Array {
  const values = new Float32Array(LANE).fill(value);
  return type === 'F16' ? encodeF16(values) : quantizeQ8(values);
}

type Filler = (words: Uint32Array, random: RandomWords) => void;

/** Random bytes throughout, then each block's first two become its scale. */
function blockFiller(scale: number): Filler {
  const half = toHalf(scale);
  return (words, random) => {
    for (let i = 0; i < words.length; i++) words[i] = random.next() | 0x0101_0101;
    const bytes = new Uint8Array(words.buffer);
    for (let at = 0; at + Q8_0_BYTES <= bytes.length; at += Q8_0_BYTES) {
      bytes[at] = half & 0xff;
      bytes[at + 1] = half >>> 8;
    }
  };
}

/** A table from a random byte to the half float of the weight that it stands for. */
function halfFiller(scale: number): Filler {
  const table = Uint16Array.from({ length: 256 }, (_, byte) => toHalf((((byte | 1) << 24) >> 24) * scale));
  return (words, random) => {
    const halves = new Uint16Array(words.buffer);
    let word = 0;
    for (let i = 0; i < halves.length; i++) {
      word = i % 4 === 0 ? random.next() : word >>> 8;
      halves[i] = table[word & 0xff] ?? 0;
    }
  };
}

/** xoshiro128++ of Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2021), seeded by SplitMix32. */
export class RandomWords {
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  constructor(seed: number) {
    let state = seed;
    const split = (): number => {
      state = (state + 0x9e37_79b9) | 0;
      let z = Math.imul(state ^ (state >>> 16), 0x85eb_ca6b);
      z = Math.imul(z ^ (z >>> 13), 0xc2b2_ae35);
      return z ^ (z >>> 16);
    };
    this.#a = split();
    this.#b = split();
    this.#c = split();
    this.#d = split();
  }

  /** 32 random bits, signed. */
  next(): number {
    const sum = (this.#a + this.#d) | 0;
    const result = (((sum << 7) | (sum >>> 25)) + this.#a) | 0;
    const shifted = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= shifted;
    this.#d = (this.#d << 11) | (this.#d >>> 21);
    return result;
  }
}
