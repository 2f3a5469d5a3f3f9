/**
 * Loads the addons of engine/native beside node-llama-cpp's own. They are linked to no llama.cpp: they find its functions in the
 * library that node-llama-cpp's addon has loaded, on whichever backend, if that addon was opened with RTLD_GLOBAL. They read its
 * context by the header of one version of node-llama-cpp, so no other version is served.
 */
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { LlamaContext } from 'node-llama-cpp';
import { LoadFailure } from './load-failure.js';
import { KNOWN_VERSION, packageVersion } from './addon-file.js';
import { MOST_STEP_TOKENS } from '../scheduler/decoder.js';
import { usableCores } from '../protocol/usable-cores.js';

/** How one reply's tokens are chosen, with the random numbers of its seed, and what penalties count. */
export interface AddonPicker {
  /** The next picks are these tokens, whatever the logits: for tests and benches, which replay a known text. */
  readonly follow: (tokens: Int32Array) => void;
}

/** The text of one reply, from which its next tokens are drafted (engine/native/speculation.h). Runs use it themselves. */
export interface AddonDrafts {
  /** The token at this position of the text; in place of another one, what came after that is forgotten. */
  readonly feed: (position: number, token: number) => void;
  /** Tokens that a step gives on average, by the number of drafts ({@link DRAFT_LENGTHS}). `shared`: by what other replies showed too. */
  readonly expected: (shared: boolean) => Float64Array;
  /** Up to so many tokens; none where nothing is predicted. */
  readonly draft: (count: number) => Int32Array;
  /** Overwrites the text with zeros; nothing is drafted any more. Also during a run. */
  readonly wipe: () => void;
}

/** Places of a grammar that runs follow replies through. */
export interface AddonPlaces {
  /** `leaves`: as MaskPlace of engine/grammar/mask.ts has them. */
  readonly know: (at: number, may: Uint32Array, isNarrow: boolean, leaves: Int32Array) => void;
}

/** Where a reply stands in its grammar (engine/native/places.h). `text`: all that a grammar may allow; `drafts`: a run ends if its drafts pay, and has none. */
export interface AddonStanding {
  readonly places: AddonPlaces;
  readonly at: number;
  readonly text: Uint32Array;
  readonly drafts: boolean;
}

/** Numbers of drafts that each sequence of a step may have, as in engine/native/speculation.h. */
export const DRAFT_LENGTHS = [0, 3, 7, 15, 31, MOST_STEP_TOKENS - 1] as const;

/** Logits of a decode with drafts, at most: 64 MiB, which llama.cpp keeps from then on. The addon's runs have the same bound. */
export const MOST_LOGITS = 1 << 24;

/** What the steps of a context cost, by which the number of drafts is chosen. Runs use it themselves; not to be called during one. */
export interface AddonStepCosts {
  /**
   * The index of the best number of drafts, `last` at most. `expected`: tokens of a step, of all its sequences. `mostMs`: what a step
   * of several sequences with drafts may take; absent: any time. `mayVary`: measured times may decide for one sequence.
   */
  choose(sequences: number, expected: Float64Array, last: number, mostMs?: number, mayVary?: boolean): number;
  readonly learn: (sequences: number, choice: number, ms: number) => void;
}

/** Consecutive steps without JavaScript in between. */
export interface AddonRun {
  /** Resolves after the last step. Rejects as `decodeBatch` does when the first one failed; nothing was then picked. */
  readonly ended: Promise<void>;
  /**
   * What was picked since the last call, step by step. Of each part: how many tokens were picked, how many were drafted, and the
   * picked ones. Without drafts each part has one.
   */
  readonly take: () => Int32Array;
  /** Once it has ended: of each part with labels their natural log-probabilities over the whole vocabulary, after its first step. */
  readonly scores: () => readonly Float64Array[];
  /** No further step begins. */
  readonly halt: () => void;
}

/** A context that makes vectors or scores of whole inputs. */
export interface AddonPooling {
  /** Numbers of a result: of a vector, or 1. */
  readonly width: number;
  /**
   * One decode. Resolves with the results one after another, vectors of length 1. Rejects as `decodeBatch` does. Throws a RangeError
   * where the lengths are not those of the tokens, or more than the context takes. Not during another one.
   */
  decode(tokens: Uint32Array, lengths: Uint32Array): Promise<Float32Array>;
  /** Writes zeros over what the last decode left. Not during a decode. */
  clear(): void;
  /** Not during a decode. Idempotent. */
  dispose(): void;
}

/** Pages of host memory, which states are copied to and from. Its methods are not to be called during a decode. */
export interface AddonPages {
  /** Whether there is memory of the asked kind. */
  readonly found: boolean;
  /** The kind of memory that was allocated last, as ggml calls it; empty: none was. */
  readonly name: string;
  /** Bytes of all pages, and of those that no state has. */
  readonly size: number;
  readonly free: number;
  /** Allocates so many bytes of pages, also during a decode. Resolves with whether there was memory. */
  grow(bytes: number): Promise<boolean>;
  /**
   * Copies all that a sequence holds. Resolves with the number of the state, 0 where there are not enough pages, and the bytes that it
   * takes. Rejects when it cannot.
   */
  save(context: AddonContext, sequence: number): Promise<[state: number, bytes: number]>;
  /** The way back. Rejects when it cannot; what the sequence holds is then unknown. */
  restore(context: AddonContext, sequence: number, state: number): Promise<void>;
  /** Its pages are free, and are written over with zeros or with another state. No copy of it may run. */
  drop(state: number): void;
  /** Frees all memory, once no copy runs. Without it the memory is freed with the process. Idempotent. */
  dispose(): void;
}

/** The exports of ra-engine (engine/native/next-token.cpp, speculation.cpp, embeddings.cpp, pooling.cpp, states.cpp and pages.cpp). */
export interface EngineAddon {
  /** `sources:` and the SHA-256 of what it was compiled from (engine/native/build.ts). */
  readonly raSources: string;
  /** For {@link AddonStanding}. Only what this made is one's `places`. */
  readonly RaPlaces: new () => AddonPlaces;
  readonly RaPicker: new (
    temperature: number,
    seed: number,
    topP: number,
    frequencyPenalty: number,
    presencePenalty: number,
    /** 0: of all tokens. */
    topK: number,
    minP: number,
  ) => AddonPicker;
  /**
   * `tokens`: the prompt; `most`: tokens that prompt and reply have together at most; `mayVary`: as SamplingParams has it. With `chance`,
   * for tests and benches: `tokens` are prompt and reply, `most` the prompt's number, and each token of the reply is claimed to come so often.
   * `costs`: of the model, with which what its replies show is kept; absent: nowhere.
   */
  readonly RaDrafts: new (
    tokens: Uint32Array,
    most: number,
    mayVary?: boolean,
    chance?: number,
    costs?: AddonStepCosts,
  ) => AddonDrafts;
  /**
   * `alone`: what a step of one sequence costs by the number of drafts, over one without. `only`: the index of the number that is
   * always drafted, for benches. Throws a RangeError for another number of costs.
   */
  readonly RaStepCosts: new (alone: Float64Array, only?: number) => AddonStepCosts;
  /**
   * Decodes parts and picks a token for each that has a picker, on a thread that makes all runs of the process. `parts` has
   * four numbers of each: sequence, first position, tokens, and 1 where its last token's logits are wanted, 3 where those of all its
   * tokens are, or 2 where it is no part but closes a gap between them: its tokens are removed after each step. `tokens` has the tokens of all, in their order. The
   * logits of a part are then at the index of its last token. -1: it has no picker, or there were no logits. Where every part is one
   * token with a picker, steps until a part has as many picks as `most` has for it, the last picks of each being the tokens of the next one.
   * None follows one that picked an end token, or that failed, nor one after which a part may have fewer than `reserve` picks. -2: no logit was a number (batch-sampler.ts). `labels`: of each part that is scored in place of being
   * sampled. `allowed`: a bit for each token of the vocabulary where a part's pick is one of these, in the first step alone; where one
   * alone is, none is drawn. `again`: what is picked and is none of these is replaced by one of them. The masks are not to be changed. No other step
   * follows where a part has masks, except from one of `standings`: its steps go on while the places of all such parts are known, and with
   * `costs` until drafts would pay that such a step has not, or with drafts as far as the places after them are known. `drafts`: of parts whose next tokens may be drafted, and `costs` by which their number is chosen; absent:
   * nothing is drafted. Drafts that are not picked are removed. `mostMs`: what a step of several sequences with drafts may take. Throws a RangeError for parts that do not fit the tokens.
   */
  readonly raDecodeRun: (
    context: AddonContext,
    parts: Int32Array,
    tokens: Int32Array,
    pickers: readonly (AddonPicker | undefined)[],
    most: Uint32Array,
    labels: readonly (Uint32Array | undefined)[],
    allowed: readonly (Uint32Array | undefined)[],
    drafts?: readonly (AddonDrafts | undefined)[],
    costs?: AddonStepCosts,
    reserve?: number,
    mostMs?: number,
    again?: readonly (Uint32Array | undefined)[],
    standings?: readonly (AddonStanding | undefined)[],
  ) => AddonRun;
  /**
   * Picks a token from the logits at `row` of the last decode, among those whose bit is set; absent: any. What is none of `again` is
   * replaced by one of them. Not while it decodes. Throws a RangeError where there are no such logits.
   */
  readonly raPick: (
    context: AddonContext,
    row: number,
    picker: AddonPicker,
    allowed?: Uint32Array,
    again?: Uint32Array,
  ) => number;
  /**
   * Picks another token in place of the one that `picker` picked last, from the logits at `row` of the last decode, among those
   * whose bit is set. Not while it decodes. Throws a RangeError where there are no such logits.
   */
  readonly raPickAgain: (context: AddonContext, row: number, picker: AddonPicker, allowed: Uint32Array) => number;
  /**
   * `model`: node-llama-cpp's own. `tokens` and `inputs`: the most of a decode. `flashAttention`: -1 as llama.cpp finds, 0 or 1. `ranks`:
   * the results are scores in place of vectors. Throws where there is no memory.
   */
  readonly RaPooling: new (
    model: object,
    tokens: number,
    inputs: number,
    threads: number,
    flashAttention: number,
    ranks: boolean,
  ) => AddonPooling;
  /** Tokens of the model's vocabulary. */
  readonly raVocabularySize: (context: AddonContext) => number;
  /** Forgets all sequences, and writes zeros over what their cells held. Not while it decodes. */
  readonly raClearMemory: (context: AddonContext) => void;
  /**
   * Evaluates embeddings of an image in place of tokens. `first`: the image's first position; `index`: of the first embedding within the
   * image; `columns`: see ImageSegment; `whole`: all attend to each other. `values` are not to be changed before it settles. Throws a
   * RangeError where their number is not that of whole embeddings, or more than the context's batch. Rejects as `decodeBatch` does.
   */
  readonly raDecodeEmbeddings: (
    context: AddonContext,
    sequence: number,
    first: number,
    index: number,
    columns: number,
    whole: boolean,
    values: Float32Array,
  ) => Promise<void>;
  /**
   * Copies all that a sequence holds to the beginning of a file in memory, which becomes as long. Resolves with the bytes. Not during a
   * decode. Rejects where there is no memory.
   */
  readonly raSaveState: (context: AddonContext, sequence: number, file: number) => Promise<number>;
  /** The way back, of so many bytes from the beginning of the file, which no process may shorten meanwhile. Not during a decode. */
  readonly raRestoreState: (context: AddonContext, sequence: number, file: number, bytes: number) => Promise<number>;
  /**
   * Memory that the device of a context copies to and from by itself; it is found by sequence 0, which holds something. `plain`: any memory
   * will do. Not during a decode.
   */
  readonly RaStatePages: new (context: AddonContext, plain: boolean) => AddonPages;
  /** Bytes of all that a sequence holds, or only of what cannot be truncated. Not during a decode. */
  readonly raStateSize: (context: AddonContext, sequence: number, partial: boolean) => number;
  readonly raEmbeddingWidth: (context: AddonContext) => number;
  /** No step starts any more: at the end of the process, while the data of decodes still exists. */
  readonly raLeave: () => void;
  /**
   * Keeps `threads` compute threads for the decodes of `context`; `pickers` more threads share a step's picks at most, one for each
   * `logits` logits, in all contexts of the process.
   */
  readonly raUseThreads: (context: AddonContext, threads: number, pickers: number, logits: number) => void;
}

/** A projector without its model's weights (engine/native/vision.cpp). */
export interface AddonVision {
  readonly nonCausal: boolean;
  layout(width: number, height: number): (Int32Array | { tokens: number; positions: number; columns: number })[];
  encode(
    file: Uint8Array,
    width: number,
    height: number,
    toWidth: number,
    toHeight: number,
  ): Promise<readonly Float32Array[]>;
}

export interface VisionAddon {
  readonly RaVision: new (
    model: string,
    projector: string,
    threads: number,
    maxTokens: number,
    onGpu: boolean,
  ) => AddonVision;
  readonly raSandbox: (bytes: number) => { readonly filtered: boolean; readonly bounded: boolean };
}

const FOLDER = fileURLToPath(new URL('../../../engine/native/bin/', import.meta.url));

/**
 * @throws {LoadFailure} Another version of node-llama-cpp than the one whose addon engine/native reads is installed, or there are no
 * addons for this system.
 */
export function checkServed(
  version = packageVersion(),
  { platform, arch }: Pick<NodeJS.Process, 'platform' | 'arch'> = process,
): void {
  if (version !== KNOWN_VERSION)
    throw new LoadFailure(
      `node-llama-cpp ${version} is installed, and this version works with ${KNOWN_VERSION} alone: run npm ci`,
    );
  if (!existsSync(fileOf('ra-engine', platform, arch)))
    throw new LoadFailure(`there is no engine for ${platform} ${arch}: it is built for Linux on x64 and arm64`);
}

function fileOf(
  name: 'ra-engine' | 'ra-vision',
  platform: string = process.platform,
  arch: string = process.arch,
): string {
  return `${FOLDER}${name}.${platform}-${arch}.node`;
}

let engine: EngineAddon | undefined;

/** One for the process: its thread makes all decodes. Call it once node-llama-cpp's addon is loaded. @throws {LoadFailure} */
export function engineAddon(): EngineAddon {
  return (engine ??= opened('ra-engine') as EngineAddon);
}

/** Call it once node-llama-cpp's addon is loaded. @throws {LoadFailure} */
export function visionAddon(): VisionAddon {
  return opened('ra-vision') as VisionAddon;
}

function opened(name: 'ra-engine' | 'ra-vision'): unknown {
  const file = fileOf(name);
  try {
    const module: { exports: unknown } = { exports: {} };
    process.dlopen(module, file, constants.dlopen.RTLD_NOW);
    return module.exports;
  } catch (error) {
    throw new LoadFailure(`${file} cannot be loaded: ${error instanceof Error ? error.message : 'unknown failure'}`);
  }
}

/** The addon's context, as far as it is used here (node-llama-cpp's bindings/AddonTypes.d.ts, not exported). */
export interface AddonContext {
  initBatch(size: number): void;
  /** Returns the batch's logit indexes of the tokens that `logitIndexes` names. */
  addToBatch(sequence: number, firstPosition: number, tokens: Uint32Array, logitIndexes: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
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

/** The layer below node-llama-cpp's iterators, which is not public API. */
export interface Internals {
  readonly context: AddonContext;
  readonly Checkpoint: new () => AddonCheckpoint;
  readonly addon: EngineAddon;
}

interface Bindings {
  readonly AddonContextSequenceCheckpoint?: new () => AddonCheckpoint;
}

/** The addon's objects below a {@link LlamaContext}. */
interface Layer {
  readonly _ctx?: AddonContext;
  readonly _llama?: { readonly _bindings?: Bindings };
}

/** The layer below `context`. @throws {LoadFailure} It is not as in the version that it was read in. */
export function internals(context: LlamaContext): Internals {
  const { _ctx: inner, _llama: llama } = context as unknown as Layer;
  const Checkpoint = llama?._bindings?.AddonContextSequenceCheckpoint;
  if (!inner || !Checkpoint) throw new LoadFailure(`node-llama-cpp is not as version ${KNOWN_VERSION} is: run npm ci`);
  return { context: inner, Checkpoint, addon: engineAddon() };
}

/** The most threads that share a step's picks with the decoding thread, and the number of logits that is worth one more. */
export interface Spread {
  readonly threads: number;
  readonly logits: number;
}

/**
 * Half of the cores: compute threads rest while tokens are picked, and other processes need some. A million logits, twenty tokens
 * of a 50 k vocabulary, should take a core several times what waking a thread takes; neither was measured yet.
 */
const SPREAD: Spread = { threads: Math.floor(usableCores().cores / 2) - 1, logits: 1 << 20 };

/**
 * Keeps this many compute threads for the decodes of `context`, in place of starting them for each; once per context. `spread`
 * applies to all contexts of the process. No step starts once the process exits, since its threads would read freed memory.
 */
export function keepThreads(context: LlamaContext, threads: number, spread = SPREAD): void {
  const { context: inner, addon } = internals(context);
  addon.raUseThreads(inner, threads, Math.max(0, spread.threads), spread.logits);
  const { raLeave: leave } = addon;
  if (!process.listeners('exit').includes(leave)) process.once('exit', leave);
}
