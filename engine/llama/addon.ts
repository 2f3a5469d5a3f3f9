/**
 * The layer below node-llama-cpp's iterators: the addon's own context and samplers. It is not public API, so it is used
 * only with the exact version that it was written for, if the objects look as expected; otherwise the iterators are
 * used (runtime.ts).
 */
import { availableParallelism } from 'node:os';
import type { Llama, LlamaContext } from 'node-llama-cpp';
import { KNOWN_VERSION, packageVersion } from './prebuilt-file.js';
import type { AddonCheckpoint, AddonContext, AddonSampler } from './addon-context.js';
import { Grammars } from './grammars.js';
import { KNOWN_NATIVE, picking, type Picking, type PickingBindings } from './picking.js';

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

interface Bindings extends PickingBindings {
  readonly AddonSampler?: new (model: unknown) => AddonSampler;
  readonly AddonContextSequenceCheckpoint?: new () => AddonCheckpoint;
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
