/**
 * Byte-level byte-pair encoding: the alphabet of GPT-2, and merges learnt from a list of words. Sennrich et al., "Neural
 * machine translation of rare words with subword units" (2016), on bytes as in GPT-2.
 */

/** 256 characters, one per byte value: GPT-2's way to write any byte as a visible character. */
export const BYTE_CHARACTERS: readonly string[] = byteCharacters();

/** The merges: the pair at index i is joined before those after it. */
export interface Merges {
  /** `left right`, as GGUF stores them. */
  readonly merges: readonly string[];
  /** The pieces that the merges make, each once, in the same order. */
  readonly pieces: readonly string[];
}

/** `text` as UTF-8, every byte written as its character. */
export function toByteCharacters(text: string): string {
  return Array.from(Buffer.from(text, 'utf8'), (byte) => BYTE_CHARACTERS[byte] ?? '').join('');
}

/**
 * Joins the most frequent neighbouring pair repeatedly, until each word is one piece; of equally frequent ones the
 * first in sort order. So each word of the list is one token of the vocabulary made from it, unless `most` merges are
 * made before that. `weight`: how often a word counts.
 */
export function learnMerges(
  words: readonly { readonly text: string; readonly weight: number }[],
  most = Number.POSITIVE_INFINITY,
): Merges {
  let open = words.map(({ text, weight }) => ({ parts: Array.from(toByteCharacters(text)), weight }));
  const merges: string[] = [];
  const pieces = new Set<string>();
  // Terminates: every round makes at least one word a part shorter.
  for (;;) {
    const pair = commonestPair(open);
    if (pair === undefined || merges.length >= most) return { merges, pieces: [...pieces] };
    const [left = '', right = ''] = pair.split(' ');
    merges.push(pair);
    pieces.add(left + right);
    for (const word of open) word.parts = joined(word.parts, left, right);
    // A word of one piece has no pair left to count.
    open = open.filter(({ parts }) => parts.length > 1);
  }
}

function commonestPair(
  words: readonly { readonly parts: readonly string[]; readonly weight: number }[],
): string | undefined {
  const counts = new Map<string, number>();
  for (const { parts, weight } of words) {
    for (let i = 1; i < parts.length; i++) {
      const pair = `${parts[i - 1] ?? ''} ${parts[i] ?? ''}`;
      counts.set(pair, (counts.get(pair) ?? 0) + weight);
    }
  }
  let best: string | undefined;
  let most = 0;
  for (const [pair, count] of counts) {
    if (count > most || (count === most && best !== undefined && pair < best)) {
      best = pair;
      most = count;
    }
  }
  return best;
}

function joined(parts: readonly string[], left: string, right: string): string[] {
  const result: string[] = [];
  for (let i = 0; i < parts.length; i++) {
    if (parts[i] === left && parts[i + 1] === right) {
      result.push(left + right);
      i++;
    } else {
      result.push(parts[i] ?? '');
    }
  }
  return result;
}

/** Printable Latin-1 bytes stand for themselves; the others take U+0100 and on, in order. */
function byteCharacters(): string[] {
  const visible = (byte: number): boolean => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(visible(byte) ? byte : next++));
}
