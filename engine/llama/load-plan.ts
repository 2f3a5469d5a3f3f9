import type { GgufInsights, Llama } from 'node-llama-cpp';
import { F16_KV, kvProblem, type HeadWidths } from './kv-types.js';
import { LoadFailure } from './load-failure.js';
import type { ContextPlan } from './memory/estimate.js';
import { readProjector } from './projector.js';
import { isPooling, type EngineSetup, type KvTypes } from '../protocol/setup.js';

/**
 * For loading a model: node-llama-cpp's own memory check has other bounds than ours (memory/estimate.ts), also where ours is off, and
 * its choice of memory mapping another outcome.
 */
export const WITHOUT_ITS_CHECKS = { ignoreMemorySafetyChecks: true, useMmap: true } as const;

/** The settings that decide how a model is loaded. */
export type PlanSetup = Pick<
  EngineSetup,
  | 'kind'
  | 'seats'
  | 'contextPerSeat'
  | 'gpuLayers'
  | 'flashAttention'
  | 'prefillTokensPerStep'
  | 'swaFull'
  | 'kv'
  | 'projector'
>;

/**
 * Prompt tokens in one step, by backend. A CPU's time grows with the tokens from some dozens on, so that a larger chunk holds
 * running replies up for nothing, and single inputs of a model that makes vectors; a GPU reads all weights for each decode, and is not
 * busy below a thousand or so.
 */
const PREFILL_TOKENS = { cpu: 256, gpu: 1024 } as const;

/** How a model's context and what runs over it are going to be made. */
export interface LoadPlan extends ContextPlan {
  readonly prefillTokensPerStep: number;
  readonly swaFull: boolean;
  readonly kv: KvTypes;
  /** Whether past state can be truncated at any position. */
  readonly truncatable: boolean;
  /** Whether gaps between sequences are closed by tokens (batch-decoder.ts): where one costs hardly anything beside reading all weights. */
  readonly closesGaps: boolean;
}

/** How a model's context is going to be made on this machine. Loads nothing. Throws a {@link LoadFailure} for what llama.cpp refuses. */
export async function planLoad(llama: Pick<Llama, 'gpu'>, insights: GgufInsights, setup: PlanSetup): Promise<LoadPlan> {
  const { kv = F16_KV } = setup;
  const gpuLayers = llama.gpu === false ? 0 : Math.min(setup.gpuLayers ?? Infinity, insights.totalLayers);
  const device = gpuLayers === 0 ? 'cpu' : 'gpu';
  const { expert_count: experts } = insights.ggufFileInfo.architectureMetadata;
  const pooling = isPooling(setup.kind);
  const prefillTokensPerStep = setup.prefillTokensPerStep || PREFILL_TOKENS[device];
  const quantised = kv.values !== 'f16';
  const flashAttention =
    setup.flashAttention === 'auto'
      ? quantised || bestAttention(gpuLayers === 0, insights, setup)
      : setup.flashAttention;
  const problem = kvProblem(kv, flashAttention, headWidths(insights));
  if (problem !== undefined) throw new LoadFailure(problem);
  return {
    ...(pooling
      ? stepContext(Math.max(prefillTokensPerStep, setup.contextPerSeat))
      : {
          seats: setup.seats,
          contextPerSeat: setup.contextPerSeat,
          batchSize: Math.max(prefillTokensPerStep, await imageTokens(setup.projector)) + setup.seats,
        }),
    prefillTokensPerStep,
    gpuLayers,
    // Each further token of a model with experts reads weights of its own.
    closesGaps: gpuLayers === insights.totalLayers && (experts ?? 0) === 0,
    flashAttention,
    swaFull: setup.swaFull === true,
    kv,
    truncatable: truncatableAnywhere(insights, setup.swaFull),
  };
}

/** The inputs of a step share one context, of which nothing is kept; llama.cpp computes each in one piece. */
function stepContext(tokens: number): Pick<ContextPlan, 'seats' | 'contextPerSeat' | 'batchSize'> {
  return { seats: 1, contextPerSeat: tokens, batchSize: tokens };
}

/** Embeddings of an image that one decode must have at once. A projector that cannot be read is the vision process' to report. */
async function imageTokens(projector: PlanSetup['projector']): Promise<number> {
  if (projector === undefined) return 0;
  const head = await readProjector(projector.file).catch(() => undefined);
  return Math.min(head?.atOnce ?? (head ? projector.maxTokens : 0), projector.maxTokens);
}

/** Whether past state can be truncated at any position: not of recurrent and hybrid models, of sliding-window ones if all is kept. */
export function truncatableAnywhere({ isRecurrent, isHybrid, swaSize }: GgufInsights, swaFull = false): boolean {
  return !isRecurrent && !isHybrid && (swaSize === undefined || swaFull);
}

/** From this head width on, flash attention is faster on a CPU also after long prompts. */
const WIDE_HEAD = 64;

/** Seats with more tokens than this should not use it with narrower heads. */
const LONG_SEAT = 512;

/**
 * On a CPU llama.cpp's flash attention works pair by pair of query and cell for 2 to 63 tokens, as in a decision's questions, and prompts
 * beside running replies. It is faster for next tokens of short sequences and for whole chunks of a prompt; for small chunks after long
 * prompts it is many times slower if heads are narrow (bench/results/attention.md measures both).
 */
function bestAttention(onCpu: boolean, insights: GgufInsights, { kind, contextPerSeat }: PlanSetup): boolean | 'auto' {
  if (isPooling(kind)) return 'auto';
  // What a file does not name is taken for wide, as nearly all are.
  const narrow = contextPerSeat > LONG_SEAT && (headWidths(insights).keys ?? Infinity) < WIDE_HEAD;
  return onCpu && (kind === 'decision' || narrow) ? false : 'auto';
}

function headWidths({ ggufFileInfo: { architectureMetadata: about } }: GgufInsights): HeadWidths {
  const { key_length: keys, value_length: values, head_count: heads } = about.attention ?? {};
  const { embedding_length: width } = about;
  const each = width === undefined ? undefined : width / (typeof heads === 'number' && heads > 0 ? heads : 1);
  return { keys: keys ?? each, values: values ?? each };
}
