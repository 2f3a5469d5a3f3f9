import type { LlamaModel, Token } from 'node-llama-cpp';
import { isBounded, MAX_GRAMMAR_CHARACTERS } from '../grammar/gbnf.js';
import { MaskGrammar, sortedTokens, type SortedTokens, type TokenBits } from '../grammar/mask.js';
import { MAX_KEPT, MAX_PROGRAMS } from '../grammar/mask-memory.js';
import { GrammarTooExpensive } from '../grammar/reach.js';
import { EngineFault } from '../scheduler/faults.js';
import type { AddonPlaces } from './addon.js';
import { FollowedMasks } from './followed-masks.js';
import { Masks, type MaskConstraint, type MaskVocabulary } from './masks.js';
import { controlText, tokenBytes } from './model-tokens.js';

/** The largest grammar that is used: a little more than the largest one made, which grammarAfter lengthens. */
const MAX_USED_CHARACTERS = MAX_GRAMMAR_CHARACTERS + 8192;

/**
 * Stacks of a grammar times tokens of the vocabulary from which on the thread makes its masks: the first mask of each place in it
 * visits up to so many pairs, some 3 ns each, and everything in the same step waits for it.
 */
const EXPENSIVE = 2_500_000;

/** Places of a grammar that may be visited at once within a step, some 10 ms. A grammar that takes more goes to the mask thread. */
const MAX_LOOK = 200_000;

/** Tokens that are read in one go, below a millisecond: the process answers its supervisor meanwhile. */
const AT_ONCE = 1000;

/** What grammars read of a model's tokens. */
export interface GrammarVocabulary extends MaskVocabulary {
  /** Tokens without a text of their own that do not end a reply. */
  readonly control: Uint32Array;
  /** Of each token, as the model's file has it. */
  readonly names: readonly string[];
}

/**
 * One model's grammars. Those that are evaluated within the step are kept here: a sampled token is checked by itself, and where it is
 * refused the mask is made, once for each place in the grammar. Expensive ones are evaluated by the thread of {@link Masks}.
 */
export class Grammars {
  readonly #vocabulary: GrammarVocabulary;
  readonly #ends: ReadonlySet<number>;
  readonly #tokens: SortedTokens;
  readonly #masks: Masks;
  /** By the names of the markers. */
  readonly #textTokens = new Map<string, TextTokens>();
  /** By their text; the most recently used is last. */
  readonly #grammars = new Map<string, MaskGrammar>();

  readonly followed: FollowedMasks;

  /** `newPlaces`: as {@link FollowedMasks} has it. */
  constructor(vocabulary: GrammarVocabulary, newPlaces?: () => AddonPlaces) {
    const { bytes, starts, ends } = vocabulary;
    this.followed = new FollowedMasks(newPlaces);
    this.#vocabulary = vocabulary;
    this.#ends = new Set(ends);
    this.#tokens = sortedTokens(bytes, starts, ends);
    this.#masks = new Masks({ bytes, starts, ends }, this.followed);
  }

  /** Reads the vocabulary of `model`, once a start, beside the event loop's other work. */
  static async of(model: LlamaModel, newPlaces?: () => AddonPlaces): Promise<Grammars> {
    return new Grammars(await vocabularyOf(model), newPlaces);
  }

  /** The tokens that may come in a reply with these markers: no other control tokens. */
  textTokens(markers: readonly string[]): TextTokens {
    const key = markers.join('\0');
    let found = this.#textTokens.get(key);
    if (found) return found;
    const { control, names, starts } = this.#vocabulary;
    const bits = new Uint32Array(Math.ceil((starts.length - 1) / 32)).fill(~0);
    for (const token of control)
      if (!markers.includes(names[token] ?? '')) bits[token >> 5] = (bits[token >> 5] ?? 0) & ~(1 << (token & 31));
    this.#textTokens.set(key, (found = new TextTokens(bits)));
    return found;
  }

  isEnd(token: number): boolean {
    return this.#ends.has(token);
  }

  isExpensive(stacks: number): boolean {
    return stacks * this.#vocabulary.names.length >= EXPENSIVE;
  }

  /**
   * Masks of the thread for one reply, whose root has matched `tokens`; undefined if the grammar is cheap enough for the step, or cannot
   * be used.
   */
  masks(gbnf: string, tokens: readonly number[], stacks: number): MaskConstraint | undefined {
    return this.isExpensive(stacks) && isUsable(gbnf) ? this.#masks.constrain(gbnf, tokens) : undefined;
  }

  /** Undefined if it is too large, or cannot be read. */
  grammar(gbnf: string): MaskGrammar | undefined {
    if (!isUsable(gbnf)) return undefined;
    const known = this.#grammars.get(gbnf);
    const share = (): number => this.#shareOf(gbnf, grammar);
    const limits = { work: MAX_LOOK, share };
    const grammar: MaskGrammar | undefined = known ?? readable(() => MaskGrammar.of(gbnf, this.#tokens, limits));
    this.#grammars.delete(gbnf);
    if (!grammar) return undefined;
    this.#grammars.set(gbnf, grammar);
    if (!known) this.#fit();
    return grammar;
  }

  /** A reply may continue with a grammar that is no longer kept, which then gets the smallest share. */
  #shareOf(gbnf: string, grammar: MaskGrammar | undefined): number {
    return this.#grammars.get(gbnf) === grammar ? 1 / this.#grammars.size : 0;
  }

  /** A grammar was added: the least recently used ones are dropped, and the shares of the others shrink. */
  #fit(): void {
    let programs = [...this.#grammars.values()].reduce((sum, { programBytes }) => sum + programBytes, 0);
    for (const [gbnf, grammar] of this.#grammars) {
      if (this.#grammars.size === 1 || (this.#grammars.size <= MAX_KEPT && programs <= MAX_PROGRAMS)) break;
      this.#grammars.delete(gbnf);
      programs -= grammar.programBytes;
      grammar.fit();
    }
    for (const grammar of this.#grammars.values()) grammar.fit();
  }
}

/** The tokens that are texts where a grammar constrains replies: all but some control tokens. */
export class TextTokens {
  readonly all: TokenBits;
  /** By the grammars' masks: these without the others, the same object each time. */
  readonly #of = new WeakMap<TokenBits, TokenBits>();

  constructor(bits: TokenBits) {
    this.all = bits;
  }

  /** Throws a fault where there are none. */
  of(mask: TokenBits): TokenBits {
    let made = this.#of.get(mask);
    if (made) return made;
    made = mask.map((word, i) => word & (this.all[i] ?? 0));
    if (!made.some(Boolean)) throw new EngineFault('no token goes on with the grammar');
    this.#of.set(mask, made);
    return made;
  }
}

function isUsable(gbnf: string): boolean {
  return gbnf.length <= MAX_USED_CHARACTERS && isBounded(gbnf);
}

/** Undefined too where a grammar's beginning alone takes too much work, as with left recursion, which no grammar made here has. */
function readable(read: () => MaskGrammar | undefined): MaskGrammar | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof GrammarTooExpensive) return undefined;
    throw error;
  }
}

/** Control tokens go by their names, as in llama.cpp. */
async function vocabularyOf(model: LlamaModel): Promise<GrammarVocabulary> {
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
  const controls: number[] = [];
  for (let id = 0; id < texts.tokens.length; id++) {
    if (id % AT_ONCE === AT_ONCE - 1) await new Promise(setImmediate);
    const token = id as Token;
    const control = controlOf(token);
    all.push(control === undefined ? bytesOf(token) : Buffer.from(control));
    if (model.isEogToken(token)) ends.push(token);
    else if (model.getTokenAttributes(token).control) controls.push(token);
  }
  const starts = new Uint32Array(all.length + 1);
  for (const [i, { length }] of all.entries()) starts[i + 1] = (starts[i] ?? 0) + length;
  const bytes = new Uint8Array(starts[all.length] ?? 0);
  for (const [i, each] of all.entries()) bytes.set(each, starts[i]);
  return { bytes, starts, ends: Uint32Array.from(ends), control: Uint32Array.from(controls), names: texts.tokens };
}
