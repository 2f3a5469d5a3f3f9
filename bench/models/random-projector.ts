/**
 * Creates projectors with random weights: small vision encoders that libmtmd loads, for models of any width. Their
 * embeddings have about the size of a random model’s own. Tensors as llama.cpp’s tools/mtmd/clip.cpp requires them.
 */
import { createHash } from 'node:crypto';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import type { Metadata, MetadataValue } from './gguf-format.js';
import { writeGguf, type TensorSource } from './gguf-writer.js';
import { encodeF32 } from './number-formats.js';
import { RandomWords } from './random-weights.js';

/**
 * mlp: a fixed number of tokens, causal (LLaVA). qwen2vl_merger: a number that depends on the image’s size, with positions of
 * two dimensions. qwen3vl_merger: the same with learned positions, and for its own models embeddings for more than one layer.
 * gemma3: a fixed number whose embeddings attend to each other. gemma4v: the same, a number that depends on the image’s size.
 */
export type ProjectorName = 'mlp' | 'qwen2vl_merger' | 'qwen3vl_merger' | 'gemma3' | 'gemma4v';

/** Raise it if the same projector would get other bytes. */
const VERSION = 1;

/** An encoder's shape. */
export interface EncoderShape {
  readonly width: number;
  /** `mlp` computes one less. */
  readonly layers: number;
  /** The size to which an image is scaled, px, if it is fixed; a multiple of {@link PATCH}. */
  readonly side: number;
  /** Of `qwen3vl_merger`: whether its first layer gives embeddings too, which the model adds behind its own first one. */
  readonly deepstack?: boolean;
}

const PATCH = 14;
/** Of an attention head. */
const HEAD = 32;
/** Places for `gemma4v` in each direction: more than its tokens can take a row. */
const GEMMA4_PLACES = 4096;

export const SMALL: Readonly<Record<ProjectorName, EncoderShape>> = {
  mlp: { width: 64, layers: 2, side: 84 },
  qwen2vl_merger: { width: 64, layers: 2, side: 560 },
  qwen3vl_merger: { width: 64, layers: 2, side: 560 },
  gemma3: { width: 64, layers: 2, side: 224 },
  gemma4v: { width: 64, layers: 2, side: 224 },
};

const uint32 = (value: number): MetadataValue => ({ type: 'uint32', value });

/** The file’s path in `dir`, created if it does not exist. `width`: of the model’s embeddings. */
export async function ensureProjector(
  dir: string,
  name: ProjectorName,
  width: number,
  encoder = SMALL[name],
): Promise<string> {
  const metadata = metadataOf(name, width, encoder);
  const hash = createHash('sha256').update(
    JSON.stringify([VERSION, name, width, [...metadata], ...(encoder.deepstack === true ? ['deepstack'] : [])]),
  );
  const path = join(dir, `ra-projector-${name}-${hash.digest('hex').slice(0, 16)}.gguf`);
  const there = await access(path).then(
    () => true,
    () => false,
  );
  if (!there) await writeGguf(path, metadata, [...encoderOf(name, encoder), ...projection(name, encoder, width)]);
  return path;
}

function metadataOf(name: ProjectorName, width: number, encoder: EncoderShape): Metadata {
  const floats = (values: readonly number[]): MetadataValue => ({ type: 'float32s', value: values });
  const own: readonly (readonly [string, MetadataValue])[] = [
    ['embedding_length', uint32(encoder.width)],
    ['feed_forward_length', uint32(2 * encoder.width)],
    ['block_count', uint32(encoder.layers)],
    ['projection_dim', uint32(width)],
    ['image_size', uint32(encoder.side)],
    ['patch_size', uint32(PATCH)],
    ['attention.head_count', uint32(encoder.width / HEAD)],
    ['attention.layer_norm_epsilon', { type: 'float32', value: 1e-5 }],
    ['image_mean', floats([0.48, 0.46, 0.41])],
    ['image_std', floats([0.27, 0.26, 0.28])],
  ];
  return new Map<string, MetadataValue>([
    ['general.architecture', { type: 'string', value: 'clip' }],
    ['general.type', { type: 'string', value: 'mmproj' }],
    ['general.name', { type: 'string', value: `ra-projector-${name}` }],
    ['general.file_type', uint32(0)],
    ['clip.has_vision_encoder', { type: 'bool', value: true }],
    ['clip.projector_type', { type: 'string', value: name }],
    ['clip.use_gelu', { type: 'bool', value: true }],
    ...own.map(([key, value]) => [`clip.vision.${key}`, value] as const),
  ]);
}

function encoderOf(name: ProjectorName, { width, layers, side }: EncoderShape): TensorSource[] {
  const queries = (n: number): TensorSource[] =>
    name === 'qwen3vl_merger'
      ? linear(`v.blk.${n}.attn_qkv`, width, 3 * width)
      : ['q', 'k', 'v'].flatMap((part) => linear(`v.blk.${n}.attn_${part}`, width, width));
  const layer = (n: number): TensorSource[] => [
    ...norm(`v.blk.${n}.ln1`, width),
    ...queries(n),
    ...linear(`v.blk.${n}.attn_out`, width, width),
    ...norm(`v.blk.${n}.ln2`, width),
    ...linear(`v.blk.${n}.ffn_up`, width, 2 * width),
    ...linear(`v.blk.${n}.ffn_down`, 2 * width, width),
  ];
  const patches = (suffix: string): TensorSource =>
    random(`v.patch_embd.weight${suffix}`, [PATCH, PATCH, 3, width], 3 * PATCH * PATCH);
  return [
    patches(''),
    // Of an image's two frames, which are the same.
    ...(name === 'qwen2vl_merger' || name === 'qwen3vl_merger' ? [patches('.1')] : []),
    ...(name === 'qwen3vl_merger' ? [filled('v.patch_embd.bias', width, 0)] : []),
    ...positionsOf(name, width, side),
    ...Array.from({ length: layers }, (_, n) => layer(n)).flat(),
    ...norm('v.post_ln', width),
  ];
}

/** Learned positions. */
function positionsOf(name: ProjectorName, width: number, side: number): TensorSource[] {
  if (name === 'qwen2vl_merger') return [];
  const shape = name === 'gemma4v' ? [width, GEMMA4_PLACES, 2] : [width, (side / PATCH) ** 2];
  return [random('v.position_embd.weight', shape, 4)];
}

function projection(name: ProjectorName, { width: from, deepstack }: EncoderShape, width: number): TensorSource[] {
  switch (name) {
    case 'mlp':
      return [...linear('mm.0', from, width), ...linear('mm.2', width, width, 2)];
    case 'qwen2vl_merger':
      return merger('mm.0', 'mm.2', from, width);
    case 'qwen3vl_merger':
      return [
        ...merger('mm.0', 'mm.2', from, width),
        ...(deepstack === true
          ? [...norm('v.deepstack.0.norm', 4 * from), ...merger('v.deepstack.0.fc1', 'v.deepstack.0.fc2', from, width)]
          : []),
      ];
    case 'gemma3':
      // By columns.
      return [random('mm.input_projection.weight', [width, from], from), ones('mm.soft_emb_norm.weight', from)];
    case 'gemma4v':
      return [random('mm.input_projection.weight', [from, width], from)];
  }
}

/** Of two by two patches. */
function merger(first: string, second: string, from: number, width: number): TensorSource[] {
  return [...linear(first, 4 * from, 4 * from), ...linear(second, 4 * from, width, 2)];
}

function linear(name: string, columns: number, rows: number, gain = 1): TensorSource[] {
  return [random(`${name}.weight`, [columns, rows], columns / gain ** 2), filled(`${name}.bias`, rows, 0)];
}

function norm(name: string, width: number): TensorSource[] {
  return [ones(`${name}.weight`, width), filled(`${name}.bias`, width, 0)];
}

function ones(name: string, length: number): TensorSource {
  return filled(name, length, 1);
}

function filled(name: string, length: number, value: number): TensorSource {
  return { name, type: 'F32', dimensions: [length], data: () => [encodeF32(new Float32Array(length).fill(value))] };
}

/** Uniform weights with a standard deviation of 1 / sqrt(inputs). */
function random(name: string, dimensions: readonly number[], inputs: number): TensorSource {
  return {
    name,
    type: 'F32',
    dimensions,
    data: () => {
      const words = new RandomWords(createHash('sha256').update(name).digest().readUInt32LE());
      const most = Math.sqrt(3 / inputs);
      const length = dimensions.reduce((product, dimension) => product * dimension, 1);
      return [encodeF32(Float32Array.from({ length }, () => (words.next() / 2 ** 31) * most))];
    },
  };
}
