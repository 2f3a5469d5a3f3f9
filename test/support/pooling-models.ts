/**
 * Random models that make vectors or scores of whole inputs. Encoders are BERT's, with a vocabulary of words and letters; the decoders are
 * Qwen 3's. All weights are float32.
 */
import type { MetadataValue } from '../../bench/models/gguf-format.js';
import type { TensorSource } from '../../bench/models/gguf-writer.js';
import { WORDS } from '../../bench/models/vocabulary-words.js';
import type { Vocabulary } from '../../bench/models/vocabulary.js';
import {
  constant,
  EPSILON,
  float32,
  matrix,
  uint32,
  WIDTH,
  writeArchitecture,
  type Architecture,
} from './architectures.js';
import { qwen3 } from './families/attention.js';
import { testVocabulary } from './models.js';

/**
 * mean, cls: encoders by their pooling; rank: an encoder with a head for one score; last: a decoder; judge: a decoder with a template for
 * pairs and a head whose first number is the probability of a yes.
 */
export const POOLING_MODELS = ['mean', 'cls', 'rank', 'last', 'judge'] as const;

/** What each is for. */
export function poolingKind(name: PoolingModelName): 'embedding' | 'rerank' {
  return name === 'rank' || name === 'judge' ? 'rerank' : 'embedding';
}

export type PoolingModelName = (typeof POOLING_MODELS)[number];

/** Tokens of an input, at most. */
export const POOLING_CONTEXT = 512;

/** Of an encoder. */
interface Shape {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly feedForward: number;
}

const TINY: Shape = { width: 64, layers: 2, heads: 4, feedForward: 128 };

/** The shape of all-MiniLM-L6 and bge-micro's larger relatives: 10 million weights without the embeddings. */
export const SMALL: Shape = { width: 384, layers: 6, heads: 12, feedForward: 1536 };

/** llama.cpp's numbers for ways of pooling. */
const POOLING = { mean: 1, cls: 2, last: 3, rank: 4 } as const;

/** The file's path. Created on the first call; any number of processes may call at once. `shape`: of encoders. */
export async function poolingModel(name: PoolingModelName, shape = TINY): Promise<string> {
  if (name === 'last') return await writeArchitecture('embed-last', decoder, endingVocabulary());
  if (name === 'judge') return await writeArchitecture('embed-judge', judge, judgingVocabulary());
  const title = `embed-${name}-${shape.width}-${shape.layers}`;
  return await writeArchitecture(title, (vocabulary) => encoder(vocabulary, name, shape), wordVocabulary());
}

/** Tensors as llama.cpp’s models/bert.cpp requires them. */
function encoder({ size }: Vocabulary, pooling: keyof typeof POOLING, shape: Shape): Architecture {
  const { width, layers, heads, feedForward } = shape;
  const normed = (name: string): TensorSource[] => [
    constant(`${name}.weight`, [width], 1),
    constant(`${name}.bias`, [width], 0),
  ];
  const layer = (n: number): TensorSource[] => [
    ...['attn_q', 'attn_k', 'attn_v', 'attn_output'].flatMap((part) => [
      matrix(`blk.${n}.${part}.weight`, width, width, 2),
      constant(`blk.${n}.${part}.bias`, [width], 0),
    ]),
    ...normed(`blk.${n}.attn_output_norm`),
    matrix(`blk.${n}.ffn_up.weight`, width, feedForward),
    constant(`blk.${n}.ffn_up.bias`, [feedForward], 0),
    matrix(`blk.${n}.ffn_down.weight`, feedForward, width),
    constant(`blk.${n}.ffn_down.bias`, [width], 0),
    ...normed(`blk.${n}.layer_output_norm`),
  ];
  const head: TensorSource[] = [
    matrix('cls.weight', width, width),
    constant('cls.bias', [width], 0),
    matrix('cls.output.weight', width, 1),
    constant('cls.output.bias', [1], 0),
  ];
  return {
    name: 'bert',
    keys: [
      ['context_length', uint32(POOLING_CONTEXT)],
      ['embedding_length', uint32(width)],
      ['block_count', uint32(layers)],
      ['feed_forward_length', uint32(feedForward)],
      ['attention.head_count', uint32(heads)],
      ['attention.layer_norm_epsilon', float32(EPSILON)],
      ['attention.causal', { type: 'bool', value: false }],
      ['pooling_type', uint32(POOLING[pooling])],
    ],
    tensors: [
      matrix('token_embd.weight', width, size, 8),
      matrix('position_embd.weight', width, POOLING_CONTEXT),
      matrix('token_types.weight', width, 2),
      ...normed('token_embd_norm'),
      ...Array.from({ length: layers }, (_, n) => layer(n)).flat(),
      ...(pooling === 'rank' ? head : []),
    ],
  };
}

function decoder(vocabulary: Vocabulary): Architecture {
  const { keys, ...rest } = qwen3(vocabulary, false);
  return { ...rest, keys: [...keys, ['pooling_type', uint32(POOLING.last)]] };
}

function judge(vocabulary: Vocabulary): Architecture {
  const { keys, tensors, ...rest } = qwen3(vocabulary, false);
  return {
    ...rest,
    keys: [
      ...keys,
      ['pooling_type', uint32(POOLING.rank)],
      ['classifier.output_labels', { type: 'strings', value: ['yes', 'no'] }],
    ],
    tensors: [...tensors, matrix('cls.output.weight', WIDTH, 2, 8)],
  };
}

/** The tests' vocabulary, with a template for pairs in the form of Qwen 3's rerankers. */
function judgingVocabulary(): Vocabulary {
  const { size, metadata } = testVocabulary();
  const template = '<|im_start|>user\nQuery: {query}\nDocument: {document}<|im_end|>\n<|im_start|>assistant\n';
  return {
    size,
    metadata: new Map([...metadata, ['tokenizer.chat_template.rerank', { type: 'string', value: template }]]),
  };
}

/** The tests' vocabulary, with an end after each input, as embedding models of this family have. */
function endingVocabulary(): Vocabulary {
  const { size, metadata } = testVocabulary();
  return { size, metadata: new Map([...metadata, ['tokenizer.ggml.add_eos_token', { type: 'bool', value: true }]]) };
}

const SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'] as const;

/** llama.cpp marks what begins a word. */
const BEGIN = '\u2581';

/** WordPiece: words, and letters at the beginning of words and within them. */
function wordVocabulary(): Vocabulary {
  const letters = Array.from('abcdefghijklmnopqrstuvwxyz0123456789.,;:!?-\'"()');
  const texts = [
    ...letters.flatMap((letter) => [BEGIN + letter, letter]),
    ...WORDS.map((word) => BEGIN + word.toLowerCase()),
  ];
  const tokens = [...SPECIAL, ...new Set(texts)];
  const id = (token: (typeof SPECIAL)[number]): MetadataValue => ({ type: 'uint32', value: SPECIAL.indexOf(token) });
  return {
    size: tokens.length,
    metadata: new Map<string, MetadataValue>([
      ['tokenizer.ggml.model', { type: 'string', value: 'bert' }],
      ['tokenizer.ggml.pre', { type: 'string', value: 'default' }],
      ['tokenizer.ggml.tokens', { type: 'strings', value: tokens }],
      ['tokenizer.ggml.token_type', { type: 'int32s', value: tokens.map((_, at) => (at < SPECIAL.length ? 3 : 1)) }],
      ['tokenizer.ggml.token_type_count', uint32(2)],
      ['tokenizer.ggml.bos_token_id', id('[CLS]')],
      ['tokenizer.ggml.cls_token_id', id('[CLS]')],
      ['tokenizer.ggml.unknown_token_id', id('[UNK]')],
      ['tokenizer.ggml.seperator_token_id', id('[SEP]')],
      ['tokenizer.ggml.padding_token_id', id('[PAD]')],
      ['tokenizer.ggml.mask_token_id', id('[MASK]')],
    ]),
  };
}
