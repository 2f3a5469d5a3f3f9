import { getLlama, LlamaLogLevel, LlamaVocabularyType, type Llama, type LlamaModel, type Token } from 'node-llama-cpp';
import { checkModelFile } from './model-file.js';
import { CALIBRATION_KEY } from '../prompt/calibration.js';
import type { Vocabulary } from '../prompt/tokens.js';

/** Starting the backend takes about as long as loading a vocabulary, so a thread does it once, and keeps it. */
let backend: Promise<Llama> | undefined;

/**
 * Loads a GGUF's tokenizer and nothing else of it. Works in worker threads, several at once. Throws, with a line fit for an
 * operator, when the file cannot be read as a model. The caller owns the result.
 */
export async function loadVocabulary(file: string): Promise<Vocabulary> {
  const checked = checkModelFile(file);
  if (checked.kind === 'bad') throw new Error(checked.problem);
  // Nothing native may write to the console. The engine says why llama.cpp refuses a file.
  backend ??= getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.disabled });
  const llama = await backend;
  const model = await llama.loadModel({ modelPath: file, vocabOnly: true });
  return vocabularyOf(
    model,
    once(() => model.dispose()),
  );
}

/** The vocabulary of a model that is loaded already; by default `dispose` leaves it to its owner. */
export function vocabularyOf(model: LlamaModel, dispose: () => Promise<void> = () => Promise.resolve()): Vocabulary {
  const { metadata } = model.fileInfo;
  const { tokenizer } = metadata;
  const texts = tokenizer.ggml.tokens;
  const bos = model.tokens.bos;
  return {
    tokenize: (text, special) => Uint32Array.from(model.tokenize(text, special)),
    chatTemplate: tokenizer.chat_template,
    bos: bos === null ? undefined : { token: bos, text: model.tokens.bosString ?? '' },
    eosText: model.tokens.eosString ?? '',
    addBos: model.tokens.shouldPrependBosToken,
    specialTexts: specialTexts(model, texts),
    size: texts.length,
    longestTokenBytes: longestTokenBytes(model, texts),
    calibration: valueAt(metadata, CALIBRATION_KEY),
    dispose,
  };
}

/** From the loaded model and not from the file's `token_type`: llama.cpp makes control tokens of some that the file calls normal. */
function specialTexts(model: LlamaModel, texts: readonly string[]): readonly string[] {
  return texts.filter((_, token) => {
    const attributes = model.getTokenAttributes(token as Token);
    return attributes.control || attributes.userDefined || attributes.unknown;
  });
}

/** Other kinds of vocabulary fold white space or characters together before they tokenize, so no bound holds there. */
function longestTokenBytes(model: LlamaModel, texts: readonly string[]): number {
  const type = model.vocabularyType;
  if (type !== LlamaVocabularyType.bpe && type !== LlamaVocabularyType.spm) return Infinity;
  return texts.reduce((longest, text) => Math.max(longest, Buffer.byteLength(text)), 1);
}

/** The metadata's values, which come as objects in objects by the dots of their keys. */
function valueAt(metadata: unknown, key: string): unknown {
  return key
    .split('.')
    .reduce((here, name) => (here as Readonly<Record<string, unknown>> | undefined)?.[name], metadata);
}

function once(fn: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | undefined;
  return () => (done ??= fn());
}
