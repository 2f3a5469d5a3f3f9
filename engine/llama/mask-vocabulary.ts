import type { LlamaModel, Token } from 'node-llama-cpp';
import { controlText, tokenBytes } from '../output/token-bytes.js';
import type { MaskVocabulary } from './masks.js';

/** Tokens that are read in one go, below a millisecond: replies are running meanwhile. */
const AT_ONCE = 1000;

/** What grammars read of a model's tokens: control tokens go by their names, as in llama.cpp. */
export async function maskVocabulary(model: LlamaModel): Promise<MaskVocabulary> {
  const { ggml } = model.fileInfo.metadata.tokenizer;
  const texts = {
    model: ggml.model,
    tokens: ggml.tokens,
    types: ggml.token_type,
    detokenize: (token: number) => model.detokenize([token as Token]),
  };
  // Not the ones of the engine, which would keep every token's from then on.
  const bytesOf = tokenBytes(texts);
  const controlOf = controlText(texts);
  const all: Uint8Array[] = [];
  const ends: number[] = [];
  for (let token = 0; token < texts.tokens.length; token++) {
    if (token % AT_ONCE === AT_ONCE - 1) await new Promise(setImmediate);
    const control = controlOf(token);
    all.push(control === undefined ? bytesOf(token) : Buffer.from(control));
    if (model.isEogToken(token as Token)) ends.push(token);
  }
  const starts = new Uint32Array(all.length + 1);
  for (const [i, { length }] of all.entries()) starts[i + 1] = (starts[i] ?? 0) + length;
  const bytes = new Uint8Array(starts[all.length] ?? 0);
  for (const [i, each] of all.entries()) bytes.set(each, starts[i]);
  return { bytes, starts, ends: Uint32Array.from(ends) };
}
