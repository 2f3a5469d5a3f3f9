/**
 * Makes llama-architecture models with random weights, the same for the same seed. They have a real model's cost and
 * wiring and no knowledge. Weights have a standard deviation of 1/sqrt(inputs), so that activations stay near 1.
 *
 * The bias lane. A purely random model emits all tokens alike: broken UTF-8, control tokens, no ends. Where the vocabulary knows how
 * often its tokens should turn up, the first 32 numbers of the residual stream are kept at 1: every token's
 * embedding starts with them, and no layer adds to them (those rows of attn_output and ffn_down are zero). The
 * output matrix can then hold, in the columns that read them, one bias per token: the logarithm of its frequency. What
 * the model says is so a draw by those frequencies, bent by LOGIT_DEVIATION of random, context-dependent logit.
 */
import { createHash } from 'node:crypto';
import type { Metadata, MetadataValue } from './gguf-format.js';
import { writeGguf, type TensorSource } from './gguf-writer.js';
import { encodeF32, Q8_0_WEIGHTS } from './number-formats.js';
import { LANE, randomMatrix, type RandomMatrix, type WeightType } from './random-weights.js';
import type { Vocabulary } from './vocabulary.js';

export interface ModelShape {
  /** Length of the residual stream; a multiple of 32 and of `2 * heads`. */
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  /** Divides `heads`. */
  readonly kvHeads: number;
  /** Inner width of the feed-forward part; a multiple of 32. */
  readonly feedForward: number;
  /** Tokens that the model says it was trained for. */
  readonly context: number;
  readonly weights: WeightType;
  /** Base of the rotary angles; 10,000 by default. */
  readonly ropeBase?: number;
}

export interface ModelPlan {
  /** `general.name`. */
  readonly name: string;
  /** `general.description`; by default what random weights are. */
  readonly description?: string;
  readonly shape: ModelShape;
  /** 32 unsigned bits. */
  readonly seed: number;
  readonly vocabulary: Vocabulary;
}

/** Raise it when the same plan would give other bytes, so that files kept under a hash of the plan are made anew. */
export const MAKER_VERSION = 1;

/** Standard deviation of the random part of a logit. */
const LOGIT_DEVIATION = 2;
/** About what the root mean square of the residual stream has grown to at the last norm. */
const FINAL_RMS = 1.4;
const NO_KNOWLEDGE = 'random weights: the cost of a language model without its knowledge';
const ROPE_BASE = 10_000;
const NORM_EPSILON = 1e-5;
/** llama_ftype of files whose matrices are mostly of the type. */
const FILE_TYPE = { F16: 1, Q8_0: 7 } as const;

/** Writes the planned model to `path`; see writeGguf for what happens when it cannot. Throws a RangeError for an impossible shape. */
export async function writeRandomModel(path: string, plan: ModelPlan): Promise<void> {
  checkShape(plan.shape);
  await writeGguf(path, modelMetadata(plan), modelTensors(plan));
}

/** 16 hexadecimal digits that change whenever the file that the plan gives does. */
export function planHash(plan: ModelPlan): string {
  const { logFrequencies } = plan.vocabulary;
  const hash = createHash('sha256').update(
    JSON.stringify([MAKER_VERSION, plan.shape, plan.seed, [...modelMetadata(plan)]]),
  );
  if (logFrequencies) hash.update(encodeF32(logFrequencies));
  return hash.digest('hex').slice(0, 16);
}

/** All metadata of the file, in its order. */
export function modelMetadata({ name, description, shape, vocabulary }: Omit<ModelPlan, 'seed'>): Metadata {
  const uint32 = (value: number): MetadataValue => ({ type: 'uint32', value });
  const string = (value: string): MetadataValue => ({ type: 'string', value });
  const float32 = (value: number): MetadataValue => ({ type: 'float32', value });
  return new Map<string, MetadataValue>([
    ['general.architecture', string('llama')],
    ['general.type', string('model')],
    ['general.name', string(name)],
    ['general.description', string(description ?? NO_KNOWLEDGE)],
    ['general.file_type', uint32(FILE_TYPE[shape.weights])],
    ['general.quantization_version', uint32(2)],
    ['llama.vocab_size', uint32(vocabulary.size)],
    ['llama.context_length', uint32(shape.context)],
    ['llama.embedding_length', uint32(shape.width)],
    ['llama.block_count', uint32(shape.layers)],
    ['llama.feed_forward_length', uint32(shape.feedForward)],
    ['llama.attention.head_count', uint32(shape.heads)],
    ['llama.attention.head_count_kv', uint32(shape.kvHeads)],
    ['llama.attention.layer_norm_rms_epsilon', float32(NORM_EPSILON)],
    ['llama.rope.dimension_count', uint32(shape.width / shape.heads)],
    ['llama.rope.freq_base', float32(shape.ropeBase ?? ROPE_BASE)],
    ...vocabulary.metadata,
  ]);
}

function modelTensors({ shape, seed, vocabulary }: ModelPlan): TensorSource[] {
  const { width, feedForward } = shape;
  const kvWidth = (width / shape.heads) * shape.kvHeads;
  const { logFrequencies } = vocabulary;
  const lanes = logFrequencies === undefined ? 0 : LANE;
  const bias = (token: number): number => ((logFrequencies?.[token] ?? 0) * FINAL_RMS) / LANE;

  const norm = (name: string): TensorSource => ({
    name,
    type: 'F32',
    dimensions: [width],
    data: () => [encodeF32(new Float32Array(width).fill(1))],
  });
  const matrix = (name: string, columns: number, rows: number, more?: Partial<RandomMatrix>): TensorSource => ({
    name,
    type: shape.weights,
    dimensions: [columns, rows],
    data: () =>
      randomMatrix({
        type: shape.weights,
        columns,
        rows,
        deviation: 1 / Math.sqrt(columns),
        seed: tensorSeed(seed, name),
        ...more,
      }),
  });
  const layer = (n: number): TensorSource[] => [
    norm(`blk.${n}.attn_norm.weight`),
    matrix(`blk.${n}.attn_q.weight`, width, width),
    matrix(`blk.${n}.attn_k.weight`, width, kvWidth),
    matrix(`blk.${n}.attn_v.weight`, width, kvWidth),
    matrix(`blk.${n}.attn_output.weight`, width, width, { zeroRows: lanes }),
    norm(`blk.${n}.ffn_norm.weight`),
    matrix(`blk.${n}.ffn_gate.weight`, width, feedForward),
    matrix(`blk.${n}.ffn_up.weight`, width, feedForward),
    matrix(`blk.${n}.ffn_down.weight`, feedForward, width, { zeroRows: lanes }),
  ];
  return [
    matrix('token_embd.weight', width, vocabulary.size, { deviation: 1, ...(lanes > 0 && { lane: () => 1 }) }),
    ...Array.from({ length: shape.layers }, (_, n) => layer(n)).flat(),
    norm('output_norm.weight'),
    matrix('output.weight', width, vocabulary.size, {
      deviation: LOGIT_DEVIATION / Math.sqrt(width - lanes),
      ...(lanes > 0 && { lane: bias }),
    }),
  ];
}

/** Each tensor has its own stream of random numbers, so that none depends on the ones before it. */
function tensorSeed(seed: number, name: string): number {
  return createHash('sha256').update(`${seed}/${name}`).digest().readUInt32LE();
}

function checkShape(shape: ModelShape): void {
  const { width, heads, kvHeads, feedForward } = shape;
  const whole = [width, shape.layers, heads, kvHeads, feedForward, shape.context];
  if (!whole.every((value) => Number.isInteger(value) && value > 0)) {
    throw new RangeError('every number of a model shape must be a whole number above 0');
  }
  const kvWidth = (width / heads) * kvHeads;
  if (width % Q8_0_WEIGHTS !== 0 || feedForward % Q8_0_WEIGHTS !== 0) {
    throw new RangeError(`width ${width} and feed-forward width ${feedForward} must be multiples of ${Q8_0_WEIGHTS}`);
  }
  if (width % (2 * heads) !== 0 || heads % kvHeads !== 0 || !Number.isInteger(kvWidth)) {
    throw new RangeError(
      `width ${width} must divide by twice the heads ${heads}, and the heads by the kv heads ${kvHeads}`,
    );
  }
  if (width < 2 * LANE) throw new RangeError(`width ${width} is less than ${2 * LANE}`);
}
