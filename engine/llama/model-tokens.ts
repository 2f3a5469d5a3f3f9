/** What jobs need to know of a model's tokens, from its file alone. */
import type { GgufMetadata } from 'node-llama-cpp';
import { controlText, tokenBytes, type VocabularyTexts } from '../output/token-bytes.js';
import type { Vocabulary } from '../prompt/tokens.js';
import type { ScoreScale } from '../protocol/setup.js';
import type { ModelTokens } from '../scheduler/job.js';
import { LoadFailure } from './load-failure.js';
import { loadTokenizerModel, valueAt, vocabularyOf } from './vocabulary.js';

/** The tokens of a model whose weights are elsewhere. Loaded once and kept until the process ends. */
export interface TokenFile {
  readonly tokens: ModelTokens;
  readonly vocabulary: Vocabulary;
  /** `general.name`, or the architecture if the file has no name. */
  readonly name: string;
  /** What llama.cpp makes of a pair, if the model is a reranker. */
  readonly scores: ScoreScale;
  /** Tokens that the model was trained for; absent: not in the file. */
  readonly trainedContext?: number;
}

/** Rejects with a {@link LoadFailure}. A file without weights will do. */
export async function loadTokenFile(file: string): Promise<TokenFile> {
  const model = await loadTokenizerModel(file).catch((error: unknown) => {
    throw new LoadFailure(error instanceof Error ? error.message : 'the file cannot be loaded');
  });
  const { metadata } = model.fileInfo;
  const trained = valueAt(metadata, `${metadata.general.architecture}.context_length`);
  const texts = vocabularyTexts(metadata, (token) => model.detokenize([token]));
  return {
    tokens: modelTokens(texts, (token) => model.isEogToken(token)),
    vocabulary: vocabularyOf(model),
    name: metadata.general.name ?? metadata.general.architecture,
    scores: scoresOf(metadata.general.architecture),
    ...(typeof trained === 'number' && { trainedContext: trained }),
  };
}

/** Architectures whose last layer makes probabilities of a reranker's scores (llama.cpp's build_pooling). */
const WITH_SOFTMAX: ReadonlySet<string> = new Set(['qwen3', 'qwen3vl']);

/** What llama.cpp's scores of an architecture's rerankers are. */
export function scoresOf(architecture: string): ScoreScale {
  return WITH_SOFTMAX.has(architecture) ? 'probability' : 'logit';
}

/** One line if seats are longer than what the model was trained for, past which replies get worse without an error. */
export function beyondTrained(contextPerSeat: number, trained: number | undefined): string[] {
  if (trained === undefined || contextPerSeat <= trained) return [];
  const [asked, most] = [contextPerSeat, trained].map((tokens) => tokens.toLocaleString('en'));
  return [
    `contextPerSeat is ${asked} tokens, and the model was trained for ${most}: replies past these may be useless`,
  ];
}

/** `detokenize`: the text of a token of a vocabulary whose tokens have no texts of their own. */
export function vocabularyTexts(metadata: GgufMetadata, detokenize: (token: number) => string): VocabularyTexts {
  const { ggml } = metadata.tokenizer;
  return { model: ggml.model, tokens: ggml.tokens, types: ggml.token_type, detokenize };
}

/** `tokenize`: of a text in which no control token is meant. */
export function modelTokens(
  texts: VocabularyTexts,
  isEnd: (token: number) => boolean,
  tokenize?: (text: string) => Iterable<number>,
): ModelTokens {
  const more = tokenize && { tokenize: (text: string) => Uint32Array.from(tokenize(text)) };
  return { isEnd, bytes: tokenBytes(texts), control: controlText(texts), ...more };
}
