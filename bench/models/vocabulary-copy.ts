import { CHAT_TEMPLATE } from './chat-template.js';
import type { MetadataValue } from './gguf-format.js';
import type { Vocabulary } from './vocabulary.js';
import { readGgufFileInfo } from '../../engine/llama/package.js';

/** The reader returns numbers without their GGUF type; llama.cpp requires these. */
const ARRAY_TYPES: Readonly<Record<string, 'int32s' | 'float32s' | 'uint8s'>> = {
  'tokenizer.ggml.token_type': 'int32s',
  'tokenizer.ggml.scores': 'float32s',
  'tokenizer.ggml.suppress_tokens': 'int32s',
  'tokenizer.ggml.precompiled_charsmap': 'uint8s',
};
const UINT32_KEY = /^tokenizer\.ggml\.(\w+_token_id|token_type_count)$/;

/**
 * The vocabulary of an existing GGUF file: all its `tokenizer.` keys unchanged, and the tests’ ChatML template if the
 * file has none (its marks are then ordinary text to the tokenizer, unless the vocabulary has them). Throws if the file
 * cannot be read as GGUF, has no tokens, or has a tokenizer key of an unknown type.
 */
export async function copyVocabulary(file: string): Promise<Vocabulary> {
  const info = await readGgufFileInfo(file, { readTensorInfo: false, sourceType: 'filesystem', logWarnings: false });
  const metadata = new Map<string, MetadataValue>();
  for (const [key, value] of flatten('tokenizer', info.metadata.tokenizer)) metadata.set(key, typed(key, value));
  const tokens = metadata.get('tokenizer.ggml.tokens');
  if (tokens?.type !== 'strings' || tokens.value.length === 0) throw new Error(`${file}: holds no vocabulary`);
  if (!metadata.has('tokenizer.chat_template')) {
    metadata.set('tokenizer.chat_template', { type: 'string', value: CHAT_TEMPLATE });
  }
  return { size: tokens.value.length, metadata };
}

/** The reader makes nested objects of dotted keys; this reverses that. */
function* flatten(key: string, value: unknown): Generator<[string, unknown]> {
  if (value === undefined) return;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) yield [key, value];
  else for (const [name, inner] of Object.entries(value)) yield* flatten(`${key}.${name}`, inner);
}

function typed(key: string, value: unknown): MetadataValue {
  if (typeof value === 'string') return { type: 'string', value };
  if (typeof value === 'boolean') return { type: 'bool', value };
  if (typeof value === 'number' && UINT32_KEY.test(key)) return { type: 'uint32', value };
  if (isArrayOf(value, 'string')) return { type: 'strings', value };
  const type = ARRAY_TYPES[key];
  if (type !== undefined && isArrayOf(value, 'number')) return { type, value };
  throw new Error(`${key}: not a tokenizer key that can be copied`);
}

function isArrayOf(value: unknown, type: 'string'): value is string[];
function isArrayOf(value: unknown, type: 'number'): value is number[];
function isArrayOf(value: unknown, type: string): boolean {
  return Array.isArray(value) && value.every((item) => typeof item === type);
}
