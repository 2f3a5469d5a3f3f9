import type { LlamaModel, Token } from 'node-llama-cpp';
import { isBounded, MAX_GRAMMAR_CHARACTERS } from '../grammar/gbnf.js';
import { InlineGrammars } from './inline-grammars.js';
import { maskVocabulary } from './mask-vocabulary.js';
import { Masks, type MaskConstraint } from './masks.js';

/**
 * Grammars on the addon's own classes (node-llama-cpp's bindings/AddonTypes.d.ts, not exported), which both decoders
 * use: the public classes can neither continue an existing text nor be created synchronously.
 *
 * llama.cpp aborts the process if it must sample when nothing can follow, or gets an end token that is not allowed. So
 * a state that once rejected a token is never used again.
 */

/** One reply's state in its grammar. Freed by the garbage collector. */
export interface GrammarState {
  readonly __grammarState: never;
}

interface Bindings {
  readonly AddonGrammar: new (
    gbnf: string,
    options: { readonly addonExports: Bindings; readonly rootRuleName: string },
  ) => object;
  readonly AddonGrammarEvaluationState: {
    new (model: unknown, grammar: object): GrammarState;
    /** A copy. */
    new (state: GrammarState): GrammarState;
  };
  readonly AddonSampler: {
    /** Throws if the grammar does not allow the token; the state is unusable after that. */
    acceptGrammarEvaluationStateToken(state: GrammarState, token: number): void;
  };
}

/** Grammars kept compiled, the last ones used. */
export const MAX_GRAMMARS = 64;
/** The largest grammar that is compiled: a little more than the largest one made, which grammarAfter lengthens. */
const MAX_COMPILED_CHARACTERS = MAX_GRAMMAR_CHARACTERS + 8192;

/**
 * Stacks of a grammar times tokens of the vocabulary from which on masks are used: for a rejected token llama.cpp
 * checks each stack against nearly every token, some 3 ns each, and everything in the same step waits for it.
 */
const EXPENSIVE = 2_500_000;

type TakenState =
  | { readonly kind: 'state'; readonly state: GrammarState }
  /** The grammar does not begin with these tokens. */
  | { readonly kind: 'mismatch' }
  /** No grammar, or one that is too large. */
  | { readonly kind: 'invalid' };

/** One model's grammars, compiled once. */
export class Grammars {
  /** Tokens without a text of their own, which do not end a reply: a grammar cannot match them. */
  readonly #controlTokens: Uint32Array;
  readonly #bindings: Bindings;
  readonly #model: LlamaModel;
  readonly #addonModel: unknown;
  readonly #masks: Masks;
  /** For a decoder that can ask it within a step. */
  readonly inline: InlineGrammars;
  /** States in which nothing was read yet, by their grammar; the one used last is last. */
  readonly #compiled = new Map<string, GrammarState>();

  private constructor(bindings: Bindings, model: LlamaModel, addonModel: unknown) {
    this.#bindings = bindings;
    this.#model = model;
    this.#addonModel = addonModel;
    this.#controlTokens = controlTokens(model);
    this.#masks = new Masks(() => maskVocabulary(model));
    this.inline = new InlineGrammars(() => maskVocabulary(model), isServable);
  }

  /** The control tokens that may not come in a reply with these markers. */
  controlTokensBut(markers: readonly string[]): Uint32Array {
    if (markers.length === 0) return this.#controlTokens;
    const names = this.#model.fileInfo.metadata.tokenizer.ggml.tokens;
    return this.#controlTokens.filter((token) => !markers.includes(names[token] ?? ''));
  }

  /** Undefined: this version of the addon does not look as expected. */
  static of(model: LlamaModel): Grammars | undefined {
    const inner = model as unknown as {
      readonly _model?: unknown;
      readonly _llama?: { readonly _bindings?: Partial<Bindings> };
    };
    const bindings = inner._llama?._bindings;
    if (inner._model === undefined || !isComplete(bindings)) return undefined;
    return new Grammars(bindings, model, inner._model);
  }

  isEnd(token: number): boolean {
    return this.#model.isEogToken(token as Token);
  }

  /** Grammars kept now. */
  get size(): number {
    return this.#compiled.size;
  }

  /**
   * Masks for one reply, whose root has matched `tokens`; undefined: the grammar is cheap enough for llama.cpp. Only
   * for bounded grammars.
   */
  masks(gbnf: string, tokens: readonly number[], stacks: number): MaskConstraint | undefined {
    return this.isExpensive(stacks) && isServable(gbnf) ? this.#masks.constrain(gbnf, tokens) : undefined;
  }

  isExpensive(stacks: number): boolean {
    return stacks * this.#model.fileInfo.metadata.tokenizer.ggml.tokens.length >= EXPENSIVE;
  }

  /** A new state for one reply, whose root has matched `tokens`. */
  take(gbnf: string, tokens: readonly number[]): TakenState {
    const fresh = this.#fresh(gbnf);
    if (!fresh) return { kind: 'invalid' };
    const { AddonGrammarEvaluationState: State, AddonSampler: sampler } = this.#bindings;
    const state = new State(fresh);
    if (tokens.some((token) => this.#model.isEogToken(token as Token))) return { kind: 'mismatch' };
    try {
      for (const token of tokens) sampler.acceptGrammarEvaluationStateToken(state, token);
    } catch {
      return { kind: 'mismatch' };
    }
    return { kind: 'state', state };
  }

  #fresh(gbnf: string): GrammarState | undefined {
    const known = this.#compiled.get(gbnf);
    this.#compiled.delete(gbnf);
    const state = known ?? this.#compile(gbnf);
    if (!state) return undefined;
    this.#compiled.set(gbnf, state);
    if (this.#compiled.size > MAX_GRAMMARS) {
      for (const oldest of this.#compiled.keys()) {
        this.#compiled.delete(oldest);
        break;
      }
    }
    return state;
  }

  #compile(gbnf: string): GrammarState | undefined {
    if (!isServable(gbnf)) return undefined;
    const { AddonGrammar, AddonGrammarEvaluationState: State } = this.#bindings;
    try {
      const grammar = new AddonGrammar(gbnf, { addonExports: this.#bindings, rootRuleName: 'root' });
      return new State(this.#addonModel, grammar);
    } catch {
      return undefined;
    }
  }
}

function isServable(gbnf: string): boolean {
  return gbnf.length <= MAX_COMPILED_CHARACTERS && isBounded(gbnf);
}

function isComplete(bindings: Partial<Bindings> | undefined): bindings is Bindings {
  return (
    typeof bindings?.AddonGrammar === 'function' &&
    typeof bindings.AddonGrammarEvaluationState === 'function' &&
    typeof bindings.AddonSampler?.acceptGrammarEvaluationStateToken === 'function'
  );
}

function controlTokens(model: LlamaModel): Uint32Array {
  const control: number[] = [];
  for (const token of model.iterateAllTokens()) {
    if (model.getTokenAttributes(token).control && !model.isEogToken(token)) control.push(token);
  }
  return Uint32Array.from(control);
}
