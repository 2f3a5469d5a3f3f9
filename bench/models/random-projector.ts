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
 * mlp: a fixed number of tokens, causal (LLaVA). qwen2vl_merger: a number that depends on the image’s size, with
 * positions of two dimensions. gemma3: a fixed number whose embeddings attend to each other.
 */
export const PROJECTORS = ['mlp', 'qwen2vl_merger', 'gemma3'] as const;

export type ProjectorName = (typeof PROJECTORS)[number];

/** Raise it if the same projector would get other bytes. */
const VERSION = 1;

/** An encoder's shape. */
export interface EncoderShape {
  readonly width: number;
  /** `mlp` computes one less. */
  readonly layers: number;
  /** The size to which an image is scaled, px, if it is fixed; a multiple of {@link PATCH}. */
  readonly side: number;
}

const PATCH = 14;
/** Of an attention head. */
const HEAD = 32;
const SMALL: Readonly<Record<ProjectorName, EncoderShape>> = {
  mlp: { width: 64, layers: 2, side: 84 },
  qwen2vl_merger: { width: 64, layers: 2, side: 560 },
  gemma3: { width: 64, layers: 2, side: 224 },
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
  const hash = createHash('sha256').update(JSON.stringify([VERSION, name, width, [...metadata]]));
  const path = join(dir, `ra-projector-${name}-${hash.digest('hex').slice(0, 16)}.gguf`);
  const there = await access(path).then(
    () => true,
    () => false,
  );
  if (!there) await writeGguf(path, metadata, [...encoderOf(name, encoder), ...projection(name, encoder.width, width)]);
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
  const positions = (side / PATCH) ** 2;
  const layer = (n: number): TensorSource[] => [
    ...norm(`v.blk.${n}.ln1`, width),
    ...['q', 'k', 'v', 'out'].flatMap((part) => linear(`v.blk.${n}.attn_${part}`, width, width)),
    ...norm(`v.blk.${n}.ln2`, width),
    ...linear(`v.blk.${n}.ffn_up`, width, 2 * width),
    ...linear(`v.blk.${n}.ffn_down`, 2 * width, width),
  ];
  const patches = (suffix: string): TensorSource =>
    random(`v.patch_embd.weight${suffix}`, [PATCH, PATCH, 3, width], 3 * PATCH * PATCH);
  return [
    patches(''),
    // Of an image's two frames, which are the same.
    ...(name === 'qwen2vl_merger' ? [patches('.1')] : []),
    ...(name === 'qwen2vl_merger' ? [] : [random('v.position_embd.weight', [width, positions], 4)]),
    ...Array.from({ length: layers }, (_, n) => layer(n)).flat(),
    ...norm('v.post_ln', width),
  ];
}

function projection(name: ProjectorName, from: number, width: number): TensorSource[] {
  switch (name) {
    case 'mlp':
      return [...linear('mm.0', from, width), ...linear('mm.2', width, width, 2)];
    case 'qwen2vl_merger':
      return [...linear('mm.0', 4 * from, 4 * from), ...linear('mm.2', 4 * from, width, 2)];
    case 'gemma3':
      // By columns.
      return [random('mm.input_projection.weight', [width, from], from), ones('mm.soft_emb_norm.weight', from)];
  }
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
