import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { availableParallelism } from 'node:os';
import {
  getLlama,
  GgufInsights,
  LlamaLogLevel,
  readGgufFileInfo,
  type GgufFileInfo,
  type Llama,
  type LlamaContext,
  type LlamaModel,
  type Token,
} from 'node-llama-cpp';
import type { Decoder } from './decode/decoder.js';
import { BatchDecoder } from './decode/batch-decoder.js';
import { IteratorDecoder, sequenceOrder } from './decode/iterator-decoder.js';
import { LlamaLog } from './load/llama-log.js';
import { LoadFailure } from './load/load-failure.js';
import { MemoryCheck } from './memory/check.js';
import { checkModelFile } from './load/model-file.js';
import { controlText, tokenBytes } from './output/token-bytes.js';
import { makeDecisionPrompt } from './prompt/decision-prompt.js';
import { makePromptParts } from './prompt/prompt-parts.js';
import { vocabularyOf } from './prompt/vocabulary.js';
import type { EngineSetup } from './protocol.js';
import type { ModelTokens } from './loop/task.js';

/** A loaded model with its context. Whoever made it disposes it. */
export interface Runtime {
  readonly decoder: Decoder;
  readonly tokens: ModelTokens;
  /** `general.name`, or the architecture when the file names nothing. */
  readonly name: string;
  readonly vocabulary: number;
  /** SHA-256 of the weights file, hex. */
  readonly weightVersion: string;
  readonly threads: number;
  readonly gpu: string | false;
  /** In this order: context, model, llama. Idempotent. */
  dispose(): Promise<void>;
}

/** Compute threads for a setup: with every core computing, the loop that feeds them starves (shared/engine.md section 1). */
export function computeThreads(wanted: number): number {
  return wanted > 0 ? wanted : Math.max(1, availableParallelism() - 1);
}

/** Loads model and context. Rejects with a {@link LoadFailure} when the model cannot be served. */
export async function loadRuntime(setup: EngineSetup): Promise<Runtime> {
  const file = checkModelFile(setup.file);
  if (file.kind === 'bad') throw new LoadFailure(file.problem, file.mayMend);
  if (file.tensors === 0) throw new LoadFailure('the file holds a vocabulary and no weights');
  const [weightVersion, info] = await Promise.all([
    sha256(setup.file),
    readGgufFileInfo(setup.file, { sourceType: 'filesystem', logWarnings: false }),
  ]);
  const threads = computeThreads(setup.threads);
  const log = new LlamaLog();
  const llama = await getLlama({
    gpu: setup.gpu,
    build: 'never',
    skipDownload: true,
    progressLogs: false,
    logLevel: LlamaLogLevel.error,
    // Past the load llama.cpp's own lines may quote what it works on: they stay out of the logs.
    logger: log.logger,
  });
  const { model, context } = await load(llama, info, setup, threads).catch(async (error: unknown) => {
    throw error instanceof LoadFailure ? error : refusal(error, await log.firstError());
  });
  log.close();
  const decoder = await makeDecoder(model, context, threads);
  let disposed: Promise<void> | undefined;
  const texts = vocabularyTexts(info, model);
  return {
    decoder,
    tokens: {
      isEnd: (token) => model.isEogToken(token as Token),
      bytes: tokenBytes(texts),
      control: controlText(texts),
    },
    name: info.metadata.general.name ?? info.metadata.general.architecture,
    vocabulary: texts.tokens.length,
    weightVersion,
    threads,
    gpu: llama.gpu,
    dispose: () => {
      disposed ??= (async () => {
        await context.dispose();
        await model.dispose();
        await llama.dispose();
      })();
      return disposed;
    },
  };
}

/**
 * On a CPU llama.cpp's flash attention goes pair by pair of query and cell for 2 to 63 tokens, which is what a decision's
 * questions are: slower there by far (bench/results/reuse.md). For next tokens, of which replies are made, it is the faster
 * one (bench/results/engine-limit.md), so a model that chats has it; a long prompt beside replies then takes longer.
 */
function bestAttention(llama: Llama, kind: EngineSetup['kind']): boolean | 'auto' {
  return llama.gpu === false && kind === 'decision' ? false : 'auto';
}

async function load(
  llama: Llama,
  info: GgufFileInfo,
  setup: EngineSetup,
  threads: number,
): Promise<{ model: LlamaModel; context: LlamaContext }> {
  const { seats } = setup;
  const batchSize = setup.prefillTokensPerStep + seats;
  const insights = await GgufInsights.from(info, llama);
  const { architecture } = info.metadata.general;
  if (!insights.isSupportedByLlamaCpp) {
    throw new LoadFailure(`this llama.cpp does not know the architecture ${architecture}`);
  }
  // The iterators leave a sequence's last place empty.
  const contextPerSeat = setup.contextPerSeat + (cutsAnywhere(insights) ? 0 : 1);
  const fitContext = { contextSize: contextPerSeat * seats };
  const { gpuLayers } = await insights.configurationResolver.resolveModelGpuLayersV2({ fitContext });
  const check = setup.memory && (await MemoryCheck.begin(llama, insights, setup.memory.mappedElsewhere));
  await check?.weights(gpuLayers);
  const model = await llama.loadModel({ modelPath: setup.file, gpuLayers });
  const problem = setup.kind === 'decision' ? decisionProblem(model) : undefined;
  if (problem !== undefined) throw new LoadFailure(problem);
  const flashAttention = setup.flashAttention === 'auto' ? bestAttention(llama, setup.kind) : setup.flashAttention;
  await check?.context({ seats, contextPerSeat, batchSize, gpuLayers, flashAttention });
  const context = await model.createContext({
    sequences: seats,
    contextSize: contextPerSeat,
    batchSize,
    threads: { ideal: threads, min: threads },
    flashAttention,
    batching: { itemPrioritizationStrategy: sequenceOrder },
    // Its check takes page cache for used, so that it would refuse most models after a day of reading files.
    ignoreMemorySafetyChecks: true,
  });
  return { model, context };
}

/** llama.cpp's first line says why; the error that comes up from it does not. */
function refusal(error: unknown, line: string | undefined): LoadFailure {
  const why = line ?? (error instanceof Error ? error.message : 'it gave no reason');
  return new LoadFailure(`llama.cpp cannot load it: ${why}`, /allocat|memory/i.test(why));
}

/**
 * The layer below the iterators where it is known and fits. Models whose past state cannot be cut at any position
 * (recurrent, hybrid, sliding window) keep to the iterators, which know how to evaluate such a sequence again.
 */
async function makeDecoder(model: LlamaModel, context: LlamaContext, threads: number): Promise<Decoder> {
  const cuttable = cutsAnywhere(model.fileInsights);
  return (cuttable ? await BatchDecoder.over(context, threads) : undefined) ?? new IteratorDecoder(context, cuttable);
}

function cutsAnywhere({ isRecurrent, isHybrid, swaSize }: GgufInsights): boolean {
  return !isRecurrent && !isHybrid && swaSize === undefined;
}

/** Why the model cannot decide, in one line: its template, or a label that is not one distinct token behind it. */
function decisionProblem(model: LlamaModel): string | undefined {
  const made = makePromptParts(vocabularyOf(model));
  const decision = made.kind === 'ok' ? makeDecisionPrompt(made.parts) : made;
  return decision.kind === 'ok' ? undefined : decision.problem;
}

function vocabularyTexts(info: GgufFileInfo, model: LlamaModel): Parameters<typeof tokenBytes>[0] {
  const { ggml } = info.metadata.tokenizer;
  return {
    model: ggml.model,
    tokens: ggml.tokens,
    types: ggml.token_type,
    detokenize: (token) => model.detokenize([token as Token]),
  };
}

async function sha256(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}
