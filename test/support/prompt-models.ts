import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureModel } from '../../bench/models/embedded.js';
import { planFor } from '../../bench/models/recipes.js';
import type { PromptParts } from '../../engine/prompt/chat-prompt.js';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import type { Vocabulary } from '../../engine/prompt/tokens.js';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import { bundleCheckout, CACHE, testVocabulary } from './models.js';
import { processRoot } from './process-root.js';

/** The source of one of the bundle's chat templates, named without its ending. */
export async function bundleTemplate(name: string): Promise<string> {
  return readFile(join(await bundleCheckout(), 'models/templates', `${name}.jinja`), 'utf8');
}

/** Path of one of the bundle's vocabularies, for example `qwen2`. */
export async function bundleVocabulary(name: string): Promise<string> {
  return join(await bundleCheckout(), 'models', `ggml-vocab-${name}.gguf`);
}

const loaded = new Map<string, Promise<Vocabulary>>();

/**
 * One of the bundle’s vocabularies, loaded once for all test files of a process, since a large one takes half a second. Disposed
 * when the process’ tests have ended.
 */
export function sharedVocabulary(name: string): Promise<Vocabulary> {
  const vocabulary = loaded.get(name) ?? bundleVocabulary(name).then(loadVocabulary);
  if (!loaded.has(name)) processRoot.teardown(async () => (await vocabulary).dispose());
  loaded.set(name, vocabulary);
  return vocabulary;
}

/** A real vocabulary with a template: the vocabulary’s own unless one is named. */
export async function promptParts(vocabularyName: string, templateName?: string): Promise<PromptParts> {
  const vocabulary = await sharedVocabulary(vocabularyName);
  const source = templateName === undefined ? (vocabulary.chatTemplate ?? '') : await bundleTemplate(templateName);
  return partsOf(vocabulary, source);
}

/** Any vocabulary with any template. Throws if the template is invalid. */
export function partsOf(vocabulary: Vocabulary, source: string): PromptParts {
  const made = makePromptParts(vocabulary, { chatTemplate: source });
  if (made.kind === 'bad') throw new Error(made.problem);
  return made.parts;
}

/** Of a token, as real vocabularies have: a text is refused before it is split if it has more such tokens than a seat. */
const LONGEST_TOKEN = 'z'.repeat(256);

/**
 * Path of a model whose prompts end the prompt host if they have a word of a million letters: llama.cpp splits them by regular expressions
 * of the C++ library, which recurse once a letter. The rest of its vocabulary is the tests’ own, which loads ten times as fast as a real one.
 */
export async function recursingModel(): Promise<string> {
  const own = testVocabulary();
  const [tokens, types] = ['tokens', 'token_type'].map((key) => own.metadata.get(`tokenizer.ggml.${key}`));
  if (tokens?.type !== 'strings' || types?.type !== 'int32s') throw new Error('the vocabulary has no tokens');
  const metadata = new Map(own.metadata)
    .set('tokenizer.ggml.pre', { type: 'string', value: 'deepseek-llm' })
    .set('tokenizer.ggml.tokens', { type: 'strings', value: [...tokens.value, LONGEST_TOKEN] })
    .set('tokenizer.ggml.token_type', { type: 'int32s', value: [...types.value, 1] });
  const plan = planFor('tiny', { vocabulary: { size: own.size + 1, metadata } });
  return ensureModel(join(CACHE, 'models'), {
    ...plan,
    name: 'ra-recursing',
    shape: { ...plan.shape, context: 131_072 },
  });
}

/** Path of a tiny model with the tests’ own vocabulary and one of the bundle’s templates. */
export async function modelWithTemplate(name: string): Promise<string> {
  const own = testVocabulary();
  const value = await bundleTemplate(name);
  const metadata = new Map(own.metadata).set('tokenizer.chat_template', { type: 'string', value });
  const plan = planFor('tiny', { vocabulary: { ...own, metadata } });
  return ensureModel(join(CACHE, 'models'), { ...plan, name: `ra-${name}` });
}
