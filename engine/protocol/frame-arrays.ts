/** The typed arrays of a message, and what stands for them in a frame's text (frames.ts). */

export type Packed = Uint8Array | Uint32Array | Float32Array | Float64Array;

const KINDS = { u8: Uint8Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array } as const;

/** What stands in a frame's text for an array. `at` and `bytes`: where it lies in the arrays' bytes. */
export interface Placeholder {
  readonly $: keyof typeof KINDS;
  readonly at: number;
  readonly bytes: number;
}

/** The same value with its arrays inserted in place. Throws if they are missing. */
export function withArrays(value: unknown, make: (placeholder: Placeholder) => Packed): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if ('$' in value) return make(value as Placeholder);
  const fields = value as Record<string, unknown>;
  for (const key of Object.keys(fields)) fields[key] = withArrays(fields[key], make);
  return fields;
}

/** Its bytes are copied out of `arrays`. Throws if they are not all there, before any memory is taken for them. */
export function arrayOf(placeholder: Placeholder, arrays: Uint8Array): Packed {
  const { at, bytes } = placeholder;
  if (!(at >= 0 && bytes >= 0 && at + bytes <= arrays.length)) throw new RangeError('an array beyond the frame');
  const array = emptyArray(placeholder);
  new Uint8Array(array.buffer).set(arrays.subarray(at, at + bytes));
  return array;
}

/** Of zeros. Throws if there is no such kind or length. */
export function emptyArray({ $: kind, bytes }: Placeholder): Packed {
  return new KINDS[kind](bytes / KINDS[kind].BYTES_PER_ELEMENT);
}

/** Whether it is an array that a frame can carry. */
export function isPacked(value: unknown): value is Packed {
  return (
    value instanceof Uint32Array ||
    value instanceof Uint8Array ||
    value instanceof Float64Array ||
    value instanceof Float32Array
  );
}

/** How a placeholder names its kind. */
export function kindOf(array: Packed): keyof typeof KINDS {
  if (array instanceof Uint8Array) return 'u8';
  if (array instanceof Uint32Array) return 'u32';
  return array instanceof Float32Array ? 'f32' : 'f64';
}
