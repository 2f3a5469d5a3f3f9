/** The embedded model’s vocabulary: byte pairs learnt from its own corpus. */
import { learnMerges } from '../models/byte-pairs.js';
import { CONTROL, MARKUP, bytePairVocabulary } from '../models/vocabulary-own.js';
import type { Vocabulary } from '../models/vocabulary.js';
import { SEEDLING_TEMPLATE } from './template.js';

/** Words that occur less often are left in pieces. */
const RAREST = 4;
/** Merges, and so about the number of tokens: a word of the corpus is one, a made-up name two to four. */
const MERGES = 2600;

/** `qwen2`'s pieces, which merges never cross. */
const PIECE =
  /(?:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+/giu;
const SPECIAL = new RegExp([...CONTROL, ...MARKUP].map((text) => text.replaceAll('|', '\\|')).join('|'), 'g');

/** Words that must be whole whatever the corpus contains: the labels. */
const LABELS = ['yes', 'no'];

export interface Merged {
  readonly merges: readonly string[];
  readonly pieces: readonly string[];
}

/** Learns the merges from rendered prompts and replies. Takes about a minute. */
export function learnFrom(texts: Iterable<string>): Merged {
  const counts = new Map<string, number>(LABELS.map((label) => [label, RAREST * 100]));
  for (const text of texts) {
    for (const part of text.split(SPECIAL)) {
      for (const [piece] of part.matchAll(PIECE)) counts.set(piece, (counts.get(piece) ?? 0) + 1);
    }
  }
  const words = [...counts].filter(([, weight]) => weight >= RAREST).map(([text, weight]) => ({ text, weight }));
  return learnMerges(words, MERGES);
}

export function vocabularyOf({ merges, pieces }: Merged): Vocabulary {
  const { size, metadata } = bytePairVocabulary(merges, pieces);
  return {
    size,
    metadata: new Map([...metadata, ['tokenizer.chat_template', { type: 'string', value: SEEDLING_TEMPLATE }]]),
  };
}
