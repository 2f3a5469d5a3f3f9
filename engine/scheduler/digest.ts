/**
 * FNV-1a over whole tokens. The tokens themselves were compared before; this detects errors in the records of what
 * sequences have.
 */
export function digestOf(tokens: Uint32Array): number {
  let hash = 0x811c9dc5;
  for (const token of tokens) hash = Math.imul(hash ^ token, 0x01000193);
  return hash >>> 0;
}
