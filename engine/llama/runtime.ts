import type { GgufFileInfo, Llama, Token } from 'node-llama-cpp';
import type { Decoder } from '../scheduler/decoder.js';
import { keepThreads } from './addon.js';
import { openLlama } from './backend.js';
import { computeThreads, coresProblem, keepOnCores } from './cores.js';
import { BatchDecoder } from './batch-decoder.js';
import { LlamaLog } from './llama-log.js';
import { LoadFailure } from './load-failure.js';
import { ggmlTypes } from './kv-types.js';
import { planLoad, WITHOUT_ITS_CHECKS } from './load-plan.js';
import { freeMemory, roomForMemoryFiles } from './memory/available.js';
import {
  memoryCheck,
  withCheckpoints,
  estimateNeeds,
  type Needs,
  parkedSequences,
  savesToPages,
  withDrafts,
  withGrammars,
  withPrefixCache,
  repackedBytes,
} from './memory/estimate.js';
import { checkModelFile } from './model-file.js';
import { usesOf } from './model-uses.js';
import { promptVersionOf } from '../prompt/prompt-parts.js';
import { tokenizerHash } from './vocabulary.js';
import { beyondTrained, modelTokens, vocabularyTexts } from './model-tokens.js';
import { GgufInsights, readGgufFileInfo } from './package.js';
import type { EngineSetup, GpuBackend } from '../protocol/setup.js';
import type { ModelTokens } from '../scheduler/job.js';
import type { CacheOrigin } from '../protocol/cache-key.js';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { fileKey, partsOf, type HashedFile } from '../protocol/file-key.js';

/** A loaded model with its context. The code that made it disposes it. */
export interface Runtime {
  readonly decoder: Decoder;
  readonly tokens: ModelTokens;
  readonly vocabulary: number;
  /** As set up, or by the backend. */
  readonly prefillTokensPerStep: number;
  /** Host memory for saved states; 0 where past state can be truncated. */
  readonly checkpointBytes: number;
  /** Host memory for the prefixes of sequences that are overwritten. */
  readonly prefixCacheBytes: number;
  /** Sequences beside the seats. */
  readonly parked: number;
  readonly warnings: readonly string[];
  /** As EngineFacts has it. */
  readonly promptVersion: string;
  readonly kv: CacheOrigin['kv'];
  /** What else a state depends on: backend, attention, cells of windows, the chunks of prompts, and the number of sequences. */
  readonly shape: string;
  readonly repackedBytes: number;
  readonly threads: number;
  readonly gpu: string | false;
  /** Still collects lines; must be closed before the engine processes callers' content. */
  readonly log: LlamaLog;
  /** In this order: context, model, llama. Idempotent. */
  dispose(): Promise<void>;
}

/**
 * Loads model and context. `tries` is called before a backend is loaded. Rejects with a {@link LoadFailure} if the model cannot be served.
 */
export async function loadRuntime(setup: EngineSetup, tries?: (backend: GpuBackend | false) => void): Promise<Runtime> {
  const opened = await openBackend(setup, tries);
  const { info, llama, threads, log } = opened;
  const { model, context, plan, checkpointsOf, prefixCacheBytes, parked } = await load(opened, setup).catch(
    async (error: unknown) => {
      throw await log.failure(error);
    },
  );
  if (setup.cores !== undefined) keepOnCores(setup.cores);
  const { truncatable, swaFull, closesGaps } = plan;
  const device = plan.gpuLayers === 0 ? 'cpu' : 'gpu';
  const limits = { bytes: savesToPages(plan.gpuLayers, setup) ? prefixCacheBytes : 0 };
  const decoder = await BatchDecoder.create(context, threads, truncatable, swaFull, closesGaps, device, limits);
  const texts = vocabularyTexts(info.metadata, (token) => model.detokenize([token as Token]));
  return {
    decoder,
    tokens: modelTokens(
      texts,
      (token) => model.isEogToken(token as Token),
      (text) => model.tokenize(text),
    ),
    vocabulary: texts.tokens.length,
    prefillTokensPerStep: plan.prefillTokensPerStep,
    checkpointBytes: checkpointsOf(!decoder.states.truncatable),
    prefixCacheBytes,
    parked: decoder.states.truncatable ? parked : 0,
    warnings: beyondTrained(setup.contextPerSeat, info.architectureMetadata.context_length),
    promptVersion: promptVersionOf(tokenizerHash(info.metadata), setup.template),
    // What node-llama-cpp makes unless it is given types.
    kv: `${plan.kv.keys}, ${plan.kv.values}`,
    shape: [llama.gpu, plan.flashAttention, plan.swaFull, plan.prefillTokensPerStep, context.totalSequences].join(' '),
    threads,
    gpu: plan.gpuLayers === 0 ? false : llama.gpu,
    repackedBytes: llama.gpu === false ? repackedBytes(info.fullTensorInfo ?? [], llama.systemInfo) : 0,
    log,
    dispose: disposal(...(decoder.pages ? [decoder.pages] : []), context, model, llama),
  };
}

/** Disposes all of them in this order, once. */
export function disposal(...parts: readonly { dispose(): void | Promise<void> }[]): () => Promise<void> {
  let disposed: Promise<void> | undefined;
  const disposeAll = async (): Promise<void> => {
    for (const part of parts) await part.dispose();
  };
  return () => (disposed ??= disposeAll());
}

/** What a model is loaded with. The code that opened it disposes `llama`. */
export interface OpenedBackend {
  readonly llama: Llama;
  readonly info: GgufFileInfo;
  readonly threads: number;
  readonly log: LlamaLog;
}

/** Checks what is known of a model without loading it, and opens llama.cpp for it. As {@link loadRuntime}. */
export async function openBackend(
  setup: EngineSetup,
  tries?: (backend: GpuBackend | false) => void,
): Promise<OpenedBackend> {
  const file = checkModelFile(setup.file);
  if (file.kind === 'bad') throw new LoadFailure(file.problem, file.mayMend);
  if (file.tensors === 0) throw new LoadFailure('the file holds a vocabulary and no weights');
  const noCores = coresProblem(setup);
  if (noCores !== undefined) throw new LoadFailure(noCores);
  const info = await readGgufFileInfo(setup.file, { sourceType: 'filesystem', logWarnings: false });
  const threads = computeThreads(setup);
  const log = new LlamaLog();
  const { failedBackends = [] } = setup;
  const llama = await openLlama(setup.gpu, log, { failedBackends, ...(tries && { tries }) });
  return { llama, info, threads, log };
}

/** What llama.cpp's estimates are made of. Rejects with a {@link LoadFailure} for a model that this llama.cpp does not know. */
export async function insightsOf({ info, llama }: Pick<OpenedBackend, 'info' | 'llama'>): Promise<GgufInsights> {
  const insights = await GgufInsights.from(info, llama);
  if (insights.isSupportedByLlamaCpp) return insights;
  throw new LoadFailure(`this llama.cpp does not know the architecture ${info.metadata.general.architecture}`);
}

/** `checkpointsOf`: host memory for saved states, where past state cannot be truncated. */
async function load(opened: OpenedBackend, setup: EngineSetup) {
  const { llama, info, threads, log } = opened;
  const insights = await insightsOf(opened);
  const plan = await planLoad(llama, insights, setup);
  const { seats, contextPerSeat, batchSize, gpuLayers, flashAttention, swaFull, kv } = plan;
  const check = setup.memory && (await memoryCheck(llama, insights, setup.memory.mappedElsewhere));
  await check?.weights(gpuLayers);
  log.begin();
  const model = await llama.loadModel({ modelPath: setup.file, gpuLayers, ...WITHOUT_ITS_CHECKS });
  const problem = setup.kind === 'decision' ? usesOf(model, setup.template).decisions : undefined;
  if (problem !== undefined) throw new LoadFailure(problem);
  const weights = await insights.estimateModelResourceRequirementsV2({ gpuLayers });
  const free = check?.free ?? (await freeMemory(llama));
  const vocabulary = info.metadata.tokenizer.ggml.tokens.length;
  const grammars = withGrammars(await estimateNeeds(insights, weights, plan), setup.kind, vocabulary);
  const estimated = withDrafts(grammars, setup, plan, vocabulary);
  const saving = (appendOnly: boolean): Needs =>
    withCheckpoints(estimated, seats, appendOnly, setup.checkpoints?.bytes, free.cpuRam);
  const room = savesToPages(gpuLayers, setup) ? Infinity : roomForMemoryFiles()?.total;
  const needs = withPrefixCache(saving(!plan.truncatable), setup, free.cpuRam, room);
  check?.context(needs, plan);
  const onGpu = plan.truncatable && gpuLayers > 0 && gpuLayers === insights.totalLayers;
  const parked = onGpu ? parkedSequences(needs.gpu, setup, free.gpuVram) : 0;
  const types = ggmlTypes(kv);
  log.begin();
  const context = await model.createContext({
    sequences: seats + parked,
    contextSize: contextPerSeat,
    batchSize,
    threads: { ideal: threads, min: threads },
    flashAttention,
    swaFullCache: swaFull,
    experimentalKvCacheKeyType: types.keys,
    experimentalKvCacheValueType: types.values,
    // Its own check counts page cache as used, so it would refuse most models after many files were read.
    ignoreMemorySafetyChecks: true,
  });
  keepThreads(context, threads);
  const checkpointsOf = (appendOnly: boolean): number => saving(appendOnly).cpu.checkpoints ?? 0;
  return { model, context, plan, checkpointsOf, parked, prefixCacheBytes: needs.cpu.prefixCache ?? 0 };
}

/** Bytes that are read at a time. */
const CHUNK = 1 << 20;

/**
 * The version of the weights of one load, which begins when this is made. `hashed`: the files' key and hash, known by the sidecar
 * perhaps only while they load; undefined if this process hashes them once they have loaded.
 */
export class LoadedWeights {
  /** Of the file as it was then; undefined if its attributes cannot be read. */
  readonly key: string | undefined;
  readonly #file: string;
  readonly #hashed: Promise<HashedFile | undefined>;

  constructor(file: string, hashed: Promise<HashedFile | undefined>) {
    this.#file = file;
    this.#hashed = hashed;
    this.key = fileKey(file);
  }

  /**
   * Settles as `load` does. Rejects with a {@link LoadFailure} once the hash is known to be of another file, which may be long before the
   * end of the load: it then runs on, and this process is to end.
   */
  beside<T>(load: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      load.then(resolve, reject);
      this.#checked().catch(reject);
    });
  }

  /**
   * SHA-256 of the weights that were loaded, hex. Call it once they are. Rejects with a {@link LoadFailure} if the files changed since the
   * load began, or are not those that were hashed.
   */
  async version(): Promise<string> {
    const version = (await this.#checked())?.version ?? (await hashOf(this.#file));
    if (fileKey(this.#file) !== this.key)
      throw new LoadFailure('the file was replaced or written to while it was loaded', true);
    return version;
  }

  async #checked(): Promise<HashedFile | undefined> {
    const hashed = await this.#hashed;
    if (hashed === undefined || hashed.key === this.key) return hashed;
    throw new LoadFailure(
      'the file is not the one that was loaded before: it was replaced or written to (`ra-sidecar models reload` loads a new one)',
      true,
    );
  }
}

/** SHA-256 of a model's files, one after another, hex. */
async function hashOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  for (const part of partsOf(file))
    for await (const chunk of createReadStream(part, { highWaterMark: CHUNK })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}
