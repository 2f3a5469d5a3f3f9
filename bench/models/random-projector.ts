/**
 * Makes projectors with random weights: small vision encoders that libmtmd loads, for models of any width. Their embeddings are
 * of about the size of a random model's own. Tensors as llama.cpp's tools/mtmd/clip.cpp asks for them.
 */
import { createHash } from 'node:crypto';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import type { Metadata, MetadataValue } from './gguf-format.js';
import { writeGguf, type TensorSource } from './gguf-writer.js';
import { encodeF32 } from './number-formats.js';
import { RandomWords } from './random-weights.js';

/**
 * mlp: a fixed number of tokens, causal (LLaVA). qwen2vl_merger: as many as the image's size asks for, with positions of two
 * dimensions. gemma3: a fixed number whose embeddings attend to each other.
 */
export const PROJECTORS = ['mlp', 'qwen2vl_merger', 'gemma3'] as const;

export type ProjectorName = (typeof PROJECTORS)[number];

/** Raise it when the same projector would get other bytes. */
const VERSION = 1;

const WIDTH = 64;
const HEADS = 2;
const FEED_FORWARD = 128;
const LAYERS = 2;
const PATCH = 14;
/** Sides of what an image is resized to, px, where it is fixed. */
const SIDES: Readonly<Record<ProjectorName, number>> = { mlp: 84, qwen2vl_merger: 560, gemma3: 224 };

const uint32 = (value: number): MetadataValue => ({ type: 'uint32', value });

/** The file's path in `dir`, made there if it is not yet. `width`: of the model's embeddings. */
export async function ensureProjector(dir: string, name: ProjectorName, width: number): Promise<string> {
  const metadata = metadataOf(name, width);
  const hash = createHash('sha256').update(JSON.stringify([VERSION, name, width, [...metadata]]));
  const path = join(dir, `ra-projector-${name}-${hash.digest('hex').slice(0, 16)}.gguf`);
  const there = await access(path).then(
    () => true,
    () => false,
  );
  if (!there) await writeGguf(path, metadata, tensorsOf(name, width));
  return path;
}

function metadataOf(name: ProjectorName, width: number): Metadata {
  const floats = (values: readonly number[]): MetadataValue => ({ type: 'float32s', value: values });
  const own: readonly (readonly [string, MetadataValue])[] = [
    ['embedding_length', uint32(WIDTH)],
    ['feed_forward_length', uint32(FEED_FORWARD)],
    ['block_count', uint32(LAYERS)],
    ['projection_dim', uint32(width)],
    ['image_size', uint32(SIDES[name])],
    ['patch_size', uint32(PATCH)],
    ['attention.head_count', uint32(HEADS)],
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

function tensorsOf(name: ProjectorName, width: number): TensorSource[] {
  return [...encoder(name), ...projection(name, width)];
}

function encoder(name: ProjectorName): TensorSource[] {
  const positions = (SIDES[name] / PATCH) ** 2;
  const layer = (n: number): TensorSource[] => [
    ...norm(`v.blk.${n}.ln1`),
    ...['q', 'k', 'v', 'out'].flatMap((part) => linear(`v.blk.${n}.attn_${part}`, WIDTH, WIDTH)),
    ...norm(`v.blk.${n}.ln2`),
    ...linear(`v.blk.${n}.ffn_up`, WIDTH, FEED_FORWARD),
    ...linear(`v.blk.${n}.ffn_down`, FEED_FORWARD, WIDTH),
  ];
  const patches = (suffix: string): TensorSource =>
    random(`v.patch_embd.weight${suffix}`, [PATCH, PATCH, 3, WIDTH], 3 * PATCH * PATCH);
  return [
    patches(''),
    // Of an image's two frames, which are the same.
    ...(name === 'qwen2vl_merger' ? [patches('.1')] : []),
    ...(name === 'qwen2vl_merger' ? [] : [random('v.position_embd.weight', [WIDTH, positions], 4)]),
    ...Array.from({ length: LAYERS }, (_, n) => layer(n)).flat(),
    ...norm('v.post_ln'),
  ];
}

function projection(name: ProjectorName, width: number): TensorSource[] {
  switch (name) {
    case 'mlp':
      return [...linear('mm.0', WIDTH, width), ...linear('mm.2', width, width, 2)];
    case 'qwen2vl_merger':
      return [...linear('mm.0', 4 * WIDTH, 4 * WIDTH), ...linear('mm.2', 4 * WIDTH, width, 2)];
    case 'gemma3':
      // By columns.
      return [random('mm.input_projection.weight', [width, WIDTH], WIDTH), ones('mm.soft_emb_norm.weight', WIDTH)];
  }
}

function linear(name: string, columns: number, rows: number, gain = 1): TensorSource[] {
  return [random(`${name}.weight`, [columns, rows], columns / gain ** 2), filled(`${name}.bias`, rows, 0)];
}

function norm(name: string): TensorSource[] {
  return [ones(`${name}.weight`, WIDTH), filled(`${name}.bias`, WIDTH, 0)];
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
