import fc from 'fast-check';
import t from 'tap';
import { encodeF16, encodeF32, Q8_0_BYTES, quantizeQ8, toHalf } from '../../../bench/models/number-formats.js';

/** As the format is defined. */
function fromHalf(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >>> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

t.test('every half float survives the round trip', (t) => {
  const wrong: number[] = [];
  for (let half = 0; half < 0x10000; half++) {
    const value = fromHalf(half);
    if (!Number.isNaN(value) && toHalf(value) !== half) wrong.push(half);
  }
  t.same(wrong, []);
  t.ok(Number.isNaN(fromHalf(toHalf(NaN))));
  t.end();
});

t.test('rounds to the nearest half, ties to even', (t) => {
  const wrong: number[] = [];
  for (let half = 0; half < 0x7bff; half++) {
    const low = fromHalf(half);
    const middle = (low + fromHalf(half + 1)) / 2;
    const nudge = Math.max(middle * 2 ** -23, 2 ** -48);
    const even = half % 2 === 0 ? half : half + 1;
    if (toHalf(middle) !== even || toHalf(middle - nudge) !== half || toHalf(middle + nudge) !== half + 1)
      wrong.push(half);
    if (toHalf(-middle) !== (even | 0x8000)) wrong.push(-half);
  }
  t.same(wrong, []);
  t.end();
});

t.test('out of range: infinity above 65,519, zero below 2^-25', (t) => {
  t.equal(toHalf(65_519), 0x7bff);
  t.equal(toHalf(65_520), 0x7c00);
  t.equal(toHalf(-1e30), 0xfc00);
  t.equal(toHalf(Infinity), 0x7c00);
  t.equal(toHalf(2 ** -25), 0);
  t.equal(toHalf(-(2 ** -26)), 0x8000);
  t.end();
});

t.test('arrays are little-endian', (t) => {
  t.same([...encodeF16(Float32Array.of(1, -2))], [0x00, 0x3c, 0x00, 0xc0]);
  t.same([...encodeF32(Float32Array.of(9, 1).subarray(1))], [0, 0, 0x80, 0x3f]);
  t.end();
});

function dequantize(bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer);
  return Array.from({ length: (bytes.length / Q8_0_BYTES) * 32 }, (_, i) => {
    const block = Math.floor(i / 32) * Q8_0_BYTES;
    return fromHalf(view.getUint16(block, true)) * view.getInt8(block + 2 + (i % 32));
  });
}

t.test('Q8_0 is off by at most half a step and the rounding of its half-float scale', (t) => {
  const values = fc.float({ min: -60, max: 60, noNaN: true });
  fc.assert(
    fc.property(fc.array(values, { minLength: 64, maxLength: 64 }), (numbers) => {
      const back = dequantize(quantizeQ8(Float32Array.from(numbers)));
      for (let block = 0; block < 2; block++) {
        const from = numbers.slice(block * 32, block * 32 + 32);
        const most = Math.max(...from.map(Math.abs));
        // 0.5 step of rounding; the scale's relative error is 2^-11, or 2^-25 in all where it is subnormal.
        const bound = (most / 127) * 0.5001 + most * 2 ** -11 + 127 * 2 ** -25;
        from.forEach((value, i) => {
          if (Math.abs(value - (back[block * 32 + i] ?? NaN)) > bound)
            throw new Error(`${value} became ${back[block * 32 + i] ?? NaN}`);
        });
      }
    }),
    { numRuns: 300, seed: 1 },
  );
  t.end();
});

t.test('Q8_0: halves are rounded away from zero; a block of zeros; a wrong length', (t) => {
  const bytes = quantizeQ8(
    Float32Array.from({ length: 32 }, (_, i) => (i === 0 ? 127 : i === 1 ? 2.5 : i === 2 ? -2.5 : 0)),
  );
  t.same([...new Int8Array(bytes.buffer, 2, 4)], [127, 3, -3, 0]);
  t.ok(quantizeQ8(new Float32Array(32)).every((byte) => byte === 0));
  t.throws(() => quantizeQ8(new Float32Array(33)), RangeError);
  t.end();
});
