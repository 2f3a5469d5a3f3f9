/** What jobs need to know of a model's tokens, from its file alone. */
import type { GgufMetadata } from 'node-llama-cpp';
import type { Vocabulary } from '../prompt/tokens.js';
import type { ScoreScale } from '../protocol/setup.js';
import type { ModelTokens } from '../scheduler/job.js';
import { LoadFailure } from './load-failure.js';
import { loadTokenizerModel, valueAt, vocabularyOf } from './vocabulary.js';

/** The tokens of a model whose weights are elsewhere. Loaded once and kept until the process ends. */
export interface TokenFile {
  readonly tokens: ModelTokens;
  readonly vocabulary: Vocabulary;
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

/** `tokenizer.ggml.token_type` values that matter here (llama.cpp's llama_token_type). */
const TOKEN_TYPE = { control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

const NOTHING = new Uint8Array(0);

export interface VocabularyTexts {
  /** `tokenizer.ggml.model`: gpt2 (byte-level BPE), llama (SentencePiece), others. */
  readonly model: string;
  readonly tokens: readonly string[];
  /** `tokenizer.ggml.token_type`; some files have none. */
  readonly types: readonly number[] | undefined;
  /** Text of a token of a vocabulary that is neither of the two. */
  detokenize(token: number): string;
}

/**
 * Token -> bytes, each computed once. Control tokens and ids outside the vocabulary have none. llama.cpp's detokenizer returns only whole
 * strings, in which a token that is part of a character has already become U+FFFD.
 */
export function tokenBytes(vocabulary: VocabularyTexts): (token: number) => Uint8Array {
  const known = new Array<Uint8Array | undefined>(vocabulary.tokens.length);
  const bytesOf = (token: number): Uint8Array => {
    const text = vocabulary.tokens[token];
    const type = vocabulary.types?.[token];
    if (text === undefined || type === TOKEN_TYPE.control || type === TOKEN_TYPE.unused) return NOTHING;
    if (type === TOKEN_TYPE.userDefined) return Buffer.from(text);
    if (type === TOKEN_TYPE.byte) return Uint8Array.of(Number.parseInt(text.slice(3, 5), 16));
    if (vocabulary.model === 'gpt2') return fromByteLevel(text);
    if (vocabulary.model === 'llama') return Buffer.from(text.replaceAll('\u2581', ' '));
    return Buffer.from(vocabulary.detokenize(token));
  };
  return (token) => (known[token] ??= bytesOf(token));
}

/** Token -> the name of a control token; undefined for all others. */
export function controlText({ tokens, types }: VocabularyTexts): (token: number) => string | undefined {
  return (token) => (types?.[token] === TOKEN_TYPE.control ? tokens[token] : undefined);
}

/** GPT-2's printable substitutes for bytes: printable Latin-1 represents itself, the other 68 bytes are U+0100 onwards. */
const BYTE_OF: ReadonlyMap<number, number> = (() => {
  const map = new Map<number, number>();
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    map.set(printable ? byte : next++, byte);
  }
  return map;
})();

function fromByteLevel(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const byte = BYTE_OF.get(character.codePointAt(0) ?? 0);
    // A character that is no substitute was added to the vocabulary as plain text.
    if (byte === undefined) bytes.push(...Buffer.from(character));
    else bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}
