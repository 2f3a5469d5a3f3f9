import type { GgufInsights } from 'node-llama-cpp';
import type { KvTypes } from '../../protocol/setup.js';
import { F16_KV, ggmlTypes } from '../kv-types.js';
import type { Need } from './verdict.js';

/** How a context is going to be made. */
export interface ContextPlan {
  readonly seats: number;
  readonly contextPerSeat: number;
  readonly batchSize: number;
  /** Layers on the GPU; 0 on a CPU. */
  readonly gpuLayers: number;
  readonly flashAttention: boolean | 'auto';
  /** Absent: false. */
  readonly swaFull?: boolean;
  /** Absent: f16. */
  readonly kv?: KvTypes;
}

/** What a model takes of each kind of memory. */
export interface Needs {
  readonly cpu: Need;
  readonly gpu: Need;
}

/** Bytes of each kind of memory. */
export type Sizes = Awaited<ReturnType<GgufInsights['estimateModelResourceRequirementsV2']>>;

/**
 * The memory of a model and its context, as llama.cpp itself estimates it in a mode without allocation (measured:
 * within 1% of its actual allocation on a CPU). KV memory grows linearly with the seats, so it is estimated for one and
 * for two: estimating a context that is far too large would itself take seconds and gigabytes.
 *
 * Weights are memory-mapped, so they are page cache that the kernel may drop, but they are counted: every step reads
 * all of them, and an engine whose weights are not in memory reads its disk.
 */
export async function estimateNeeds(
  insights: Pick<GgufInsights, 'estimateContextResourceRequirementsV2'>,
  weights: Sizes,
  { contextPerSeat, batchSize, gpuLayers, flashAttention, swaFull = false, kv = F16_KV }: ContextPlan,
): Promise<Needs> {
  const { keys, values } = ggmlTypes(kv);
  const context = (sequences: number): Promise<Sizes> =>
    insights.estimateContextResourceRequirementsV2({
      contextSize: contextPerSeat,
      sequences,
      batchSize,
      modelGpuLayers: gpuLayers,
      flashAttention,
      swaFullCache: swaFull,
      kvCacheKeyType: keys,
      kvCacheValueType: values,
    });
  const one = await context(1);
  // Also for a single seat: the difference to two separates its KV memory from a step's buffers.
  const two = await context(2);
  const need = (kind: keyof Sizes): Need => {
    const perSeat = Math.max(0, two[kind] - one[kind]);
    return { weights: weights[kind], perSeat, compute: Math.max(0, one[kind] - perSeat) };
  };
  return { cpu: need('cpuRam'), gpu: need('gpuVram') };
}
