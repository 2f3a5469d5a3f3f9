/**
 * The layer below node-llama-cpp's iterators: the addon's own context and samplers. It is not public API, so it is used
 * only with the exact version that it was written for, if the objects look as expected; otherwise the iterators are
 * used (runtime.ts).
 */
import { availableParallelism } from 'node:os';
import type { Llama, LlamaContext } from 'node-llama-cpp';
import { KNOWN_VERSION, packageVersion } from './prebuilt-file.js';
import { Grammars, type GrammarState } from './grammars.js';

/** The addon's context, as far as it is used here (node-llama-cpp's bindings/AddonTypes.d.ts, not exported). */
export interface AddonContext {
  initBatch(size: number): void;
  /** Returns the batch's logit indexes of the tokens that `logitIndexes` names. */
  addToBatch(sequence: number, firstPosition: number, tokens: Uint32Array, logitIndexes: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
  sampleToken(logitIndex: number, sampler: AddonSampler): Promise<number>;
  sampleToken(
    logitIndex: number,
    sampler: AddonSampler,
    probabilities: false,
    confidence: false,
    logits: readonly [tokens: number[], max: boolean, min: boolean, selected: boolean, top: number],
    totalLogitWeight: true,
  ): Promise<[token: number, probabilities: undefined, confidence: undefined, logits: number[], total: number]>;
  disposeSequence(sequence: number): void;
  removeTokenCellsFromSequence(sequence: number, from: number, to: number): boolean;
  /** The first position that every layer still has; -1: the sequence is empty. */
  getSequenceKvCacheMinPosition(sequence: number): number;
  /** The last position that every layer has; -1: the sequence is empty. */
  getSequenceKvCacheMaxPosition(sequence: number): number;
  /** Copies on llama.cpp's next decode, before it computes. Resolves with the last position copied, 0 also for none. */
  copySequenceStateFromOtherSequence(target: number, source: number): Promise<number>;
  setThreads(threads: number): void;
  /** Resolves with whether the sequence now ends at `lastPosition`. Rejects when the checkpoint was disposed. */
  restoreCheckpoint(checkpoint: AddonCheckpoint, lastPosition: number, sequence: number): Promise<boolean>;
  /** Writes all that the sequence holds, and these tokens. Resolves with the bytes written. Not during a decode. */
  saveSequenceStateToFile(path: string, sequence: number, tokens: Uint32Array): Promise<number>;
  /** The way back. `most`: tokens that the file may have, at least 1. Resolves with them. */
  loadSequenceStateFromFile(path: string, sequence: number, most: number): Promise<Uint32Array>;
}

/** A copy of what llama.cpp cannot truncate of a sequence's state (`LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`), in host memory. */
export interface AddonCheckpoint {
  /** Copies the state of `sequence`. Not during a decode. */
  init(context: AddonContext, sequence: number): Promise<void>;
  /** Frees the copy. */
  dispose(): void;
  /** Bytes. */
  readonly size: number;
  /** The first position that every layer had; of a recurrent state the last one. */
  readonly minPos: number;
  /** The last position that it is of; -1: nothing. */
  readonly maxPos: number;
}

export interface AddonSampler {
  applyConfig(config: Readonly<Record<string, number | Uint32Array | Float32Array | GrammarState>>): void;
  dispose(): void;
}

/** How one reply's tokens are chosen, with the random numbers of its seed; not for grammars. */
export interface AddonPicker {
  /** All tokens picked so far, if penalties need them. */
  readonly picked: () => Int32Array;
}

/** The version of `engine/native/next-token.cpp`. An addon built from another one is used like the prebuilt one. */
export const KNOWN_NATIVE = 5;

/** Consecutive steps without JavaScript in between. */
export interface AddonRun {
  /** Resolves after the last step. Rejects as `decodeBatch` does when the first one failed; nothing was then picked. */
  readonly ended: Promise<void>;
  /** Tokens picked since the last call, step by step. */
  readonly take: () => Int32Array;
  /** No further step begins. */
  readonly halt: () => void;
}

/** The sampling parameters of a reply. */
export interface Picked {
  readonly temperature: number;
  readonly seed: number;
  readonly topP: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
}

/**
 * The functions that `make engine-native` adds to the addon (engine/native/next-token.cpp): tokens are picked within
 * the decode, without a separate job per token.
 */
export interface Picking {
  readonly newPicker: (sampling: Picked) => AddonPicker;
  /**
   * Decodes parts and picks a token for each that has a picker, on a thread that makes all runs of the process. `parts` has
   * four numbers of each: sequence, first position, tokens, and 1 where its last token's logits are wanted, or 2 where it is no part
   * but closes a gap between them: its one token is removed after each step. `tokens` has the tokens of all, in their order. The logits of a part are then at the index of its last token. -1: it has no picker, or
   * there were no logits. Where every part is one token with a picker, up to `most` steps, the picks of each being the tokens
   * of the next one. None follows one that picked an end token, or that failed. -2: no logit was a number (not-a-number.ts).
   */
  readonly run: (
    context: AddonContext,
    parts: Int32Array,
    tokens: Int32Array,
    pickers: readonly (AddonPicker | undefined)[],
    most: number,
  ) => AddonRun;
}

export interface Internals {
  readonly context: AddonContext;
  readonly newSampler: () => AddonSampler;
  readonly Checkpoint: new () => AddonCheckpoint;
  readonly grammars: Grammars;
  /** Absent: the addon is the prebuilt one. */
  readonly picking?: Picking;
  /** Absent: the addon was built without images. */
  readonly embeddings?: EmbeddingDecodes;
}

export interface EmbeddingDecodes {
  readonly decode: DecodeEmbeddings;
  /** Numbers of an embedding. */
  readonly width: number;
}

/**
 * Evaluates embeddings of an image in place of tokens (engine/native/embeddings.cpp). `first`: the image's first position;
 * `index`: of the first embedding within the image; `columns`: see ImageSegment; `whole`: all attend to each other. `values`
 * are not to be changed before it settles. Throws a RangeError where their number is not that of whole embeddings, or more than
 * the context's batch. Rejects as `decodeBatch` does.
 */
export type DecodeEmbeddings = (
  context: AddonContext,
  sequence: number,
  first: number,
  index: number,
  columns: number,
  whole: boolean,
  values: Float32Array,
) => Promise<void>;

interface Bindings {
  readonly AddonSampler?: new (model: unknown) => AddonSampler;
  readonly AddonContextSequenceCheckpoint?: new () => AddonCheckpoint;
  readonly raVersion?: number;
  readonly RaPicker?: new (
    temperature: number,
    seed: number,
    topP: number,
    frequencyPenalty: number,
    presencePenalty: number,
  ) => AddonPicker;
  readonly raDecodeRun?: Picking['run'];
  readonly raDecodeEmbeddings?: DecodeEmbeddings;
  readonly raEmbeddingWidth?: (context: AddonContext) => number;
  readonly raLeave?: () => void;
  readonly raUseThreads?: (context: AddonContext, threads: number, pickers: number, logits: number) => void;
}

/** The addon's objects below a {@link LlamaContext}. */
interface Layer {
  readonly _ctx?: AddonContext;
  readonly _llama?: { readonly _bindings?: Bindings };
  readonly _model?: { readonly _model?: unknown };
}

const METHODS = [
  'initBatch',
  'addToBatch',
  'decodeBatch',
  'sampleToken',
  'disposeSequence',
  'removeTokenCellsFromSequence',
  'getSequenceKvCacheMinPosition',
  'getSequenceKvCacheMaxPosition',
  'copySequenceStateFromOtherSequence',
  'setThreads',
  'restoreCheckpoint',
] as const;

/** Whether this is the version of node-llama-cpp whose addon was read. */
export function isKnownVersion(): boolean {
  return packageVersion() === KNOWN_VERSION;
}

/** The layer below `context`, or undefined when this is not the version it was read in. */
export function internals(context: LlamaContext): Internals | undefined {
  if (!isKnownVersion()) return undefined;
  const { _ctx: inner, _llama: llama, _model: model } = context as unknown as Layer;
  const Make = llama?._bindings?.AddonSampler;
  const addonModel = model?._model;
  const grammars = Grammars.of(context.model);
  const Checkpoint = llama?._bindings?.AddonContextSequenceCheckpoint;
  if (!inner || !Make || !Checkpoint || !addonModel || !grammars) return undefined;
  if (METHODS.some((method) => typeof inner[method] !== 'function')) return undefined;
  const newSampler = (): AddonSampler => new Make(addonModel);
  const { raVersion, raDecodeEmbeddings: decode, raEmbeddingWidth: widthOf } = llama._bindings;
  const images = raVersion === KNOWN_NATIVE && decode && widthOf && { embeddings: { decode, width: widthOf(inner) } };
  return { context: inner, newSampler, Checkpoint, grammars, ...picking(llama._bindings), ...images };
}

/** Whether the addon has the code of `make engine-native`; outdated: another version of it. */
export function nativeCodeOf(llama: Llama): 'none' | 'known' | 'outdated' {
  const bindings = (llama as unknown as NonNullable<Layer['_llama']>)._bindings;
  if (bindings?.RaPicker === undefined) return 'none';
  return bindings.raVersion === KNOWN_NATIVE ? 'known' : 'outdated';
}

/**
 * The most threads that share a step's picks with the decoding thread, and the number of logits that is worth one more.
 */
export interface Spread {
  readonly threads: number;
  readonly logits: number;
}

/**
 * Half of the cores: compute threads rest while tokens are picked, and other processes need some. A million logits, twenty tokens
 * of a 50 k vocabulary, should take a core several times the start time of a thread; neither was measured yet.
 */
const SPREAD: Spread = { threads: Math.floor(availableParallelism() / 2) - 1, logits: 1 << 20 };

/**
 * Keeps this many compute threads for the decodes of `context`, in place of starting them for each; once per context.
 * Only supported by the addon of `make engine-native`. `spread` applies to all contexts of the process. No step starts
 * once the process exits, since its threads would read freed memory.
 */
export function keepThreads(context: LlamaContext, threads: number, spread = SPREAD): void {
  const { _ctx: inner, _llama: llama } = context as unknown as Layer;
  const bindings = llama?._bindings;
  if (!inner || bindings?.raVersion !== KNOWN_NATIVE) return;
  bindings.raUseThreads?.(inner, threads, Math.max(0, spread.threads), spread.logits);
  const { raLeave: leave } = bindings;
  if (leave && !process.listeners('exit').includes(leave)) process.once('exit', leave);
}

/** The functions of an addon of the known version; none for any other. */
export function picking({
  raVersion: version,
  RaPicker: Make,
  raDecodeRun: run,
}: Bindings): Pick<Internals, 'picking'> {
  if (version !== KNOWN_NATIVE || !Make || !run) return {};
  const newPicker: Picking['newPicker'] = ({ temperature, seed, topP, frequencyPenalty, presencePenalty }) =>
    new Make(temperature, seed, topP, frequencyPenalty, presencePenalty);
  return { picking: { run, newPicker } };
}
