import { hasBit, type MaskGrammar, type Standing, type TokenBits } from '../grammar/mask.js';
import type { AddonStanding } from './addon.js';
import type { Grammars, TextTokens } from './grammars.js';
import type { MaskConstraint } from './masks.js';

/** What it needs of {@link Grammars}. */
export type ConstraintGrammars = Pick<Grammars, 'textTokens' | 'grammar' | 'masks' | 'isEnd' | 'followed'>;

/** A grammar cannot be used. Its name is the reason that a fault gives. */
export class GrammarError extends Error {
  override readonly name = 'GrammarError';

  constructor() {
    super('the grammar cannot be used');
  }
}

/** How the next token is picked. */
export interface TokenLimit {
  /** Among these, freely where more than few characters may follow; where it is one, it is that. */
  readonly first: TokenBits;
  /** A picked token outside of this mask is picked again from it; undefined if the first pick stands. */
  readonly then?: TokenBits | undefined;
  /** Whether what is picked may be refused ({@link GrammarConstraint.refused}). */
  readonly checked: boolean;
  /** From where a run may follow the reply through the tokens after this one. */
  readonly from?: AddonStanding | undefined;
}

/**
 * What sampling one token within a step may take, ms: several times what a grammar that is not expensive takes. Replies of a step
 * are sampled side by side, so a token's time has the work for the other grammars of the step in it, and this bounds the step.
 */
const TOKEN_MS = 20;
/** By how much a reply's tokens may take longer together, ms; one that takes less makes up for it. */
const OVER_MS = 40;

/**
 * What constrains one reply now: a grammar that is evaluated within the step, or masks of a thread where that would be expensive.
 * Which grammars are is known beforehand from their stacks; one whose tokens take long nevertheless goes over to masks, since all
 * that share the step wait for it.
 */
export class GrammarConstraint {
  readonly #grammars: ConstraintGrammars;
  /** Tokens that may be sampled while a grammar constrains the reply. */
  readonly #textTokens: TextTokens;
  #inline: InlineConstraint | undefined;
  #masks: MaskConstraint | undefined;
  /** By how much its tokens took longer than {@link TOKEN_MS}, at least 0. */
  #overMs = 0;

  /** `markers`: as {@link Sampling.markers}. */
  constructor(grammars: ConstraintGrammars, markers: readonly string[] = []) {
    this.#grammars = grammars;
    this.#textTokens = grammars.textTokens(markers);
  }

  /** The reply is not constrained. */
  get free(): boolean {
    return !this.#inline && !this.#masks;
  }

  /** As {@link Sampler.pending}. */
  get pending(): Promise<void> | undefined {
    return this.#masks?.pending;
  }

  /** A grammar that is evaluated within the step constrains the reply. */
  get inline(): boolean {
    return this.#inline !== undefined;
  }

  /** How the next token is picked. Not while it is pending or free. Throws a fault. */
  limit(): TokenLimit {
    const here = this.#inline?.here;
    const isNarrow = here?.grammar.isNarrow(here.standing) === true;
    const known = isNarrow ? here.grammar.made(here.standing) : here?.grammar.known(here.standing);
    const made = this.#masks?.made ?? known;
    const may = made && this.#textTokens.of(made.mask);
    const { all: text } = this.#textTokens;
    const stands = made && this.#grammars.followed.from(made);
    const from = stands && { text, drafts: this.inline, ...stands };
    return made?.isNarrow === true && may
      ? { first: may, checked: false, from }
      : { first: text, then: may, checked: may === undefined, from };
  }

  /** As {@link InlineConstraint.foresee}. The next tokens take so much longer. */
  foresee(): boolean {
    const from = performance.now();
    const isMade = this.#inline?.foresee() === true;
    if (isMade) this.#overMs += performance.now() - from;
    return isMade;
  }

  /** A token was picked that is `checked`. Undefined if it may come. Otherwise those of which one is to be picked in its place. */
  refused(token: number): TokenBits | undefined {
    const here = this.#inline?.here;
    if (here?.grammar.allows(here.standing, token) === true) return undefined;
    const mask = this.#masks?.made.mask ?? here?.grammar.mask(here.standing);
    const may = mask && this.#textTokens.of(mask);
    return may && hasBit(may, token) ? undefined : may;
  }

  /** As {@link Sampler.constrain}. */
  constrain(gbnf: string, tokens: readonly number[], stacks = 1): boolean {
    this.release();
    const inline = new InlineConstraint(this.#grammars, gbnf, tokens);
    if (tokens.length > 0 && !inline.matches()) return false;
    this.#masks = this.#grammars.masks(gbnf, tokens, stacks);
    if (!this.#masks) this.#inline = inline;
    return true;
  }

  /** Tokens were sampled, which took so many ms of their steps; 0: not known. */
  read(tokens: readonly number[], ms = 0): void {
    const from = performance.now();
    for (const token of tokens) {
      if (this.#grammars.isEnd(token)) return;
      this.#masks?.accept(token);
      this.#inline?.accept(token);
    }
    this.#inline?.matches();
    const took = ms + performance.now() - from;
    this.#overMs = Math.max(0, this.#overMs + took - TOKEN_MS * tokens.length);
  }

  /** Masks of the thread constrain the reply from now on if its tokens took long. Not within a run, whose tokens are not all read yet. */
  relieve(): void {
    if (this.#overMs > OVER_MS) this.goToMasks();
  }

  /** From now on masks of the thread constrain the reply. */
  goToMasks(): void {
    if (!this.#inline) return;
    this.#masks = this.#grammars.masks(this.#inline.gbnf, this.#inline.read, Infinity);
    if (this.#masks) this.#inline = undefined;
  }

  release(): void {
    this.#masks?.release();
    this.#masks = undefined;
    this.#inline = undefined;
    this.#overMs = 0;
  }
}

/** One reply in a grammar that is evaluated within the step. */
export class InlineConstraint {
  readonly #grammars: Pick<Grammars, 'grammar'>;
  readonly gbnf: string;
  /** The tokens so far, and how many of them the grammar has read. */
  readonly read: number[];
  #done = 0;
  #grammar: MaskGrammar | undefined;
  /** `dead`: the grammar cannot be read, or did not allow a token. */
  #standing: Standing | 'dead' | undefined;
  /** Before the last token. */
  #before: Standing | undefined;
  #isCostly = false;

  /** `tokens`: what the root has matched already. */
  constructor(grammars: Pick<Grammars, 'grammar'>, gbnf: string, tokens: readonly number[]) {
    this.#grammars = grammars;
    this.gbnf = gbnf;
    this.read = [...tokens];
  }

  /** Whether the grammar begins with the tokens so far. What is too expensive to find out is left to the masks. */
  matches(): boolean {
    try {
      return this.#at() !== 'dead';
    } catch {
      return true;
    }
  }

  /**
   * Makes the mask of the place where a text stands if the last token has not left it: a run can then follow the reply from there. What is
   * too expensive is met when it is needed, and not tried again. False: it was not to be made.
   */
  foresee(): boolean {
    const [at, before] = [this.#standing, this.#before];
    if (this.#isCostly || !this.#grammar || !at || at === 'dead' || at.lacks > 0) return false;
    if (at.reach !== before?.reach || at.set !== before.set) return false;
    try {
      if (this.#grammar.known(at)) return false;
      this.#grammar.mask(at);
    } catch {
      this.#isCostly = true;
    }
    return true;
  }

  /** This token, which is no end token, was sampled. */
  accept(token: number): void {
    this.read.push(token);
  }

  /** After the tokens so far. Throws a fault, and `GrammarTooExpensive`. */
  get here(): { readonly grammar: MaskGrammar; readonly standing: Standing } {
    const standing = this.#at();
    if (!this.#grammar || standing === 'dead') throw new GrammarError();
    return { grammar: this.#grammar, standing };
  }

  #at(): Standing | 'dead' {
    this.#grammar ??= this.#grammars.grammar(this.gbnf);
    const grammar = this.#grammar;
    let standing = this.#standing ?? grammar?.start ?? 'dead';
    for (const token of this.read.slice(this.#done)) {
      if (standing === 'dead') break;
      this.#before = standing;
      standing = grammar?.after(standing, token) ?? 'dead';
    }
    this.#done = this.read.length;
    this.#standing = standing;
    return standing;
  }
}
