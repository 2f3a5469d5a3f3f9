/**
 * A byte-level vocabulary for tests: 256 bytes, tokens for some common words and marks, ChatML’s special tokens and
 * those of thoughts and tools as in Qwen’s models. The pre-tokenizer is `qwen2`, which llama.cpp implements without a
 * regular expression (whose recursion a long input could overflow) and which splits digits one by one.
 */
import { BYTE_CHARACTERS, learnMerges, toByteCharacters } from './byte-pairs.js';
import { CHAT_TEMPLATE } from './chat-template.js';
import type { MetadataValue } from './gguf-format.js';
import { CAPITALISED, LONG_CHARACTERS, MARKS, SYNTAX, WORDS } from './vocabulary-words.js';
import type { Vocabulary } from './vocabulary.js';

/** llama.cpp's token types: a control token has no text of its own, a user-defined one is text that is never split. */
const TOKEN_TYPE = { normal: 1, control: 3, userDefined: 4 } as const;

export const END_OF_TEXT = '<|endoftext|>';
export const END_OF_TURN = '<|im_end|>';
export const CONTROL = [END_OF_TEXT, '<|im_start|>', END_OF_TURN];
export const MARKUP = ['<think>', '</think>', '<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>'];

/** Mean number of tokens of a reply, its end included. */
const REPLY_TOKENS = 40;
/**
 * Logarithm of the frequency of what a reply should not contain: bytes that are no character alone, control tokens,
 * markup.
 */
const NEVER = -25;

/** Texts in order of falling frequency, and the share of a reply that they have together. */
interface Share {
  readonly texts: readonly string[];
  readonly share: number;
}

/** Adds up to 1, with the end of the turn. The figures are estimates of what reads well. */
const SHARES: readonly Share[] = [
  { texts: WORDS.map((word) => ` ${word}`), share: 0.74 },
  { texts: MARKS, share: 0.13 },
  { texts: CAPITALISED.map((word) => ` ${word}`), share: 0.05 },
  { texts: SYNTAX, share: 0.01 },
  { texts: [...LONG_CHARACTERS], share: 0.015 },
  { texts: WORDS, share: 0.01 },
  { texts: CAPITALISED, share: 0.01 },
  { texts: Array.from({ length: 0x7f - 0x20 }, (_, i) => String.fromCodePoint(0x20 + i)), share: 0.01 },
];

/** Creates the vocabulary; the same each time. Takes some tens of milliseconds. */
export function ownVocabulary(): Vocabulary {
  const frequencies = wantedFrequencies();
  const { merges, pieces } = learnMerges([...frequencies].map(([text, weight]) => ({ text, weight })));
  const { size, metadata, tokens } = bytePairVocabulary(merges, pieces);
  return { size, metadata, logFrequencies: logFrequencies(tokens, frequencies) };
}

/** A vocabulary of the same form for other merges: bytes, ChatML’s tokens, those of thoughts and tools, pieces. */
export function bytePairVocabulary(
  merges: readonly string[],
  pieces: readonly string[],
): Vocabulary & { readonly tokens: readonly string[] } {
  // The special ones before the words, so that their ids, and with them their weights, stay if the words change.
  const tokens = [...BYTE_CHARACTERS, ...CONTROL, ...MARKUP, ...pieces];
  const id = (token: string): MetadataValue => ({ type: 'uint32', value: tokens.indexOf(token) });
  return {
    tokens,
    size: tokens.length,
    metadata: new Map<string, MetadataValue>([
      ['tokenizer.ggml.model', { type: 'string', value: 'gpt2' }],
      ['tokenizer.ggml.pre', { type: 'string', value: 'qwen2' }],
      ['tokenizer.ggml.tokens', { type: 'strings', value: tokens }],
      ['tokenizer.ggml.token_type', { type: 'int32s', value: tokens.map(tokenType) }],
      ['tokenizer.ggml.merges', { type: 'strings', value: merges }],
      // Without an id of its own llama.cpp would take token 11 for the beginning of a text.
      ['tokenizer.ggml.bos_token_id', id(END_OF_TEXT)],
      ['tokenizer.ggml.eos_token_id', id(END_OF_TURN)],
      ['tokenizer.ggml.eot_token_id', id(END_OF_TURN)],
      ['tokenizer.ggml.padding_token_id', id(END_OF_TEXT)],
      ['tokenizer.ggml.add_bos_token', { type: 'bool', value: false }],
      ['tokenizer.ggml.add_eos_token', { type: 'bool', value: false }],
      ['tokenizer.chat_template', { type: 'string', value: CHAT_TEMPLATE }],
    ]),
  };
}

function tokenType(token: string): number {
  if (CONTROL.includes(token)) return TOKEN_TYPE.control;
  return MARKUP.includes(token) ? TOKEN_TYPE.userDefined : TOKEN_TYPE.normal;
}

/** Text to its share of a reply; within a list by Zipf's law. */
function wantedFrequencies(): Map<string, number> {
  const frequencies = new Map<string, number>();
  for (const { texts, share } of SHARES) {
    const distinct = [...new Set(texts)].filter((text) => !frequencies.has(text));
    const total = distinct.reduce((sum, _, rank) => sum + zipf(rank), 0);
    distinct.forEach((text, rank) => frequencies.set(text, (share * zipf(rank)) / total));
  }
  return frequencies;
}

/** Mandelbrot’s form, which keeps the first words from dominating. */
function zipf(rank: number): number {
  return 1 / (rank + 10);
}

function logFrequencies(tokens: readonly string[], frequencies: ReadonlyMap<string, number>): Float32Array {
  const byToken = new Map([...frequencies].map(([text, frequency]) => [toByteCharacters(text), frequency]));
  byToken.set(END_OF_TURN, 1 / REPLY_TOKENS);
  return Float32Array.from(tokens, (token) => {
    const frequency = byToken.get(token);
    return frequency === undefined ? NEVER : Math.log(frequency);
  });
}
