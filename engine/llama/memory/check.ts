import type { GgufInsights, Llama } from 'node-llama-cpp';
import { LoadFailure } from '../load-failure.js';
import { availableMemory } from './available.js';
import type { ContextPlan, Needs, Sizes } from './estimate.js';
import { firstProblem, misfit, tooHeavy } from './verdict.js';

/**
 * Checks a model against the memory that is free when its load begins: first its weights before they are loaded, then
 * everything before its context is created. In that order, because llama.cpp detects inconsistent tensors by loading,
 * while its estimate of a context asserts on them. Both throw a {@link LoadFailure}; a later attempt may succeed.
 */
export class MemoryCheck {
  readonly #insights: GgufInsights;
  readonly #free: Sizes;

  private constructor(insights: GgufInsights, free: Sizes) {
    this.#insights = insights;
    this.#free = free;
  }

  /** Reads the free memory now. `mappedElsewhere`: as in the protocol's EngineSetup. */
  static async begin(llama: Llama, insights: GgufInsights, mappedElsewhere: number): Promise<MemoryCheck> {
    const { cpuRam, gpuVram } = await freeMemory(llama);
    return new MemoryCheck(insights, { cpuRam: cpuRam - mappedElsewhere, gpuVram });
  }

  /** What is free for the model, bytes. */
  get free(): Sizes {
    return this.#free;
  }

  async weights(gpuLayers: number): Promise<void> {
    const weights = await this.#insights.estimateModelResourceRequirementsV2({ gpuLayers });
    refuse(
      firstProblem(
        tooHeavy(weights.cpuRam, this.#free.cpuRam, 'memory'),
        gpuLayers > 0 ? tooHeavy(weights.gpuVram, this.#free.gpuVram, 'GPU memory') : undefined,
      ),
    );
  }

  /** `needs`: of the plan, with its checkpoints. */
  context({ cpu, gpu }: Needs, plan: ContextPlan): void {
    refuse(
      firstProblem(
        misfit(cpu, plan, this.#free.cpuRam, 'memory'),
        plan.gpuLayers > 0 ? misfit(gpu, plan, this.#free.gpuVram, 'GPU memory') : undefined,
      ),
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

/** Other processes may release memory later. */
function refuse(problem: string | undefined): void {
  if (problem !== undefined) throw new LoadFailure(problem, true);
}
