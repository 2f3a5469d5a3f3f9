import type { GgufInsights, Llama } from 'node-llama-cpp';
import { isKnownVersion } from './addon.js';
import type { ContextPlan } from './memory/estimate.js';
import type { EngineSetup } from '../protocol/messages.js';

/** The settings that decide how a model is loaded. */
export type PlanSetup = Pick<
  EngineSetup,
  'kind' | 'seats' | 'contextPerSeat' | 'flashAttention' | 'prefillTokensPerStep'
>;

/** How a model's context will be created on this machine. Loads nothing. */
export async function planLoad(llama: Llama, insights: GgufInsights, setup: PlanSetup): Promise<ContextPlan> {
  const { seats, flashAttention } = setup;
  // The iterators leave a sequence's last place empty.
  const contextPerSeat = setup.contextPerSeat + ((await isKnownVersion()) ? 0 : 1);
  const fitContext = { contextSize: contextPerSeat * seats };
  const { gpuLayers } = await insights.configurationResolver.resolveModelGpuLayersV2({ fitContext });
  return {
    seats,
    contextPerSeat,
    batchSize: setup.prefillTokensPerStep + seats,
    gpuLayers,
    flashAttention: flashAttention === 'auto' ? bestAttention(llama, insights, setup) : flashAttention,
  };
}

/** Whether KV state can be truncated at any position: not for recurrent, hybrid and sliding-window models. */
export function cutsAnywhere({ isRecurrent, isHybrid, swaSize }: GgufInsights): boolean {
  return !isRecurrent && !isHybrid && swaSize === undefined;
}

/** From this head width on, flash attention is faster on a CPU also behind long prompts. */
const WIDE_HEAD = 64;

/** Seats with more tokens than this should not use it with narrower heads. */
const LONG_SEAT = 512;

/**
 * On a CPU llama.cpp's flash attention works pair by pair of query and cell for 2 to 63 tokens, as in a decision's
 * questions, and prompts beside running replies. It is faster for next tokens of short sequences and for whole chunks
 * of a prompt; for small chunks behind long prompts it is many times slower if heads are narrow
 * (bench/results/attention.md measures both).
 */
function bestAttention(llama: Llama, insights: GgufInsights, { kind, contextPerSeat }: PlanSetup): boolean | 'auto' {
  const narrow = contextPerSeat > LONG_SEAT && headWidth(insights) < WIDE_HEAD;
  return llama.gpu === false && (kind === 'decision' || narrow) ? false : 'auto';
}

/** The width of the attention's keys. If the file does not have it, wide is assumed, as in nearly all models. */
function headWidth({ ggufFileInfo: { architectureMetadata: about } }: GgufInsights): number {
  const { key_length: own, head_count: heads } = about.attention ?? {};
  return own ?? (about.embedding_length ?? Infinity) / (typeof heads === 'number' ? heads : 1);
}
