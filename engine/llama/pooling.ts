/**
 * Loads a model that makes vectors or scores of whole inputs, with the context of engine/native/pooling.cpp. Its memory holds one step's
 * tokens, whatever the number of seats: nothing of an input is kept.
 */
import type { GgufFileInfo } from 'node-llama-cpp';
import { promptVersionOf } from '../prompt/prompt-parts.js';
import type { EngineSetup, GpuBackend, ScoreScale } from '../protocol/setup.js';
import type { Pooling, PoolingLimits } from '../scheduler/pooling-loop.js';
import { engineAddon } from './addon.js';
import { keepOnCores } from './cores.js';
import { LoadFailure } from './load-failure.js';
import { planLoad, WITHOUT_ITS_CHECKS } from './load-plan.js';
import { estimateNeeds, memoryCheck, repackedBytes } from './memory/estimate.js';
import { scoresOf } from './model-tokens.js';
import { disposal, insightsOf, openBackend, type OpenedBackend, type Runtime } from './runtime.js';
import { tokenizerHash, valueAt } from './vocabulary.js';

/** Inputs of a step: more than llama.cpp's 256 sequences cannot be, and inputs of fewer than four tokens are rare. */
const STEP_INPUTS = 128;

/** As llama.cpp numbers them; others pool nothing, or are not known here. */
const POOLING = { mean: 1, cls: 2, last: 3, rank: 4 } as const;

const FLASH_ATTENTION = { auto: -1, false: 0, true: 1 } as const;

/** A loaded model. The code that made it disposes it. */
export interface PoolingRuntime extends Pick<
  Runtime,
  'vocabulary' | 'promptVersion' | 'threads' | 'gpu' | 'repackedBytes' | 'log' | 'dispose'
> {
  readonly pooling: Pooling;
  readonly limits: PoolingLimits;
  /** What a score is; undefined if it makes vectors. */
  readonly scores: ScoreScale | undefined;
}

/** As {@link loadRuntime}, for the kinds `embedding` and `rerank`. */
export async function loadPooling(
  setup: EngineSetup,
  tries?: (backend: GpuBackend | false) => void,
): Promise<PoolingRuntime> {
  const opened = await openBackend(setup, tries);
  const { llama, info, threads, log } = opened;
  const { model, addon, limits, gpuLayers } = await load(opened, setup).catch(async (error: unknown) => {
    throw await log.failure(error);
  });
  if (setup.cores !== undefined) keepOnCores(setup.cores);
  return {
    pooling: addon,
    limits,
    scores: setup.kind === 'rerank' ? scoresOf(info.metadata.general.architecture) : undefined,
    vocabulary: limits.vocabulary,
    promptVersion: promptVersionOf(tokenizerHash(info.metadata)),
    threads,
    gpu: gpuLayers === 0 ? false : llama.gpu,
    repackedBytes: llama.gpu === false ? repackedBytes(info.fullTensorInfo ?? [], llama.systemInfo) : 0,
    log,
    dispose: disposal(addon, model, llama),
  };
}

async function load(opened: OpenedBackend, setup: EngineSetup) {
  const { llama, info, threads, log } = opened;
  const { contextPerSeat, kind } = setup;
  const problem = poolingProblem(info, kind, contextPerSeat);
  if (problem !== undefined) throw new LoadFailure(problem);
  const insights = await insightsOf(opened);
  const plan = await planLoad(llama, insights, setup);
  const { gpuLayers, flashAttention, prefillTokensPerStep: stepTokens } = plan;
  const check = setup.memory && (await memoryCheck(llama, insights, setup.memory.mappedElsewhere));
  await check?.weights(gpuLayers);
  log.begin();
  const model = await llama.loadModel({ modelPath: setup.file, gpuLayers, ...WITHOUT_ITS_CHECKS });
  const weights = await insights.estimateModelResourceRequirementsV2({ gpuLayers });
  check?.context(await estimateNeeds(insights, weights, plan), plan);
  log.begin();
  // The addon's object below a model, which is not public API (addon.ts checks the version).
  const { _model: inner } = model as unknown as { readonly _model?: object };
  if (!inner) throw new LoadFailure('node-llama-cpp is not as its version should be: run npm ci');
  const addon = new (engineAddon().RaPooling)(
    inner,
    plan.contextPerSeat,
    STEP_INPUTS,
    threads,
    FLASH_ATTENTION[`${flashAttention}`],
    kind === 'rerank',
  );
  const vocabulary = info.metadata.tokenizer.ggml.tokens.length;
  return { model, addon, limits: { stepTokens, stepInputs: STEP_INPUTS, contextPerSeat, vocabulary }, gpuLayers };
}

/** Why a file cannot be served as this kind, by its head; undefined if it can. */
export function poolingProblem(
  { metadata, fullTensorInfo }: GgufFileInfo,
  kind: EngineSetup['kind'],
  contextPerSeat: number,
): string | undefined {
  const { architecture } = metadata.general;
  const trained = valueAt(metadata, `${architecture}.context_length`);
  // Past it llama.cpp reads beyond the end of a table of positions.
  if (typeof trained === 'number' && contextPerSeat > trained)
    return `contextPerSeat is ${contextPerSeat}, and the model takes inputs of at most ${trained} tokens`;
  if (kind === 'rerank')
    return fullTensorInfo?.some(({ name }) => name.startsWith('cls.')) === true
      ? undefined
      : 'the file has no classification head (tensors cls.*), so that it cannot rerank';
  const pooling = valueAt(metadata, `${architecture}.pooling_type`);
  if (pooling === POOLING.rank) return 'the file is a reranker: set kind to rerank';
  return pooling === POOLING.mean || pooling === POOLING.cls || pooling === POOLING.last
    ? undefined
    : 'the file names no pooling (mean, cls or last), so that it makes no vectors of whole inputs';
}
