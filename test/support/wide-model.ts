import { join } from 'node:path';
import { ensureModel } from '../../bench/models/embedded.js';
import { copyVocabulary } from '../../bench/models/vocabulary-copy.js';
import { bundleCheckout, CACHE } from './models.js';

/** A model with almost no computation, in two layers. */
const SHAPE = { width: 64, layers: 2, heads: 2, kvHeads: 1, feedForward: 192, context: 8192, weights: 'Q8_0' } as const;

/**
 * Path of a model with Llama 3’s vocabulary of 128,256 tokens and 16 million random weights. Created like testModel().
 * Needs git.
 */
export async function wideModel(): Promise<string> {
  const vocabulary = await copyVocabulary(join(await bundleCheckout(), 'models', 'ggml-vocab-llama-bpe.gguf'));
  return await ensureModel(join(CACHE, 'models'), { name: 'ra-wide', shape: SHAPE, seed: 1, vocabulary });
}
