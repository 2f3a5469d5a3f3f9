/**
 * Tiny random models of architectures other than llama’s, whose past state cannot be truncated like a list of tokens. All
 * weights are float32, so that sharing a decode changes only the seventh digit.
 */
import { createHash } from 'node:crypto';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import type { Metadata, MetadataValue } from '../../bench/models/gguf-format.js';
import { writeGguf, type TensorSource } from '../../bench/models/gguf-writer.js';
import { encodeF32 } from '../../bench/models/number-formats.js';
import { RandomWords } from '../../bench/models/random-weights.js';
import type { Vocabulary } from '../../bench/models/vocabulary.js';
import { CACHE, testVocabulary } from './models.js';

/**
 * recurrent: only a state (mamba). hybrid: layers with a state and layers with attention (lfm2). sliding-window: layers
 * that see the last 32 tokens and layers that see all (cohere2). unseen-window: the same, but its context is no longer
 * than the window, which node-llama-cpp does not recognize as a window.
 */
export const ARCHITECTURES = ['recurrent', 'hybrid', 'sliding-window', 'unseen-window'] as const;

export type ArchitectureName = (typeof ARCHITECTURES)[number];

/** Tokens that the windows of the two last see. */
export const WINDOW = 32;

/** Raise it if the files’ bytes change and their heads do not. */
const VERSION = 1;
export const WIDTH = 64;
const LAYERS = 2;
export const HEADS = 4;
export const KV_HEADS = 2;
export const HEAD = WIDTH / HEADS;
const FEED_FORWARD = 128;
export const CONTEXT = 8192;
export const EPSILON = 1e-5;

/** A model’s own keys, without the architecture’s prefix, and its tensors. */
export interface Architecture {
  readonly name: string;
  readonly keys: readonly (readonly [key: string, value: MetadataValue])[];
  readonly tensors: readonly TensorSource[];
}

/** The file’s path. Created on the first call; any number of processes may call at once. */
export async function architectureModel(name: ArchitectureName): Promise<string> {
  return writeArchitecture(name, MAKERS[name]);
}

/** The same for any architecture. */
export async function writeArchitecture(
  name: string,
  make: (vocabulary: Vocabulary) => Architecture,
  vocabulary = testVocabulary(),
): Promise<string> {
  const architecture = make(vocabulary);
  const metadata = metadataOf(name, architecture, vocabulary);
  const shapes = architecture.tensors.map(({ name: tensor, dimensions }) => [tensor, dimensions]);
  const hash = createHash('sha256').update(JSON.stringify([VERSION, [...metadata], shapes]));
  const path = join(CACHE, 'models', `ra-${name}-${hash.digest('hex').slice(0, 16)}.gguf`);
  try {
    await access(path);
  } catch {
    await writeGguf(path, metadata, architecture.tensors);
  }
  return path;
}

const MAKERS: Readonly<Record<ArchitectureName, (vocabulary: Vocabulary) => Architecture>> = {
  recurrent,
  hybrid,
  'sliding-window': (vocabulary) => slidingWindow(vocabulary, CONTEXT),
  'unseen-window': (vocabulary) => slidingWindow(vocabulary, WINDOW),
};

/** Tensors as llama.cpp’s models/mamba.cpp requires them. */
function recurrent({ size }: Vocabulary): Architecture {
  const inner = 2 * WIDTH;
  const [kernel, state, rank] = [4, 16, 4];
  const layer = (n: number): TensorSource[] => [
    constant(`blk.${n}.attn_norm.weight`, [WIDTH], 1),
    matrix(`blk.${n}.ssm_in.weight`, WIDTH, 2 * inner),
    matrix(`blk.${n}.ssm_conv1d.weight`, kernel, inner),
    constant(`blk.${n}.ssm_conv1d.bias`, [inner], 0),
    matrix(`blk.${n}.ssm_x.weight`, inner, rank + 2 * state, 6),
    matrix(`blk.${n}.ssm_dt.weight`, rank, inner, 0.2),
    // softplus(-5) is 0.007: with the slowest rate a state decays over some 150 tokens.
    constant(`blk.${n}.ssm_dt.bias`, [inner], -5),
    tensor(`blk.${n}.ssm_a`, [state, inner], (values) => values.forEach((_, i) => (values[i] = -1 - (i % state)))),
    constant(`blk.${n}.ssm_d`, [inner], 1),
    matrix(`blk.${n}.ssm_out.weight`, inner, WIDTH, 2),
  ];
  return {
    name: 'mamba',
    keys: [
      ['context_length', uint32(CONTEXT)],
      ['feed_forward_length', uint32(0)],
      ['attention.head_count', uint32(0)],
      ['attention.layer_norm_rms_epsilon', float32(EPSILON)],
      ['ssm.conv_kernel', uint32(kernel)],
      ['ssm.inner_size', uint32(inner)],
      ['ssm.state_size', uint32(state)],
      ['ssm.time_step_rank', uint32(rank)],
    ],
    tensors: [
      matrix('token_embd.weight', WIDTH, size, 8),
      ...layersOf(layer),
      constant('output_norm.weight', [WIDTH], 1),
      matrix('output.weight', WIDTH, size, 2),
    ],
  };
}

/** Tensors as llama.cpp’s models/lfm2.cpp requires them: a layer without key-value heads is a short convolution. */
function hybrid({ size }: Vocabulary): Architecture {
  const kernel = 3;
  const attends = (n: number): boolean => n % 2 === 1;
  const layer = (n: number): TensorSource[] => [
    constant(`blk.${n}.attn_norm.weight`, [WIDTH], 1),
    ...(attends(n)
      ? [
          constant(`blk.${n}.attn_q_norm.weight`, [HEAD], 1),
          constant(`blk.${n}.attn_k_norm.weight`, [HEAD], 1),
          ...attention(n),
        ]
      : [
          matrix(`blk.${n}.shortconv.conv.weight`, kernel, WIDTH),
          matrix(`blk.${n}.shortconv.in_proj.weight`, WIDTH, 3 * WIDTH),
          matrix(`blk.${n}.shortconv.out_proj.weight`, WIDTH, WIDTH, 2),
        ]),
    constant(`blk.${n}.ffn_norm.weight`, [WIDTH], 1),
    ...feedForward(n),
  ];
  return {
    name: 'lfm2',
    keys: [
      ['context_length', uint32(CONTEXT)],
      ['shortconv.l_cache', uint32(kernel)],
      ...attentionKeys('layer_norm_rms_epsilon'),
      [
        'attention.head_count_kv',
        { type: 'int32s', value: Array.from({ length: LAYERS }, (_, n) => (attends(n) ? KV_HEADS : 0)) },
      ],
    ],
    tensors: [
      matrix('token_embd.weight', WIDTH, size, 8),
      ...layersOf(layer),
      constant('token_embd_norm.weight', [WIDTH], 1),
      matrix('output.weight', WIDTH, size, 2),
    ],
  };
}

/** Tensors as llama.cpp’s models/cohere2.cpp requires them. The embeddings are also the output matrix. */
function slidingWindow({ size }: Vocabulary, context: number): Architecture {
  const layer = (n: number): TensorSource[] => [
    constant(`blk.${n}.attn_norm.weight`, [WIDTH], 1),
    ...attention(n),
    ...feedForward(n),
  ];
  return {
    name: 'cohere2',
    keys: [
      ['context_length', uint32(context)],
      ['logit_scale', float32(1)],
      ['attention.sliding_window', uint32(WINDOW)],
      // Every second layer sees all.
      ['attention.sliding_window_pattern', uint32(2)],
      ...attentionKeys('layer_norm_epsilon'),
      ['attention.head_count_kv', uint32(KV_HEADS)],
    ],
    tensors: [
      // Small compared with the layers’ output; otherwise the model would repeat each token.
      matrix('token_embd.weight', WIDTH, size, 2),
      ...layersOf(layer),
      constant('output_norm.weight', [WIDTH], 1),
    ],
  };
}

export function attentionKeys(epsilon: string): (readonly [string, MetadataValue])[] {
  return [
    ['feed_forward_length', uint32(FEED_FORWARD)],
    ['attention.head_count', uint32(HEADS)],
    [`attention.${epsilon}`, float32(EPSILON)],
    ['rope.dimension_count', uint32(HEAD)],
    ['rope.freq_base', float32(10_000)],
  ];
}

/** Large enough that earlier tokens weigh about as much as the last one. */
export function attention(n: number): TensorSource[] {
  return [
    matrix(`blk.${n}.attn_q.weight`, WIDTH, WIDTH, 2),
    matrix(`blk.${n}.attn_k.weight`, WIDTH, KV_HEADS * HEAD),
    matrix(`blk.${n}.attn_v.weight`, WIDTH, KV_HEADS * HEAD),
    matrix(`blk.${n}.attn_output.weight`, WIDTH, WIDTH, 4),
  ];
}

export function feedForward(n: number): TensorSource[] {
  return [
    matrix(`blk.${n}.ffn_gate.weight`, WIDTH, FEED_FORWARD),
    matrix(`blk.${n}.ffn_up.weight`, WIDTH, FEED_FORWARD),
    matrix(`blk.${n}.ffn_down.weight`, FEED_FORWARD, WIDTH, 2),
  ];
}

export function layersOf(layer: (n: number) => TensorSource[]): TensorSource[] {
  return Array.from({ length: LAYERS }, (_, n) => layer(n)).flat();
}

function metadataOf(title: string, { name, keys }: Architecture, { size, metadata }: Vocabulary): Metadata {
  const own: Architecture['keys'] = [
    ['vocab_size', uint32(size)],
    ['embedding_length', uint32(WIDTH)],
    ['block_count', uint32(LAYERS)],
    ...keys,
  ];
  return new Map<string, MetadataValue>([
    ['general.architecture', { type: 'string', value: name }],
    ['general.type', { type: 'string', value: 'model' }],
    ['general.name', { type: 'string', value: `ra-${title}` }],
    ['general.file_type', uint32(0)],
    ...own.map(([key, value]) => [`${name}.${key}`, value] as const),
    ...metadata,
  ]);
}

/** Uniform weights with a standard deviation of `gain` / sqrt(columns). `matrices`: so many of them in one tensor. */
export function matrix(name: string, columns: number, rows: number, gain = 1, matrices?: number): TensorSource {
  const most = (gain * Math.sqrt(3)) / Math.sqrt(columns);
  const seed = createHash('sha256').update(name).digest().readUInt32LE();
  return tensor(name, [columns, rows, ...(matrices === undefined ? [] : [matrices])], (values) => {
    const random = new RandomWords(seed);
    values.forEach((_, i) => (values[i] = (random.next() / 2 ** 31) * most));
  });
}

export function constant(name: string, dimensions: readonly number[], value: number): TensorSource {
  return tensor(name, dimensions, (values) => values.fill(value));
}

function tensor(name: string, dimensions: readonly number[], fill: (values: Float32Array) => void): TensorSource {
  return {
    name,
    type: 'F32',
    dimensions,
    data: () => {
      const values = new Float32Array(dimensions.reduce((product, dimension) => product * dimension, 1));
      fill(values);
      return [encodeF32(values)];
    },
  };
}

export function uint32(value: number): MetadataValue {
  return { type: 'uint32', value };
}

export function float32(value: number): MetadataValue {
  return { type: 'float32', value };
}
