import type { GgufInsights } from 'node-llama-cpp';
import type { Need } from './verdict.js';

/** How a context is going to be made. */
export interface ContextPlan {
  readonly seats: number;
  readonly contextPerSeat: number;
  readonly batchSize: number;
  /** Layers on the GPU; 0 on a CPU. */
  readonly gpuLayers: number;
  readonly flashAttention: boolean | 'auto';
}

/** What a model takes of each kind of memory. */
export interface Needs {
  readonly cpu: Need;
  readonly gpu: Need;
}

/** Bytes of each kind of memory. */
export type Sizes = Awaited<ReturnType<GgufInsights['estimateModelResourceRequirementsV2']>>;

/**
 * What a model and its context will take, as llama.cpp itself reckons it when it is told to allocate nothing
 * (measured: within 1% of what it then allocates on a CPU). Past state grows evenly with the seats, so it is reckoned for
 * one and for two of them: the whole of a context that is far too large would itself take seconds and gigabytes to reckon.
 *
 * Weights are mapped from their file. They are page cache, which the kernel may drop, and are counted all the same: every
 * step reads all of them, so an engine whose weights are not in memory is one that reads its disk.
 */
export async function estimateNeeds(
  insights: Pick<GgufInsights, 'estimateContextResourceRequirementsV2'>,
  weights: Sizes,
  { contextPerSeat, batchSize, gpuLayers, flashAttention }: ContextPlan,
): Promise<Needs> {
  const context = (sequences: number): Promise<Sizes> =>
    insights.estimateContextResourceRequirementsV2({
      contextSize: contextPerSeat,
      sequences,
      batchSize,
      modelGpuLayers: gpuLayers,
      flashAttention,
    });
  const one = await context(1);
  // For a single seat too: without a second one there is no telling its past state from the buffers of a step.
  const two = await context(2);
  const need = (kind: keyof Sizes): Need => {
    const perSeat = Math.max(0, two[kind] - one[kind]);
    return { weights: weights[kind], perSeat, compute: Math.max(0, one[kind] - perSeat) };
  };
  return { cpu: need('cpuRam'), gpu: need('gpuVram') };
}
