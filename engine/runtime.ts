import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { availableParallelism } from 'node:os';
import {
  getLlama,
  LlamaLogLevel,
  readGgufFileInfo,
  type GgufFileInfo,
  type LlamaContext,
  type LlamaModel,
  type Token,
} from 'node-llama-cpp';
import type { Decoder } from './decoder.js';
import { BatchDecoder } from './batch-decoder.js';
import { IteratorDecoder, sequenceOrder } from './iterator-decoder.js';
import { controlText, tokenBytes } from './output/token-bytes.js';
import { makeDecisionPrompt } from './prompt/decision-prompt.js';
import { makePromptParts } from './prompt/prompt-parts.js';
import { vocabularyOf } from './prompt/vocabulary.js';
import type { EngineSetup } from './protocol.js';
import type { ModelTokens } from './task.js';

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

/** Loads model and context. Rejects with an error whose message is fit for an operator (a path, a size, no content). */
export async function loadRuntime(setup: EngineSetup): Promise<Runtime> {
  const [weightVersion, info] = await Promise.all([
    sha256(setup.file),
    readGgufFileInfo(setup.file, { sourceType: 'filesystem', logWarnings: false }),
  ]);
  const threads = computeThreads(setup.threads);
  const llama = await getLlama({
    gpu: setup.gpu,
    build: 'never',
    skipDownload: true,
    progressLogs: false,
    logLevel: LlamaLogLevel.error,
    // llama.cpp's own lines may quote what it works on: they stay out of the logs; failures arrive as errors.
    logger: () => undefined,
  });
  const model = await llama.loadModel({ modelPath: setup.file });
  const problem = setup.kind === 'decision' ? decisionProblem(model) : undefined;
  if (problem !== undefined) throw new Error(problem);
  const context = await model.createContext({
    sequences: setup.seats,
    contextSize: setup.contextPerSeat,
    batchSize: setup.prefillTokensPerStep + setup.seats,
    threads: { ideal: threads, min: threads },
    // On a CPU llama.cpp's flash attention goes pair by pair of query and cell, its matrix product does not: at 800 tokens of
    // context a chunk of 8 took 10 ms with the one and 0.9 ms with the other (13m recipe).
    flashAttention: llama.gpu === false ? false : 'auto',
    batching: { itemPrioritizationStrategy: sequenceOrder },
  });
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
 * The layer below the iterators where it is known and fits. Models whose past state cannot be cut at any position
 * (recurrent, hybrid, sliding window) keep to the iterators, which know how to evaluate such a sequence again.
 */
async function makeDecoder(model: LlamaModel, context: LlamaContext, threads: number): Promise<Decoder> {
  const { isRecurrent, isHybrid, swaSize } = model.fileInsights;
  const cuttable = !isRecurrent && !isHybrid && (swaSize ?? 0) === 0;
  return (cuttable ? await BatchDecoder.over(context, threads) : undefined) ?? new IteratorDecoder(context, cuttable);
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
