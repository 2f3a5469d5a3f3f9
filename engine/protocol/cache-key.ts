/** States in KV memory as all processes name them: what a state may be reused for, hashes of prefixes, and files of saved states. */

/**
 * What a state in the KV memory may be reused for. Two prompts share a state only where their keys are equal: the same weights
 * and KV type made it, and it may be shared between the two requests' accounts.
 */
export interface CacheKey extends CacheOrigin {
  readonly scope: CacheScope;
}

/** What made a state; the same for all states of one engine process. */
export interface CacheOrigin {
  /** SHA-256 of the weights file, hex. */
  readonly weights: string;
  /** Type of the KV memory's keys and values, as llama.cpp names it. */
  readonly kv: string;
}

/** Requests of one scope reuse each other's states. It is a name that is compared, never shown or logged. */
export type CacheScope = string;

/** All accounts of a model in one scope. */
export const ALL_ACCOUNTS: CacheScope = 'all';

export function sameCache(a: CacheKey, b: CacheKey): boolean {
  return a.scope === b.scope && a.kv === b.kv && a.weights === b.weights;
}

/**
 * Where the size of prefix caches is not set, they take at most this share of the memory that is free when the model is loaded, for
 * all engines of the sidecar together. The engine and `doctor` use the same numbers.
 */
export const CACHE_SHARE = 1 / 4;

/** One engine's cache, at most; bytes. */
export const MOST_CACHE_BYTES = 8 * 2 ** 30;

/** Scopes that are remembered, at most; requests of older ones have ended. */
const MOST_CLOSED = 4096;

/**
 * Scopes of accounts that were closed: nothing is kept of what their requests leave, also of those that still wait. The scope that
 * all accounts share is never closed.
 */
export class ClosedScopes {
  readonly #closed = new Set<CacheScope>();

  close(scope: CacheScope): void {
    if (scope === ALL_ACCOUNTS) return;
    this.#closed.delete(scope);
    this.#closed.add(scope);
    const [oldest] = this.#closed;
    if (this.#closed.size > MOST_CLOSED && oldest !== undefined) this.#closed.delete(oldest);
  }

  has(scope: CacheScope): boolean {
    return this.#closed.has(scope);
  }

  /** The one that was closed first is the first. */
  [Symbol.iterator](): Iterator<CacheScope> {
    return this.#closed.values();
  }
}

/** Tokens of one chunk of {@link prefixHashes}: shorter common prefixes are not worth reporting. */
export const PREFIX_CHUNK = 64;

const SEED = 0x9747b28c;

/**
 * Names for the prefixes of `tokens`: one number for each whole chunk, shortest prefix first, which stands for that chunk and all
 * before it. Tokens after the last whole chunk have none. The engine reports by these numbers what its sequences hold, and the sidecar
 * looks up by them what a prompt would find there. They are hints: two prefixes may share a number (32 bits), so no result may depend
 * on them. The same tokens in two scopes have different numbers. Weights and KV type are left out: one engine's numbers are compared
 * among themselves.
 */
export function prefixHashes(tokens: Uint32Array, scope: CacheScope): Uint32Array {
  const hashes = new Uint32Array(Math.floor(tokens.length / PREFIX_CHUNK));
  let hash = SEED;
  for (let i = 0; i < scope.length; i++) hash = mix(hash, scope.charCodeAt(i));
  for (let chunk = 0; chunk < hashes.length; chunk++) {
    const from = chunk * PREFIX_CHUNK;
    for (let i = from; i < from + PREFIX_CHUNK; i++) hash = mix(hash, tokens[i] ?? 0);
    hashes[chunk] = finish(hash);
  }
  return hashes;
}

/**
 * MurmurHash3 (A. Appleby), its 32-bit round: every bit of a token affects the result, unlike FNV with small numbers.
 */
function mix(hash: number, token: number): number {
  let k = Math.imul(token, 0xcc9e2d51);
  k = (k << 15) | (k >>> 17);
  const h = hash ^ Math.imul(k, 0x1b873593);
  return (Math.imul((h << 13) | (h >>> 19), 5) + 0xe6546b64) | 0;
}

function finish(hash: number): number {
  let h = hash ^ (hash >>> 16);
  h = Math.imul(h, 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/**
 * A sequence's state in a file in memory that has no name. It belongs to the engine process that saved it, and other engine
 * processes of this host open it by that process's descriptor. In the file are llama.cpp's state, a gap, and at its end the ids
 * of its tokens and the ends of the chunks in which these were evaluated, 4 bytes each.
 */
export interface SharedState {
  /** The descriptor. */
  readonly file: number;
  /** Distinguishes it from a later file with the same descriptor. */
  readonly inode: number;
  /** Of the whole file. */
  readonly bytes: number;
  readonly tokens: number;
  readonly ends: number;
  /** The file's `MemoryFile.changedAt` once it was complete: with another one it is another file, or was written to since. */
  readonly changedAt: number;
}

/** Files in this folder stay in memory (tmpfs, on Linux). */
export const MEMORY_FILES = '/dev/shm';

/** The path of another process's file. */
export interface StateElsewhere extends SharedState {
  readonly pid: number;
}
