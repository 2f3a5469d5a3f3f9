/**
 * Numbers as ggml stores them: IEEE 754 half floats and Q8_0 blocks. Byte order is the machine's own, which is little
 * endian on every platform that llama.cpp has binaries for; GGUF wants little endian.
 */

/** Weights in one Q8_0 block. */
export const Q8_0_WEIGHTS = 32;
/** Bytes of one Q8_0 block: a half-float scale and 32 signed bytes. */
export const Q8_0_BYTES = 34;

const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);

/**
 * The 16 bits of the half float nearest to `value` (converted to float32 first), ties to even, as ggml’s own
 * conversion: over 65,519 becomes infinity, below 2^-25 zero, and subnormal halves are kept.
 */
export function toHalf(value: number): number {
  scratch[0] = value;
  const bits = scratchBits[0] ?? 0;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fff_ffff;
  if (magnitude > 0x7f80_0000) return sign | 0x7e00;
  if (magnitude >= 0x4780_0000) return sign | 0x7c00;
  if (magnitude < 0x3880_0000) {
    // A subnormal half is a multiple of 2^-24, the distance between float32 numbers from 0.5 on: adding 0.5 rounds it.
    scratch[0] = Math.abs(value) + 0.5;
    return sign | ((scratchBits[0] ?? 0) - 0x3f00_0000);
  }
  const roundToEven = 0xfff + ((magnitude >>> 13) & 1);
  return sign | ((magnitude - 0x3800_0000 + roundToEven) >>> 13);
}

/** Half floats of `values`, 2 bytes each. */
export function encodeF16(values: Float32Array): Uint8Array {
  return new Uint8Array(Uint16Array.from(values, toHalf).buffer);
}

/** Float32 numbers as bytes, without a copy. */
export function encodeF32(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/**
 * Q8_0 blocks of `values`, whose count must be a multiple of 32: scale max|x|/127, each weight rounded half away from
 * zero. The same arithmetic, in float32, as `quantize_row_q8_0_ref` of ggml-quants.c.
 */
export function quantizeQ8(values: Float32Array): Uint8Array {
  if (values.length % Q8_0_WEIGHTS !== 0) {
    throw new RangeError(`Q8_0 wants a multiple of ${Q8_0_WEIGHTS} weights, not ${values.length}`);
  }
  const bytes = new Uint8Array((values.length / Q8_0_WEIGHTS) * Q8_0_BYTES);
  const view = new DataView(bytes.buffer);
  for (let from = 0, at = 0; from < values.length; from += Q8_0_WEIGHTS, at += Q8_0_BYTES) {
    const block = values.subarray(from, from + Q8_0_WEIGHTS);
    const scale = Math.fround(block.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127);
    const inverse = scale === 0 ? 0 : Math.fround(1 / scale);
    view.setUint16(at, toHalf(scale), true);
    block.forEach((value, i) => {
      const scaled = Math.fround(value * inverse);
      view.setInt8(at + 2 + i, Math.sign(scaled) * Math.round(Math.abs(scaled)));
    });
  }
  return bytes;
}
