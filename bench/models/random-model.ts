/**
 * Makes models with random weights, the same for the same seed. They have a real model's cost and
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
import { DESIGNS, type LayerTools } from './layers.js';
import type { ModelShape } from './model-shape.js';
import { LANE, randomMatrix, RandomWords, type RandomMatrix } from './random-weights.js';
import type { Vocabulary } from './vocabulary.js';

export interface ModelPlan {
  /** `general.name`. */
  readonly name: string;
  /** `general.description`; by default what random weights are. */
  readonly description?: string;
  readonly shape: ModelShape;
  /** 32 unsigned bits. */
  readonly seed: number;
  readonly vocabulary: Vocabulary;
  /**
   * The most probable token is always the one whose id is one more than the last token's, so that a reply's text is known before. All
   * layers compute as they otherwise do, and add nothing. For vocabularies without frequencies. Absent: false.
   */
  readonly successor?: boolean;
}

/** Raise it if the same plan would give other bytes, so that files kept under a hash of the plan are created again. */
export const MAKER_VERSION = 1;

/** Standard deviation of the random part of a logit. */
const LOGIT_DEVIATION = 2;
/** About the root mean square of the residual stream at the last norm. */
const FINAL_RMS = 1.4;
const NO_KNOWLEDGE = 'random weights: the cost of a language model without its knowledge';
const ROPE_BASE = 10_000;
const NORM_EPSILON = 1e-5;
/** llama_ftype of files whose matrices are mostly of the type. */
const FILE_TYPE = { F16: 1, Q8_0: 7 } as const;

/** Writes the planned model to `path`; see writeGguf for failures. Throws a RangeError for an impossible shape. */
export async function writeRandomModel(path: string, plan: ModelPlan): Promise<void> {
  checkShape(plan.shape);
  await writeGguf(path, modelMetadata(plan), modelTensors(plan));
}

/** 16 hexadecimal digits that change whenever the plan’s file does. */
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
  const architecture = shape.architecture ?? 'llama';
  const own: readonly (readonly [string, MetadataValue])[] = [
    ['vocab_size', uint32(vocabulary.size)],
    ['context_length', uint32(shape.context)],
    ['embedding_length', uint32(shape.width)],
    ['block_count', uint32(shape.layers)],
    ['feed_forward_length', uint32(shape.feedForward)],
    ['attention.head_count', uint32(shape.heads)],
    ['attention.head_count_kv', uint32(shape.kvHeads)],
    ['attention.layer_norm_rms_epsilon', float32(NORM_EPSILON)],
    ['rope.dimension_count', uint32(shape.width / shape.heads)],
    ['rope.freq_base', float32(shape.ropeBase ?? ROPE_BASE)],
    ...DESIGNS[architecture].keys(shape),
  ];
  return new Map<string, MetadataValue>([
    ['general.architecture', string(architecture)],
    ['general.type', string('model')],
    ['general.name', string(name)],
    ['general.description', string(description ?? NO_KNOWLEDGE)],
    ['general.file_type', uint32(FILE_TYPE[shape.weights])],
    ['general.quantization_version', uint32(2)],
    ...own.map(([key, value]) => [`${architecture}.${key}`, value] as const),
    ...vocabulary.metadata,
  ]);
}

function modelTensors({ shape, seed, vocabulary, successor = false }: ModelPlan): TensorSource[] {
  const { width } = shape;
  const { logFrequencies } = vocabulary;
  const lanes = logFrequencies === undefined ? 0 : LANE;
  const bias = (token: number): number => ((logFrequencies?.[token] ?? 0) * FINAL_RMS) / LANE;

  const ones = (name: string, length: number, zeroes = 0): TensorSource => ({
    name,
    type: 'F32',
    dimensions: [length],
    data: () => [encodeF32(new Float32Array(length).fill(1).fill(0, 0, zeroes))],
  });
  const small = (name: string, columns: number, rows: number): TensorSource => ({
    name,
    type: 'F32',
    dimensions: [columns, rows],
    data: () => [encodeF32(uniform(columns * rows, 1 / Math.sqrt(columns), tensorSeed(seed, name)))],
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
  const { layer, ends, embeddingScale } = DESIGNS[shape.architecture ?? 'llama'];
  const tools: LayerTools = { shape, lanes: successor ? width : lanes, ones, matrix, small };
  const scale = embeddingScale(shape);
  const output = matrix('output.weight', width, vocabulary.size, {
    deviation: LOGIT_DEVIATION / Math.sqrt(width - lanes),
    ...(lanes > 0 && { lane: bias }),
  });
  // A token's embedding is the row of the next token: their product is many times that of any other two.
  const embeddings = { deviation: 1 / scale, seed: tensorSeed(seed, 'token_embd.weight') };
  const next = matrix('output.weight', width, vocabulary.size, embeddings);
  return [
    matrix('token_embd.weight', width, vocabulary.size, {
      deviation: 1 / scale,
      ...(lanes > 0 && { lane: () => 1 / scale }),
    }),
    ...Array.from({ length: shape.layers }, (_, n) => layer(tools, n)).flat(),
    ...ends(tools),
    successor ? { ...next, data: () => aRowLater(next.data(), vocabulary.size) } : output,
  ];
}

/** The same rows, each one row later, after one of zeros. */
function* aRowLater(pieces: Iterable<Uint8Array>, rows: number): Generator<Uint8Array> {
  const all = [...pieces].map((piece) => piece.slice());
  const row = all.reduce((sum, { length }) => sum + length, 0) / rows;
  yield new Uint8Array(row);
  for (const [i, piece] of all.entries()) yield i === all.length - 1 ? piece.subarray(0, -row) : piece;
}

/** Uniform numbers of this standard deviation. */
function uniform(count: number, deviation: number, seed: number): Float32Array {
  const random = new RandomWords(seed);
  return Float32Array.from({ length: count }, () => (random.next() / 2 ** 31) * Math.sqrt(3) * deviation);
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
