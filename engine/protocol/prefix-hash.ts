/**
 * Hashes of prefixes: one number for each whole chunk of tokens, which represents that chunk and all before it. The
 * engine reports the prefixes of its sequences by them, and the sidecar looks up a prompt's. They are hints: two
 * prefixes may have the same number (32 bits), so results must not depend on them.
 */

/** Tokens of a chunk: shorter common prefixes are not worth reporting. */
export const PREFIX_CHUNK = 64;

/** One number per whole chunk of `tokens`, shortest prefix first; an incomplete last chunk has none. */
export function prefixHashes(tokens: Uint32Array): Uint32Array {
  const hashes = new Uint32Array(Math.floor(tokens.length / PREFIX_CHUNK));
  let hash = SEED;
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
