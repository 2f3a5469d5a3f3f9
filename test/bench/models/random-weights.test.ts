import t from 'tap';
import { Q8_0_BYTES } from '../../../bench/models/number-formats.js';
import { LANE, randomMatrix, RandomWords, type RandomMatrix } from '../../../bench/models/random-weights.js';

const COLUMNS = 96;
/** Longer than one piece in either type. */
const ROWS = 12_000;

/** The weights as numbers; for scales and lane values that are normal half floats. */
function weights(matrix: RandomMatrix): number[] {
  const bytes = Buffer.concat(Array.from(randomMatrix(matrix), (piece) => Buffer.from(piece)));
  const half = (at: number): number => {
    const bits = bytes.readUInt16LE(at);
    if ((bits & 0x7fff) === 0) return 0;
    return (bits & 0x8000 ? -1 : 1) * (1 + (bits & 0x3ff) / 1024) * 2 ** (((bits >>> 10) & 0x1f) - 15);
  };
  return Array.from({ length: matrix.columns * matrix.rows }, (_, i) => {
    if (matrix.type === 'F16') return half(i * 2);
    const block = Math.floor(i / 32) * Q8_0_BYTES;
    return half(block) * bytes.readInt8(block + 2 + (i % 32));
  });
}

for (const type of ['F16', 'Q8_0'] as const) {
  t.test(`${type}: mean 0, the configured deviation, no correlation between rows or neighbours`, (t) => {
    const all = weights({ type, columns: COLUMNS, rows: ROWS, deviation: 0.125, seed: 3 });
    const mean = all.reduce((sum, w) => sum + w, 0) / all.length;
    const deviation = Math.sqrt(all.reduce((sum, w) => sum + w * w, 0) / all.length);
    t.ok(Math.abs(mean) < 0.001, `mean ${mean}`);
    t.ok(Math.abs(deviation / 0.125 - 1) < 0.005, `deviation ${deviation}`);
    for (const lag of [1, 2, 3, 4, 32, COLUMNS]) {
      const products = all.slice(lag).reduce((sum, w, i) => sum + w * (all[i] ?? 0), 0) / all.length;
      t.ok(Math.abs(products / deviation ** 2) < 0.005, `correlation at ${lag}: ${products / deviation ** 2}`);
    }
    t.end();
  });

  t.test(`${type}: rows of zeros and the lane are where they were configured`, (t) => {
    const lane = (row: number): number => row / 1024 - 3;
    const all = weights({ type, columns: COLUMNS, rows: ROWS, deviation: 1, seed: 3, zeroRows: 5, lane });
    const row = (n: number): number[] => all.slice(n * COLUMNS, (n + 1) * COLUMNS);
    t.ok(
      row(0)
        .concat(row(4))
        .every((w) => w === 0),
    );
    for (const n of [5, 6000, ROWS - 1]) {
      t.ok(
        row(n)
          .slice(0, LANE)
          .every((w) => Math.abs(w - lane(n)) <= Math.abs(lane(n)) * 1e-3),
        `row ${n}`,
      );
      t.not(new Set(row(n).slice(LANE)).size, 1);
    }
    t.end();
  });
}

t.test('Q8_0: each odd number from -127 to 127 occurs, and no other', (t) => {
  const [piece] = randomMatrix({ type: 'Q8_0', columns: 32, rows: 1000, deviation: 1, seed: 1 });
  const bytes = Buffer.from(piece ?? []);
  const values = Array.from({ length: 32_000 }, (_, i) => {
    return bytes.readInt8(Math.floor(i / 32) * Q8_0_BYTES + 2 + (i % 32));
  });
  t.same(
    [...new Set(values)].sort((a, b) => a - b),
    Array.from({ length: 128 }, (_, i) => 2 * i - 127),
  );
  t.end();
});

t.test('xoshiro128++ equals the published generator', (t) => {
  // The published generator on 64-bit integers, from the state that the seed gives.
  const mask = 0xffff_ffffn;
  const rotate = (x: bigint, k: bigint): bigint => ((x << k) | (x >> (32n - k))) & mask;
  let seed = 12345n;
  const split = (): bigint => {
    seed = (seed + 0x9e37_79b9n) & mask;
    let z = ((seed ^ (seed >> 16n)) * 0x85eb_ca6bn) & mask;
    z = ((z ^ (z >> 13n)) * 0xc2b2_ae35n) & mask;
    return z ^ (z >> 16n);
  };
  const s = [split(), split(), split(), split()] as [bigint, bigint, bigint, bigint];
  const next = (): bigint => {
    const result = (rotate((s[0] + s[3]) & mask, 7n) + s[0]) & mask;
    const shifted = (s[1] << 9n) & mask;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 11n);
    return result;
  };
  const random = new RandomWords(12345);
  for (let i = 0; i < 1000; i++) {
    const expected = Number(next());
    if (random.next() >>> 0 !== expected) t.fail(`word ${i}`);
  }
  t.end();
});
