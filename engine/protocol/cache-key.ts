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
