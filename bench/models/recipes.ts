/** The models that tests, benches and a first run use, by name. */
import type { ModelShape } from './model-shape.js';
import type { ModelPlan } from './random-model.js';
import { ownVocabulary } from './vocabulary-own.js';
import type { Vocabulary } from './vocabulary.js';

export type RecipeName = 'embedded' | 'tiny' | '13m' | '150m' | 'window' | 'hybrid' | '8b' | '8b-f16';

interface Recipe {
  /** `general.name` of the file. */
  readonly title: string;
  readonly shape: ModelShape;
  /** Its vocabulary by default; `none`: one must be given. */
  readonly vocabulary: 'own' | 'none';
  /**
   * How long replies are depends on the weights of the end token’s row, so on the seed. Those of the models with text
   * were picked from the first 40: their replies end after some tens of tokens, most greedy ones too.
   */
  readonly seed: number;
}

/** Llama 3.1 8B's shape. */
const SHAPE_8B = { width: 4096, layers: 32, heads: 32, kvHeads: 8, feedForward: 14_336, context: 131_072 } as const;

const SHAPE_77M = {
  width: 768,
  layers: 12,
  heads: 12,
  kvHeads: 4,
  feedForward: 2048,
  context: 8192,
  weights: 'Q8_0',
} as const;

const RECIPES: Readonly<Record<RecipeName, Recipe>> = {
  /** For tests and benches that want long, fast replies: small enough to be created in a second. */
  embedded: {
    title: 'ra-embedded',
    shape: { width: 256, layers: 4, heads: 4, kvHeads: 2, feedForward: 768, context: 32_768, weights: 'Q8_0' },
    vocabulary: 'own',
    seed: 8,
  },
  /** For tests: loads in well under a second. */
  tiny: {
    title: 'ra-tiny',
    shape: { width: 64, layers: 2, heads: 2, kvHeads: 1, feedForward: 192, context: 8192, weights: 'F16' },
    vocabulary: 'own',
    seed: 39,
  },
  /** 13.7 million weights with GPT-2's 50,257 tokens. */
  '13m': {
    title: 'ra-random-13m',
    shape: { width: 128, layers: 4, heads: 4, kvHeads: 2, feedForward: 384, context: 8192, weights: 'Q8_0' },
    vocabulary: 'none',
    seed: 1,
  },
  /** 153 million weights with GPT-2's 50,257 tokens. */
  '150m': {
    title: 'ra-random-150m',
    shape: { width: 768, layers: 12, heads: 12, kvHeads: 4, feedForward: 2048, context: 8192, weights: 'Q8_0' },
    vocabulary: 'none',
    seed: 1,
  },
  /** 77 million weights; five of six layers see a sliding window of 512 tokens. */
  window: {
    title: 'ra-random-window',
    shape: { ...SHAPE_77M, architecture: 'gemma3' },
    vocabulary: 'own',
    seed: 1,
  },
  /** 79 million weights; two of three layers are short convolutions. */
  hybrid: {
    title: 'ra-random-hybrid',
    shape: { ...SHAPE_77M, architecture: 'lfm2' },
    vocabulary: 'own',
    seed: 1,
  },
  /** For GPUs: with Llama 3's 128,256 tokens 8.5 GB. */
  '8b': { title: 'ra-random-8b', shape: { ...SHAPE_8B, weights: 'Q8_0' }, vocabulary: 'none', seed: 1 },
  /** The same in half precision: 16 GB. */
  '8b-f16': { title: 'ra-random-8b-f16', shape: { ...SHAPE_8B, weights: 'F16' }, vocabulary: 'none', seed: 1 },
};

/**
 * The plan for writeRandomModel. A given vocabulary replaces the recipe’s own; throws if there is neither. `seed`: 32
 * unsigned bits, the recipe’s own by default.
 */
export function planFor(name: RecipeName, options: { vocabulary?: Vocabulary; seed?: number } = {}): ModelPlan {
  const { title, shape, seed, vocabulary: own } = RECIPES[name];
  if (own === 'none' && options.vocabulary === undefined) throw new Error(`the ${name} model needs a vocabulary`);
  const vocabulary = options.vocabulary ?? ownVocabulary();
  return { name: title, shape, seed: options.seed ?? seed, vocabulary };
}
