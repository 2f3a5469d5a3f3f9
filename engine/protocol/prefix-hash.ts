import type { CacheScope } from './cache-key.js';

/**
 * Names for prefixes: one number for each whole chunk of tokens, which stands for that chunk and all before it. The engine
 * reports by them what its sequences hold, the sidecar looks up by them what a prompt would find there. They are hints: two
 * prefixes may share a number (32 bits), so no result may depend on them.
 */

/** Tokens of a chunk: shorter common prefixes are not worth reporting. */
export const PREFIX_CHUNK = 64;

/**
 * One number a whole chunk of `tokens`, shortest prefix first; what is left at the end has none. The same tokens in two scopes
 * have different numbers. Weights and KV type are left out: one engine's numbers are compared among themselves.
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

const SEED = 0x9747b28c;

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
