import { loadBareTokenizer, type TokenizerModel } from './bare-vocabulary.js';
import { checkModelFile } from './model-file.js';
import { CALIBRATION_KEY } from '../prompt/labels.js';
import type { InputMarks, Vocabulary } from '../prompt/tokens.js';
import { createHash } from 'node:crypto';
import type { GgufMetadata } from 'node-llama-cpp';

/**
 * Loads only a GGUF's tokenizer. Works in several worker threads at once. Throws, with a line for an operator, if the
 * file cannot be read as a model. The caller owns the result.
 */
export async function loadVocabulary(file: string): Promise<Vocabulary> {
  const model = await loadTokenizerModel(file);
  return vocabularyOf(
    model,
    once(() => model.dispose()),
  );
}

/** What a vocabulary is read from. As {@link loadVocabulary}. */
export async function loadTokenizerModel(file: string): Promise<TokenizerModel> {
  const checked = checkModelFile(file);
  if (checked.kind === 'bad') throw new Error(checked.problem);
  return await loadBareTokenizer(file);
}

/** The vocabulary of a model that is loaded already; by default `dispose` leaves it to its owner. */
export function vocabularyOf(
  model: TokenizerModel,
  dispose: () => Promise<void> = () => Promise.resolve(),
): Vocabulary {
  const { metadata } = model.fileInfo;
  const { tokenizer } = metadata;
  const texts = tokenizer.ggml.tokens;
  const bos = model.tokens.bos;
  return {
    tokenize: (text, special) => {
      const tokens = model.tokenize(text, special);
      return tokens instanceof Uint32Array ? tokens : Uint32Array.from(tokens);
    },
    hash: tokenizerHash(metadata),
    ...fileTemplates(metadata),
    bos: bos === null ? undefined : { token: bos, text: model.tokens.bosString ?? '' },
    eosText: model.tokens.eosString ?? '',
    addBos: model.tokens.shouldPrependBosToken,
    marks: inputMarks(model),
    specialTexts: specialTexts(model, texts),
    size: texts.length,
    width: widthOf(metadata),
    longestTokenBytes: longestTokenBytes(model, texts),
    calibration: valueAt(metadata, CALIBRATION_KEY),
    dispose,
  };
}

/** Of the architecture's keys. */
function widthOf(metadata: GgufMetadata): number {
  const { architecture } = metadata.general;
  const own =
    valueAt(metadata, `${architecture}.embedding_length_out`) ?? valueAt(metadata, `${architecture}.embedding_length`);
  return typeof own === 'number' ? own : 0;
}

/** Vocabularies whose inputs end with a separator unless the file says otherwise, as llama.cpp knows them: all of BERT's, and by name. */
const SEPARATED: ReadonlySet<unknown> = new Set(['jina-v1-en', 'jina-v2-code', 'roberta-bpe']);

/** As llama_tokenize and llama-server's format_prompt_rerank have it. */
function inputMarks({ fileInfo: { metadata }, vocabularyType, tokens }: TokenizerModel): InputMarks {
  const { bos, eos, sep, shouldPrependBosToken, shouldAppendEosToken } = tokens;
  const some = (token: number | null, wanted = true): number[] => (wanted && token !== null ? [token] : []);
  const separates =
    valueAt(metadata, 'tokenizer.ggml.add_sep_token') ??
    (vocabularyType === 'wpm' || SEPARATED.has(metadata.tokenizer.ggml.pre));
  const end = some(eos ?? sep, shouldAppendEosToken);
  const pair = {
    before: some(bos, shouldPrependBosToken),
    between: [...end, ...some(sep, separates === true)],
    after: end,
  };
  const { 'chat_template.rerank': template } = metadata.tokenizer as { readonly 'chat_template.rerank'?: unknown };
  const pairTemplate = template ?? valueAt(metadata, 'tokenizer.chat_template.rerank');
  const around =
    vocabularyType === 'wpm'
      ? { before: some(bos), after: some(sep) }
      : { before: some(bos, shouldPrependBosToken), after: some(eos, shouldAppendEosToken) };
  return { ...around, pair, pairTemplate: typeof pairTemplate === 'string' ? pairTemplate : undefined };
}

/** From the loaded model rather than the file's `token_type`: llama.cpp makes control tokens of some that the file marks as normal. */
function specialTexts(model: TokenizerModel, texts: readonly string[]): readonly string[] {
  return texts.filter((_, token) => {
    const attributes = model.getTokenAttributes(token);
    return attributes.control || attributes.userDefined || attributes.unknown;
  });
}

/** Other kinds of vocabulary merge white space or characters before they tokenize, so there is no bound. */
function longestTokenBytes(model: TokenizerModel, texts: readonly string[]): number {
  const type = model.vocabularyType;
  if (type !== 'bpe' && type !== 'spm') return Infinity;
  return texts.reduce((longest, text) => Math.max(longest, Buffer.byteLength(text)), 1);
}

/** The metadata's values, which are nested objects according to the dots of their keys. */
export function valueAt(metadata: unknown, key: string): unknown {
  return key
    .split('.')
    .reduce((here, name) => (here as Readonly<Record<string, unknown>> | undefined)?.[name], metadata);
}

function once(fn: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | undefined;
  return () => (done ??= fn());
}

/** SHA-256 of all that a file has of its tokenizer, its chat template included, hex. */
export function tokenizerHash({ tokenizer }: Pick<GgufMetadata, 'tokenizer'>): string {
  const text = JSON.stringify(tokenizer, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
  return createHash('sha256').update(text).digest('hex');
}

/** The chat templates of a file; `toolTemplate` is for conversations that offer tools: of Hermes and Command R models, for example. */
export function fileTemplates({ tokenizer }: Pick<GgufMetadata, 'tokenizer'>) {
  const { chat_template: chatTemplate } = tokenizer;
  // The keys are nested by their dots, but not under a key that has a value of its own.
  const { 'chat_template.tool_use': toolTemplate } = tokenizer as { readonly 'chat_template.tool_use'?: unknown };
  return { chatTemplate, toolTemplate: typeof toolTemplate === 'string' ? toolTemplate : undefined };
}
