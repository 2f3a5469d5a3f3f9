import { PREFIX_CHUNK, prefixHashes } from '../../engine/protocol/prefix-hash.js';
import { promptIds, type Prompt } from '../../engine/protocol/prompt.js';
import { MOST_SAVED, type HeldPrefix } from '../../engine/protocol/messages.js';
import type { CacheScope } from '../../engine/protocol/cache-key.js';

/** Tokens of the chunks in which state is reused. */
export const REUSED_TOKENS = PREFIX_CHUNK;

/** A prompt's chain hashes, by which an index is asked for what requests of its scope may reuse. */
export function prefixOf(prompt: Prompt, scope: CacheScope): Uint32Array {
  return prefixHashes(promptIds(prompt), scope);
}

/**
 * How much of a prompt the engine's free sequences, and its prefix cache, contain. A hint: the state may differ once the request has its seat.
 */
export interface PrefixIndex {
  /**
   * Leading tokens, in whole chunks of {@link PREFIX_CHUNK}, that the fittest free sequence or saved prefix has of a prompt with these chain
   * hashes (engine/protocol/prefix-hash.ts).
   */
  longestOf(hashes: Uint32Array): number;
}

/**
 * The prefixes of one life of an engine process, so of one file of weights and one KV type, by its reports: of its free sequences
 * and of its cache. Bounded by their number and the context of a seat.
 */
export class HeldPrefixes implements PrefixIndex {
  readonly #seats: number;
  readonly #longest: number;
  readonly #held = new Map<number, Uint32Array>();
  /** Number of sequences by prefix hash, so that one lookup covers all sequences. */
  readonly #holders = new Map<number, number>();

  constructor(seats: number, contextPerSeat: number) {
    this.#seats = seats;
    this.#longest = Math.floor(contextPerSeat / PREFIX_CHUNK);
  }

  /** Applies changes. Returns undefined, or the protocol violation. */
  apply(changes: readonly HeldPrefix[]): string | undefined {
    for (const { sequence, hashes } of changes) {
      if (sequence >= this.#seats + MOST_SAVED || hashes.length > this.#longest) return 'held-too-much';
      for (const hash of this.#held.get(sequence) ?? []) this.#count(hash, -1);
      for (const hash of hashes) this.#count(hash, 1);
      if (hashes.length > 0) this.#held.set(sequence, hashes);
      else this.#held.delete(sequence);
    }
    return undefined;
  }

  longestOf(hashes: Uint32Array): number {
    // A chain: a sequence that holds a prefix holds all shorter ones.
    let chunks = 0;
    while (chunks < hashes.length && this.#holders.has(hashes[chunks] ?? 0)) chunks += 1;
    return chunks * PREFIX_CHUNK;
  }

  #count(hash: number, by: 1 | -1): void {
    const holders = (this.#holders.get(hash) ?? 0) + by;
    if (holders > 0) this.#holders.set(hash, holders);
    else this.#holders.delete(hash);
  }
}

/** Of an engine that is not there. */
export const NO_PREFIXES: PrefixIndex = { longestOf: () => 0 };
