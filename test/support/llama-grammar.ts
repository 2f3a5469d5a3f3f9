import type { LlamaModel, Token } from 'node-llama-cpp';
import { isBounded, MAX_GRAMMAR_CHARACTERS } from '../../engine/grammar/gbnf.js';

/** One reply's state in its grammar. Freed by the garbage collector. */
export interface GrammarState {
  readonly __grammarState: never;
}

interface Bindings {
  readonly AddonGrammar: new (
    gbnf: string,
    options: { readonly addonExports: Bindings; readonly rootRuleName: string },
  ) => object;
  readonly AddonGrammarEvaluationState: new (model: unknown, grammar: object) => GrammarState;
  readonly AddonSampler: {
    /** Throws if the grammar does not allow the token; the state is unusable after that. */
    acceptGrammarEvaluationStateToken(state: GrammarState, token: number): void;
  };
}

type TakenState =
  | { readonly kind: 'state'; readonly state: GrammarState }
  /** The grammar does not begin with these tokens. */
  | { readonly kind: 'mismatch' }
  /** No grammar, or one that is too large. */
  | { readonly kind: 'invalid' };

/**
 * llama.cpp's own state of a grammar, which the product's grammars are compared with, on the addon's classes (node-llama-cpp's
 * bindings/AddonTypes.d.ts, not exported): the public classes cannot continue an existing text. `tokens`: what the root has matched.
 *
 * llama.cpp aborts the process if it must sample when nothing can follow, or gets an end token that is not allowed. So
 * a state that once rejected a token is never used again.
 */
export function grammarState(model: LlamaModel, gbnf: string, tokens: readonly number[]): TakenState {
  const { _model: inner, _llama: llama } = model as unknown as {
    readonly _model: unknown;
    readonly _llama: { readonly _bindings: Bindings };
  };
  const { AddonGrammar, AddonGrammarEvaluationState: State, AddonSampler: sampler } = llama._bindings;
  // A little more than the largest grammar that is made, which grammarAfter lengthens: llama.cpp has no bound of its own.
  if (gbnf.length > MAX_GRAMMAR_CHARACTERS + 8192 || !isBounded(gbnf)) return { kind: 'invalid' };
  let state: GrammarState;
  try {
    state = new State(inner, new AddonGrammar(gbnf, { addonExports: llama._bindings, rootRuleName: 'root' }));
  } catch {
    return { kind: 'invalid' };
  }
  if (tokens.some((token) => model.isEogToken(token as Token))) return { kind: 'mismatch' };
  try {
    for (const token of tokens) sampler.acceptGrammarEvaluationStateToken(state, token);
  } catch {
    return { kind: 'mismatch' };
  }
  return { kind: 'state', state };
}

/** Tokens without a text of their own that do not end a reply and are none of `markers`: a grammar cannot match them. */
export function controlTokens(model: LlamaModel, markers: readonly string[]): Uint32Array {
  const names = model.fileInfo.metadata.tokenizer.ggml.tokens;
  const control = Array.from(model.iterateAllTokens()).filter(
    (token) =>
      model.getTokenAttributes(token).control && !model.isEogToken(token) && !markers.includes(names[token] ?? ''),
  );
  return Uint32Array.from(control);
}
