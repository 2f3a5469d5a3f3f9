import type { GgufInsights, Llama } from 'node-llama-cpp';
import { isKnownVersion } from './addon.js';
import type { ContextPlan } from './memory/estimate.js';
import type { EngineSetup } from '../protocol/messages.js';

/** What decides how a model is loaded. */
export type PlanSetup = Pick<
  EngineSetup,
  'kind' | 'seats' | 'contextPerSeat' | 'flashAttention' | 'prefillTokensPerStep'
>;

/** How a model's context is going to be made on this machine. Loads nothing. */
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

/** Whether past state can be cut at any position: not of recurrent, hybrid and sliding-window models. */
export function cutsAnywhere({ isRecurrent, isHybrid, swaSize }: GgufInsights): boolean {
  return !isRecurrent && !isHybrid && swaSize === undefined;
}

/** Heads from this width on are worth flash attention on a CPU behind long prompts too. */
const WIDE_HEAD = 64;

/** Tokens of a seat from where on narrower ones are better off without. */
const LONG_SEAT = 512;

/**
 * On a CPU llama.cpp's flash attention goes pair by pair of query and cell for 2 to 63 tokens, which is what a decision's
 * questions are, and prompts beside running replies. It is the faster one for next tokens of short sequences and for whole
 * chunks of a prompt; for small chunks behind long prompts many times slower where heads are narrow
 * (bench/results/attention.md has both sides of it).
 */
function bestAttention(llama: Llama, insights: GgufInsights, { kind, contextPerSeat }: PlanSetup): boolean | 'auto' {
  const narrow = contextPerSeat > LONG_SEAT && headWidth(insights) < WIDE_HEAD;
  return llama.gpu === false && (kind === 'decision' || narrow) ? false : 'auto';
}

/** Of the attention's keys. What a file does not tell is taken for wide, as nearly all are. */
function headWidth({ ggufFileInfo: { architectureMetadata: about } }: GgufInsights): number {
  const { key_length: own, head_count: heads } = about.attention ?? {};
  return own ?? (about.embedding_length ?? Infinity) / (typeof heads === 'number' ? heads : 1);
}
