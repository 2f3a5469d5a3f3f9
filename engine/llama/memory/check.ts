import type { GgufInsights, Llama } from 'node-llama-cpp';
import { LoadFailure } from '../load-failure.js';
import { availableMemory } from './available.js';
import { estimateNeeds, type ContextPlan, type Sizes } from './estimate.js';
import { misfit, tooHeavy } from './verdict.js';

/**
 * Holds a model to the memory that is free when its load begins: its weights before they are loaded, then all of it
 * before its context is made. In that order, because llama.cpp finds by loading that tensors do not fit together, while
 * its reckoning of a context asserts that they do. Both throw a {@link LoadFailure} that a later try may not meet.
 */
export class MemoryCheck {
  readonly #insights: GgufInsights;
  readonly #free: Sizes;
  #weights: Sizes = { cpuRam: 0, gpuVram: 0 };

  private constructor(insights: GgufInsights, free: Sizes) {
    this.#insights = insights;
    this.#free = free;
  }

  /** Looks at what is free now. `mappedElsewhere`: as in the protocol's EngineSetup. */
  static async begin(llama: Llama, insights: GgufInsights, mappedElsewhere: number): Promise<MemoryCheck> {
    const { cpuRam, gpuVram } = await freeMemory(llama);
    return new MemoryCheck(insights, { cpuRam: cpuRam - mappedElsewhere, gpuVram });
  }

  async weights(gpuLayers: number): Promise<void> {
    this.#weights = await this.#insights.estimateModelResourceRequirementsV2({ gpuLayers });
    refuse(
      tooHeavy(this.#weights.cpuRam, this.#free.cpuRam, 'memory') ??
        (gpuLayers > 0 ? tooHeavy(this.#weights.gpuVram, this.#free.gpuVram, 'GPU memory') : undefined),
    );
  }

  async context(plan: ContextPlan): Promise<void> {
    const { cpu, gpu } = await estimateNeeds(this.#insights, this.#weights, plan);
    refuse(
      misfit(cpu, plan, this.#free.cpuRam, 'memory') ??
        (plan.gpuLayers > 0 ? misfit(gpu, plan, this.#free.gpuVram, 'GPU memory') : undefined),
    );
  }
}

/** What is free now of each kind of memory, bytes. */
export async function freeMemory(llama: Llama): Promise<Sizes> {
  return {
    cpuRam: availableMemory() ?? (await llama.getRamState()).free,
    gpuVram: llama.gpu === false ? 0 : (await llama.getVramState()).free,
  };
}

/** Whoever holds the memory now may let go of it. */
function refuse(problem: string | undefined): void {
  if (problem !== undefined) throw new LoadFailure(problem, true);
}
