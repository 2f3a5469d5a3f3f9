/**
 * Whole states of sequences in pages of host memory that a GPU copies to and from by itself (engine/native/pages.cpp). Other processes
 * cannot open them. To pin memory takes as long as to fill it, so more is allocated beside the steps, before it is needed, and is kept.
 */
import type { AddonContext, AddonPages, EngineAddon } from './addon.js';
import { availableMemory } from './memory/available.js';
import { usableOf } from './memory/verdict.js';
import type { WholeState } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';

/** Of engine/native/pages.cpp; bytes. */
export const PAGE = 2 << 20;

/** What is allocated at once: pinning it takes about as long as a step with a prompt; bytes. */
export const PIECE = 128 * PAGE;

/** So many states like the largest one are to find pages, so that a save does not wait for them. */
const READY = 2;

/** Tokens of a sequence, and the last of llama.cpp's positions. */
export interface SequenceExtent {
  readonly length: number;
  readonly last: number;
}

export class PagedStates {
  readonly #pages: AddonPages;
  readonly #limit: number;
  readonly #sizeOf: EngineAddon['raStateSize'];
  readonly #available: () => number | undefined;
  #largest = 0;
  #growing: Promise<void> | undefined;
  /** The system has refused memory. */
  #isFull = false;

  /** `limit`: bytes of all pages, rounded up to whole ones. `available`: those that may be taken now; undefined if it is unknown. */
  constructor(pages: AddonPages, limit: number, sizeOf: EngineAddon['raStateSize'], available = systemMemory) {
    this.#pages = pages;
    this.#sizeOf = sizeOf;
    this.#limit = Math.ceil(limit / PAGE) * PAGE;
    this.#available = available;
    this.#grow();
  }

  /** Bytes that states may still take, pages that are still to be allocated among them. */
  get room(): number {
    return this.#pages.free + this.#growable;
  }

  /** The name of the memory in ggml. */
  get memory(): string {
    return this.#pages.name;
  }

  /** Settles when no memory is being allocated. Never rejects. */
  async settled(): Promise<void> {
    while (this.#growing) await this.#growing;
  }

  /** Copies the state of a sequence. Not during a decode. Rejects when it cannot, also where there are not yet enough pages. */
  async save(context: AddonContext, sequence: number, { length, last }: SequenceExtent): Promise<PagedState> {
    const pages = this.#pages;
    const size = Math.ceil(this.#sizeOf(context, sequence, false) / PAGE) * PAGE;
    this.#largest = Math.max(this.#largest, size);
    this.#grow();
    const [state, bytes] = size > pages.free ? [0, size] : await pages.save(context, sequence);
    this.#grow();
    if (state === 0) throw new EngineFault('there are no pages for the state');
    return {
      length,
      bytes,
      restore: async (into, target) => {
        await pages.restore(into, target, state);
        if (into.getSequenceKvCacheMaxPosition(target) !== last) throw new EngineFault('the state was not restored');
      },
      dispose: () => pages.drop(state),
    };
  }

  /** Frees all memory, after the last copy, and after what is being allocated. No state can be saved or restored any more. Idempotent. */
  async dispose(): Promise<void> {
    this.#isFull = true;
    await this.settled();
    this.#pages.dispose();
  }

  get #growable(): number {
    if (this.#isFull) return 0;
    return Math.max(0, Math.min(this.#limit - this.#pages.size, this.#available() ?? Infinity));
  }

  #grow(): void {
    const wanted = Math.max(PIECE, READY * this.#largest);
    if (this.#growing || this.#pages.free >= wanted) return;
    const bytes = Math.floor(Math.min(PIECE, this.#growable) / PAGE) * PAGE;
    if (bytes === 0) return;
    const grown = this.#pages.grow(bytes).catch(() => false);
    this.#growing = grown.then((isGrown) => {
      this.#growing = undefined;
      this.#isFull ||= !isGrown;
      this.#grow();
    });
  }
}

export interface PagedState extends WholeState {
  /** Restores it into a sequence, in place of what is there. Rejects when it cannot. */
  restore(context: AddonContext, sequence: number): Promise<void>;
}

function systemMemory(): number | undefined {
  const free = availableMemory();
  return free === undefined ? undefined : usableOf(free);
}
