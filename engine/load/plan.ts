import { availableParallelism } from 'node:os';
import type { GgufInsights, Llama } from 'node-llama-cpp';
import type { ContextPlan } from '../memory/estimate.js';
import type { EngineSetup } from '../protocol.js';

/** What decides how a model is loaded. */
export type PlanSetup = Pick<
  EngineSetup,
  'kind' | 'seats' | 'contextPerSeat' | 'flashAttention' | 'prefillTokensPerStep'
>;

/** Compute threads for a setup: with every core computing, the loop that feeds them starves (shared/engine.md section 1). */
export function computeThreads(wanted: number): number {
  return wanted > 0 ? wanted : Math.max(1, availableParallelism() - 1);
}

/** How a model's context is going to be made on this machine. Loads nothing. */
export async function planLoad(llama: Llama, insights: GgufInsights, setup: PlanSetup): Promise<ContextPlan> {
  const { seats, flashAttention } = setup;
  // The iterators leave a sequence's last place empty.
  const contextPerSeat = setup.contextPerSeat + (cutsAnywhere(insights) ? 0 : 1);
  const fitContext = { contextSize: contextPerSeat * seats };
  const { gpuLayers } = await insights.configurationResolver.resolveModelGpuLayersV2({ fitContext });
  return {
    seats,
    contextPerSeat,
    batchSize: setup.prefillTokensPerStep + seats,
    gpuLayers,
    flashAttention: flashAttention === 'auto' ? bestAttention(llama, setup) : flashAttention,
  };
}

/** Whether past state can be cut at any position: not of recurrent, hybrid and sliding-window models. */
export function cutsAnywhere({ isRecurrent, isHybrid, swaSize }: GgufInsights): boolean {
  return !isRecurrent && !isHybrid && swaSize === undefined;
}

/** Tokens a seat holds from where on what a prompt gets beside running replies would take too long with flash attention. */
const LONG_CONTEXT = 512;

/**
 * On a CPU llama.cpp's flash attention goes pair by pair of query and cell for 2 to 63 tokens, which is what a decision's
 * questions are, and prompts beside running replies. For next tokens of short sequences and whole chunks of a prompt it is
 * faster, by up to a half; for small chunks behind long prompts many times slower where heads are narrow
 * (bench/results/attention.md has both sides of it).
 */
function bestAttention(llama: Llama, { kind, contextPerSeat }: PlanSetup): boolean | 'auto' {
  return llama.gpu === false && (kind === 'decision' || contextPerSeat > LONG_CONTEXT) ? false : 'auto';
}
