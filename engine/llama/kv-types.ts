import { GgmlType } from './package.js';
import type { KvTypes } from '../protocol/setup.js';

const GGML_TYPES = { f16: GgmlType.F16, q8_0: GgmlType.Q8_0, q4_0: GgmlType.Q4_0 } as const;

/** Numbers that share a scale in both quantised types. */
const BLOCK = 32;

/** Widths of one head's key and value; undefined if the model's file does not say. */
export interface HeadWidths {
  readonly keys: number | undefined;
  readonly values: number | undefined;
}

export const F16_KV: KvTypes = { keys: 'f16', values: 'f16' };

/** About half as much memory (docs/sizing.md#memory-by-hand). */
export const Q8_KV: KvTypes = { keys: 'q8_0', values: 'q8_0' };

/** llama.cpp's names for the types. */
export function ggmlTypes({ keys, values }: KvTypes): { readonly keys: GgmlType; readonly values: GgmlType } {
  return { keys: GGML_TYPES[keys], values: GGML_TYPES[values] };
}

/** Why llama.cpp refuses these types, in one line that follows the model's name; undefined if it does not. */
export function kvProblem(
  { keys, values }: KvTypes,
  flashAttention: boolean | 'auto',
  widths: HeadWidths,
): string | undefined {
  if (values !== 'f16' && flashAttention === false) {
    return `kv.values ${values} needs flash attention: set flashAttention to auto or true, or kv.values to f16`;
  }
  for (const [name, type, width] of [
    ['keys', keys, widths.keys],
    ['values', values, widths.values],
  ] as const) {
    if (type !== 'f16' && width !== undefined && width % BLOCK !== 0) {
      return `kv.${name} ${type} needs heads whose width is a multiple of ${BLOCK}, and its heads are ${width} wide: set kv.${name} to f16`;
    }
  }
  return undefined;
}
