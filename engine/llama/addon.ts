/**
 * The layer below node-llama-cpp's iterators: the addon's own context. It is not public API, so the one version that it
 * was written for is served (native.ts).
 */
import type { LlamaContext } from 'node-llama-cpp';
import { type AddonCheckpoint, type AddonContext, engineAddon, type EngineAddon } from './native.js';
import { LoadFailure } from './load-failure.js';
import { KNOWN_VERSION } from './addon-file.js';
import { usableCores } from '../protocol/usable-cores.js';

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

/**
 * The most threads that share a step's picks with the decoding thread, and the number of logits that is worth one more.
 */
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
