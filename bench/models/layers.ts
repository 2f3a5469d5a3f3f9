/** The layers of random models, with tensors as llama.cpp requires them. */
import type { TensorSource } from './gguf-writer.js';
import type { MetadataValue } from './gguf-format.js';
import type { ModelArchitecture, ModelShape } from './model-shape.js';
import type { RandomMatrix } from './random-weights.js';

/** What creates tensors. `lanes`: leading numbers of the residual stream that no layer may add to. */
export interface LayerTools {
  readonly shape: ModelShape;
  readonly lanes: number;
  readonly ones: (name: string, length: number, zeroes?: number) => TensorSource;
  readonly matrix: (name: string, columns: number, rows: number, more?: Partial<RandomMatrix>) => TensorSource;
  readonly small: (name: string, columns: number, rows: number) => TensorSource;
}

interface Design {
  readonly layer: (tools: LayerTools, n: number) => readonly TensorSource[];
  /** Tensors between the embeddings and the output matrix that belong to no layer. */
  readonly ends: (tools: LayerTools) => readonly TensorSource[];
  /** Keys besides the common ones, without the architecture’s prefix. */
  readonly keys: (shape: ModelShape) => readonly (readonly [string, MetadataValue])[];
  /** What llama.cpp multiplies embeddings by. */
  readonly embeddingScale: (shape: ModelShape) => number;
}

/** Tokens of a sliding window: as many as in Gemma 3’s smallest models. */
const WINDOW = 512;
/** Inputs that a short convolution sees, as LFM2's. */
const CONVOLVED = 3;
/** Every so many layers of lfm2, one attends. */
const ATTENDS_EVERY = 3;

const uint32 = (value: number): MetadataValue => ({ type: 'uint32', value });
const headWidth = ({ width, heads }: ModelShape): number => width / heads;
const attends = (n: number): boolean => n % ATTENDS_EVERY === ATTENDS_EVERY - 1;

export const DESIGNS: Readonly<Record<ModelArchitecture, Design>> = {
  llama: {
    layer: (tools, n) => [
      tools.ones(`blk.${n}.attn_norm.weight`, tools.shape.width),
      ...attention(tools, n),
      tools.ones(`blk.${n}.ffn_norm.weight`, tools.shape.width),
      ...feedForward(tools, n),
    ],
    ends: outputNorm('output_norm.weight'),
    keys: () => [],
    embeddingScale: () => 1,
  },
  gemma3: {
    // A norm follows what a layer adds: it must be zero where nothing may be added.
    layer: (tools, n) => [
      tools.ones(`blk.${n}.attn_norm.weight`, tools.shape.width),
      ...attention(tools, n),
      ...headNorms(tools, n),
      tools.ones(`blk.${n}.post_attention_norm.weight`, tools.shape.width, tools.lanes),
      tools.ones(`blk.${n}.ffn_norm.weight`, tools.shape.width),
      ...feedForward(tools, n),
      tools.ones(`blk.${n}.post_ffw_norm.weight`, tools.shape.width, tools.lanes),
    ],
    ends: outputNorm('output_norm.weight'),
    keys: (shape) => [
      ['attention.sliding_window', uint32(WINDOW)],
      ['attention.key_length', uint32(headWidth(shape))],
      ['attention.value_length', uint32(headWidth(shape))],
    ],
    embeddingScale: ({ width }) => Math.sqrt(width),
  },
  lfm2: {
    layer: (tools, n) => [
      tools.ones(`blk.${n}.attn_norm.weight`, tools.shape.width),
      ...(attends(n) ? [...attention(tools, n), ...headNorms(tools, n)] : convolution(tools, n)),
      tools.ones(`blk.${n}.ffn_norm.weight`, tools.shape.width),
      ...feedForward(tools, n),
    ],
    ends: outputNorm('token_embd_norm.weight'),
    keys: (shape) => [
      ['shortconv.l_cache', uint32(CONVOLVED)],
      [
        'attention.head_count_kv',
        { type: 'int32s', value: Array.from({ length: shape.layers }, (_, n) => (attends(n) ? shape.kvHeads : 0)) },
      ],
    ],
    embeddingScale: () => 1,
  },
};

function outputNorm(name: string): Design['ends'] {
  return ({ ones, shape }) => [ones(name, shape.width)];
}

function attention({ shape, lanes, matrix }: LayerTools, n: number): TensorSource[] {
  const { width } = shape;
  const kvWidth = headWidth(shape) * shape.kvHeads;
  return [
    matrix(`blk.${n}.attn_q.weight`, width, width),
    matrix(`blk.${n}.attn_k.weight`, width, kvWidth),
    matrix(`blk.${n}.attn_v.weight`, width, kvWidth),
    matrix(`blk.${n}.attn_output.weight`, width, width, { zeroRows: lanes }),
  ];
}

function headNorms({ shape, ones }: LayerTools, n: number): TensorSource[] {
  return [ones(`blk.${n}.attn_q_norm.weight`, headWidth(shape)), ones(`blk.${n}.attn_k_norm.weight`, headWidth(shape))];
}

function feedForward({ shape: { width, feedForward: inner }, lanes, matrix }: LayerTools, n: number): TensorSource[] {
  return [
    matrix(`blk.${n}.ffn_gate.weight`, width, inner),
    matrix(`blk.${n}.ffn_up.weight`, width, inner),
    matrix(`blk.${n}.ffn_down.weight`, inner, width, { zeroRows: lanes }),
  ];
}

function convolution({ shape: { width }, lanes, matrix, small }: LayerTools, n: number): TensorSource[] {
  return [
    small(`blk.${n}.shortconv.conv.weight`, CONVOLVED, width),
    matrix(`blk.${n}.shortconv.in_proj.weight`, width, 3 * width),
    matrix(`blk.${n}.shortconv.out_proj.weight`, width, width, { zeroRows: lanes }),
  ];
}
