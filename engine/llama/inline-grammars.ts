import { MaskGrammar, type Standing, type TokenMask } from '../grammar/mask.js';
import { MAX_KEPT, MAX_PROGRAMS } from '../grammar/mask-memory.js';
import { GrammarTooExpensive } from '../grammar/reach.js';
import { sortedTokens, type SortedTokens } from '../grammar/sorted-tokens.js';
import { GrammarError } from './grammar-error.js';
import type { MaskVocabulary } from './masks.js';

/**
 * Places of a grammar that may be visited at once within a step, some 10 ms. A grammar that takes more goes to the mask
 * thread.
 */
const MAX_LOOK = 200_000;

/**
 * Grammars that are evaluated within the step: a sampled token is checked by itself, and where it is refused the mask
 * is made, once for each place in the grammar. The vocabulary is read when the first grammar comes.
 */
export class InlineGrammars {
  readonly #read: () => Promise<MaskVocabulary>;
  #reading: Promise<void> | undefined;
  #tokens: SortedTokens | undefined;
  #failed = false;
  /** By their text; the most recently used is last. */
  readonly #grammars = new Map<string, MaskGrammar>();

  readonly #isServable: (gbnf: string) => boolean;

  /** `read`: called once. `isServable`: whether a grammar is within bounds. */
  constructor(read: () => Promise<MaskVocabulary>, isServable: (gbnf: string) => boolean) {
    this.#read = read;
    this.#isServable = isServable;
  }

  /** Settles when the vocabulary was read; never rejects. Undefined: it was. */
  get pending(): Promise<void> | undefined {
    if (this.#tokens || this.#failed) return undefined;
    this.#reading ??= this.#read().then(
      ({ bytes, starts, ends }) => {
        this.#tokens = sortedTokens(bytes, starts, ends);
      },
      () => {
        this.#failed = true;
      },
    );
    return this.#reading;
  }

  /** Undefined: it is too large, or cannot be read. Not while {@link pending}. */
  grammar(gbnf: string): MaskGrammar | undefined {
    const tokens = this.#tokens;
    if (!tokens || !this.#isServable(gbnf)) return undefined;
    const known = this.#grammars.get(gbnf);
    const grammar: MaskGrammar | undefined =
      known ??
      readable(() =>
        MaskGrammar.of(gbnf, tokens, { work: MAX_LOOK, share: (): number => this.#shareOf(gbnf, grammar) }),
      );
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

/**
 * Undefined too where a grammar's beginning alone takes too much work, as with left recursion, which no grammar made
 * here has.
 */
function readable(read: () => MaskGrammar | undefined): MaskGrammar | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof GrammarTooExpensive) return undefined;
    throw error;
  }
}

/** The state of one reply that is constrained in this way. */
export class InlineConstraint {
  readonly #grammars: InlineGrammars;
  readonly #gbnf: string;
  /** Tokens that the grammar has not read yet. */
  #unread: number[];
  #grammar: MaskGrammar | undefined;
  /** `dead`: the grammar cannot be read, or did not allow a token. */
  #standing: Standing | 'dead' | undefined;

  /** `tokens`: what the root has matched already. */
  constructor(grammars: InlineGrammars, gbnf: string, tokens: readonly number[]) {
    this.#grammars = grammars;
    this.#gbnf = gbnf;
    this.#unread = [...tokens];
  }

  /** As {@link InlineGrammars.pending}. */
  get pending(): Promise<void> | undefined {
    return this.#standing ? undefined : this.#grammars.pending;
  }

  /** Whether the grammar begins with the tokens so far. Not while pending. Throws `GrammarTooExpensive`. */
  matches(): boolean {
    return this.#at() !== 'dead';
  }

  /**
   * The tokens that may come next, where these are found at once; undefined: the caller checks a sampled token instead.
   * Throws `GrammarTooExpensive`.
   */
  narrow(): TokenMask | undefined {
    const { grammar, standing } = this.#here();
    return grammar.isNarrow(standing) ? this.mask() : undefined;
  }

  /** Throws `GrammarTooExpensive`. */
  allows(token: number): boolean {
    const { grammar, standing } = this.#here();
    return grammar.allows(standing, token);
  }

  /** Throws `GrammarTooExpensive`. */
  mask(): TokenMask {
    const { grammar, standing } = this.#here();
    return grammar.mask(standing);
  }

  /** This token, which is no end token, was sampled. */
  accept(token: number): void {
    this.#unread.push(token);
  }

  #here(): { readonly grammar: MaskGrammar; readonly standing: Standing } {
    const standing = this.#at();
    if (!this.#grammar || standing === 'dead') throw new GrammarError();
    return { grammar: this.#grammar, standing };
  }

  #at(): Standing | 'dead' {
    this.#grammar ??= this.#grammars.grammar(this.#gbnf);
    const grammar = this.#grammar;
    let standing = this.#standing ?? grammar?.start ?? 'dead';
    for (const token of this.#unread) {
      if (standing !== 'dead') standing = grammar?.after(standing, token) ?? 'dead';
    }
    this.#unread = [];
    this.#standing = standing;
    return standing;
  }
}
