/** Model files of benches, created at the first call and kept in bench/.cache. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureModel } from '../models/embedded.js';
import { planFor, type RecipeName } from '../models/recipes.js';
import { copyVocabulary } from '../models/vocabulary-copy.js';
import { ownVocabulary } from '../models/vocabulary-own.js';
import type { Vocabulary } from '../models/vocabulary.js';
import { bundleCheckout } from '../../test/support/models.js';

/** From dist/bench/support. */
const CACHE = fileURLToPath(new URL('../../../bench/.cache/', import.meta.url));

/** As rare as a token can be. */
const NEVER = -25;

/** The shape and cost of the embedded model, but its replies do not end before their last allowed token. */
export async function endlessEmbedded(): Promise<string> {
  const own = ownVocabulary();
  const plan = planFor('embedded', { vocabulary: withoutEnd(own) });
  return await ensureModel(CACHE, { ...plan, name: 'ra-embedded-endless' });
}

/** The `13m` recipe with GPT-2's vocabulary of 50,257 tokens from the llama.cpp inside node-llama-cpp. Needs git. */
export function random13m(): Promise<string> {
  return withGpt2Vocabulary('13m');
}

/** The `150m` recipe with the same vocabulary. */
export function random150m(): Promise<string> {
  return withGpt2Vocabulary('150m');
}

/** A model with as large a state as one of 8 billion weights, 128 KiB a token, and about as many weights as `150m`. */
export async function randomWideState(): Promise<string> {
  const plan = planFor('150m', { vocabulary: ownVocabulary() });
  const shape = { ...plan.shape, width: 1024, layers: 32, heads: 8, kvHeads: 8, feedForward: 256 };
  return await ensureModel(CACHE, { ...plan, name: 'ra-random-wide-state', shape });
}

/** The `window` or `hybrid` recipe, whose replies do not end before their last allowed token. */
export async function endless(recipe: 'window' | 'hybrid'): Promise<string> {
  const plan = planFor(recipe, { vocabulary: withoutEnd(ownVocabulary()) });
  return await ensureModel(CACHE, { ...plan, name: `${plan.name}-endless` });
}

/** The 8 billion weights of `8b` or `8b-f16` with Llama 3's vocabulary of 128,256 tokens: 8.5 or 16 GB. */
export async function random8b(recipe: '8b' | '8b-f16'): Promise<string> {
  const vocabulary = await copyVocabulary(join(await bundleCheckout(), 'models', 'ggml-vocab-llama-bpe.gguf'));
  return await ensureModel(CACHE, planFor(recipe, { vocabulary }));
}

/** The weights of `150m`, of which each greedy reply counts the ids of tokens upwards from the prompt's last one. */
export async function successor150m(): Promise<string> {
  const vocabulary = await copyVocabulary(join(await bundleCheckout(), 'models', 'ggml-vocab-gpt-2.gguf'));
  const plan = planFor('150m', { vocabulary });
  return await ensureModel(CACHE, { ...plan, name: `${plan.name}-successor`, successor: true });
}

async function withGpt2Vocabulary(recipe: RecipeName): Promise<string> {
  const vocabulary = await copyVocabulary(join(await bundleCheckout(), 'models', 'ggml-vocab-gpt-2.gguf'));
  return await ensureModel(CACHE, planFor(recipe, { vocabulary }));
}

function withoutEnd(vocabulary: Vocabulary): Vocabulary {
  const end = vocabulary.metadata.get('tokenizer.ggml.eos_token_id')?.value;
  const logFrequencies = vocabulary.logFrequencies?.map((log, token) => (token === end ? NEVER : log));
  return { ...vocabulary, ...(logFrequencies && { logFrequencies }) };
}
