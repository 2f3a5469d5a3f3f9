/** What POST /embeddings and POST /rerank answer, as JSON text. Vectors are written one by one, since a list of them may be long. */
import type { RerankParams } from './requests.js';

export type Encoding = 'float' | 'base64';

/** What is known at the end. */
export interface InputsUsage {
  readonly promptTokens: number;
  /** Indexes of the inputs whose ends were cut off. */
  readonly truncated: readonly number[];
}

/** The text before the first vector. */
export const VECTORS_HEAD = '{"object":"list","data":[';

/** One vector: `index` of its input, from 0 on. */
export function vectorText(index: number, vector: Float32Array, encoding: Encoding): string {
  const text = encoding === 'base64' ? `"${base64Of(vector)}"` : JSON.stringify(Array.from(vector, rounded));
  return `${index === 0 ? '' : ','}{"object":"embedding","index":${index},"embedding":${text}}`;
}

/** The text after the last vector. */
export function vectorsTail(model: string, { promptTokens, truncated }: InputsUsage): string {
  return `],"model":${JSON.stringify(model)},${truncatedText(truncated)}"usage":${usageText(promptTokens)}}`;
}

/**
 * The answer of POST /rerank. `scores`: of the documents, in their order; throws where there are not as many as documents. Jina and
 * llama-server have `usage`; AI SDK's provider of Cohere reads no answer without `meta`.
 */
export function rankedText(
  { model, inputs, top, documents }: RerankParams,
  scores: readonly number[],
  scale: 'logit' | 'probability',
  { promptTokens, truncated }: InputsUsage,
): string {
  if (scores.length !== inputs) throw new RangeError('as many scores as documents');
  const ranked = [...scores.entries()].sort(([a, left], [b, right]) => right - left || a - b).slice(0, top);
  const results = ranked.map(([index, score]) => {
    const text = documents?.[index];
    return { index, relevance_score: score, ...(text !== undefined && { document: { text } }) };
  });
  return (
    `{"object":"list","model":${JSON.stringify(model)},"score_type":"${scale}","results":${JSON.stringify(results)},` +
    `${truncatedText(truncated)}"usage":${usageText(promptTokens)},"meta":{"tokens":{"input_tokens":${promptTokens}}}}`
  );
}

function truncatedText(truncated: readonly number[]): string {
  return truncated.length === 0 ? '' : `"truncated":${JSON.stringify(truncated)},`;
}

function usageText(promptTokens: number): string {
  return `{"prompt_tokens":${promptTokens},"total_tokens":${promptTokens}}`;
}

/** 32-bit numbers, least significant byte first, as clients decode them and as all processors have them that there are binaries for. */
function base64Of(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64');
}

/** Decimals of the numbers of a vector of length 1: half of the text that all digits would take, and no cosine differs in its first nine. */
const DECIMALS = 1e10;

function rounded(value: number): number {
  return Math.round(value * DECIMALS) / DECIMALS;
}
