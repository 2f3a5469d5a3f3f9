/**
 * Weights that llama.cpp repacks in the process's memory when it loads them on a CPU with AVX2
 * (ggml/src/ggml-cpu/repack.cpp). They are not mapped from the file any more, so two engines of one file have them
 * twice.
 */
import type { GgufFileInfo } from 'node-llama-cpp';
import { GgmlType } from '../package.js';

type Tensors = NonNullable<GgufFileInfo['fullTensorInfo']>;

/** Weights and bytes of a block of each type that is repacked, and the instructions that it is repacked for. */
const REPACKED: ReadonlyMap<GgmlType, { readonly weights: number; readonly bytes: number; readonly needs: string }> =
  new Map([
    [GgmlType.Q4_0, { weights: 32, bytes: 18, needs: 'AVX2' }],
    [GgmlType.IQ4_NL, { weights: 32, bytes: 18, needs: 'AVX2' }],
    [GgmlType.MXFP4, { weights: 32, bytes: 17, needs: 'AVX2' }],
    [GgmlType.Q4_K, { weights: 256, bytes: 144, needs: 'AVX2' }],
    [GgmlType.Q2_K, { weights: 256, bytes: 84, needs: 'AVX512' }],
  ]);

/** Rows are repacked by eight. */
const ROWS = 8;

const EMBEDDINGS = 'token_embd.weight';
const OUTPUT = 'output.weight';

/**
 * Bytes of the weights that an engine repacks on this CPU. `systemInfo`: llama.cpp's line about its build and the CPU,
 * such as `AVX2 = 1 | REPACK = 1`. Embeddings are looked up and not multiplied: they are repacked only if they are also
 * the output's weights.
 */
export function repackedBytes(tensors: Tensors, systemInfo: string): number {
  const has = (feature: string): boolean => systemInfo.includes(` ${feature} = 1`);
  if (!has('REPACK')) return 0;
  const tied = !tensors.some(({ name }) => name === OUTPUT);
  return tensors.reduce((sum, { name, ggmlType, dimensions }) => {
    const block = REPACKED.get(ggmlType);
    if (block === undefined || !has(block.needs) || !name.endsWith('.weight')) return sum;
    if (name === EMBEDDINGS && !tied) return sum;
    const sizes = dimensions.map(Number);
    if (sizes.length < 2 || (sizes[1] ?? 0) % ROWS !== 0) return sum;
    return sum + (sizes.reduce((product, size) => product * size, 1) / block.weights) * block.bytes;
  }, 0);
}
