import type { MaskGrammar, Standing, TokenMask } from '../grammar/mask.js';
import { EngineFault } from '../scheduler/faults.js';
import type { Grammars } from './grammars.js';
import type { MaskConstraint } from './masks.js';

/** What it needs of {@link Grammars}. */
export type ConstraintGrammars = Pick<Grammars, 'controlTokensBut' | 'grammar' | 'masks' | 'isEnd'>;

/** A grammar cannot be used. Its name is the reason that a fault gives. */
export class GrammarError extends Error {
  override readonly name = 'GrammarError';

  constructor() {
    super('the grammar cannot be used');
  }
}

const NO_LIMIT: TokenMask = { kind: 'but', tokens: new Uint32Array(0) };

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
  /** Tokens that may not be sampled while a grammar constrains the reply. */
  readonly #controlTokens: Uint32Array;
  readonly #control: ReadonlySet<number>;
  #inline: InlineConstraint | undefined;
  #masks: MaskConstraint | undefined;
  /** The last mask of the grammar, and the same without the control tokens. */
  #last: { readonly mask: TokenMask; readonly made: TokenMask } | undefined;
  readonly #unlimited: TokenMask;
  /** Without masks: its grammar, and what was read in it. */
  #text: { readonly gbnf: string; readonly read: number[] } | undefined;
  /** By how much its tokens took longer than {@link TOKEN_MS}, at least 0. */
  #overMs = 0;

  /** `markers`: as {@link Sampling.markers}. */
  constructor(grammars: ConstraintGrammars, markers: readonly string[] = []) {
    this.#grammars = grammars;
    this.#controlTokens = grammars.controlTokensBut(markers);
    this.#control = new Set(this.#controlTokens);
    this.#unlimited = { kind: 'but', tokens: this.#controlTokens };
  }

  /** The reply is not constrained. */
  get free(): boolean {
    return !this.#inline && !this.#masks;
  }

  /** As {@link Sampler.pending}. */
  get pending(): Promise<void> | undefined {
    return this.#masks?.pending;
  }

  /** Masks of the thread constrain the reply. */
  get masked(): boolean {
    return this.#masks !== undefined;
  }

  /**
   * Under what the next token is to be sampled first; a decoder that gets `only` one token need not sample. Not while it is
   * pending. Throws a fault.
   */
  limit(): TokenMask {
    if (this.free) return NO_LIMIT;
    const narrow = this.#masks ? this.#masks.narrow : this.#inline?.narrow();
    return narrow ? this.#withoutControl(narrow) : this.#unlimited;
  }

  /** A token was sampled under {@link limit}. Undefined if it may come. Otherwise what the next one is to be sampled under. */
  refused(token: number): TokenMask | undefined {
    if (this.#masks) {
      const tokens = joined(this.#controlTokens, this.#masks.denied);
      return tokens.includes(token) ? { kind: 'but', tokens } : undefined;
    }
    if (!this.#inline || this.#inline.allows(token)) return undefined;
    return this.#withoutControl(this.#inline.mask());
  }

  #withoutControl(mask: TokenMask): TokenMask {
    if (this.#last?.mask === mask) return this.#last.made;
    const made: TokenMask =
      mask.kind === 'only'
        ? { kind: 'only', tokens: mask.tokens.filter((token) => !this.#control.has(token)) }
        : { kind: 'but', tokens: mask.tokens, besides: this.#controlTokens };
    if (made.kind === 'only' && made.tokens.length === 0) throw new EngineFault('no token goes on with the grammar');
    this.#last = { mask, made };
    return made;
  }

  /** As {@link Sampler.constrain}. */
  constrain(gbnf: string, tokens: readonly number[], stacks = 1): boolean {
    this.release();
    const grammars = this.#grammars;
    const inline = new InlineConstraint(grammars, gbnf, tokens);
    if (tokens.length > 0 && !this.#matches(inline)) return false;
    this.#masks = grammars.masks(gbnf, tokens, stacks);
    if (this.#masks) return true;
    this.#inline = inline;
    this.#text = { gbnf, read: [...tokens] };
    return true;
  }

  /** What is too expensive to find out is left to the masks. */
  #matches(inline: InlineConstraint): boolean {
    try {
      return inline.matches();
    } catch {
      return true;
    }
  }

  /** A token was sampled, which took so many ms of the step; 0: not known. */
  accept(token: number, ms = 0): void {
    if (this.#grammars.isEnd(token)) return;
    this.#masks?.accept(token);
    this.#inline?.accept(token);
    this.#text?.read.push(token);
    this.#overMs = Math.max(0, this.#overMs + ms - TOKEN_MS);
    if (this.#overMs > OVER_MS) this.goToMasks();
  }

  /** From now on masks of the thread constrain the reply. */
  goToMasks(): void {
    if (!this.#text) return;
    const { gbnf, read } = this.#text;
    this.#text = undefined;
    this.#masks = this.#grammars.masks(gbnf, read, Infinity);
    if (this.#masks) this.#inline = undefined;
  }

  release(): void {
    this.#masks?.release();
    this.#masks = undefined;
    this.#inline = undefined;
    this.#last = undefined;
    this.#text = undefined;
    this.#overMs = 0;
  }

  /** Throws if the grammar cannot be used. */
  check(): void {
    this.#masks?.check();
  }
}

/** One reply in a grammar that is evaluated within the step. */
export class InlineConstraint {
  readonly #grammars: Pick<Grammars, 'grammar'>;
  readonly #gbnf: string;
  /** Tokens that the grammar has not read yet. */
  #unread: number[];
  #grammar: MaskGrammar | undefined;
  /** `dead`: the grammar cannot be read, or did not allow a token. */
  #standing: Standing | 'dead' | undefined;

  /** `tokens`: what the root has matched already. */
  constructor(grammars: Pick<Grammars, 'grammar'>, gbnf: string, tokens: readonly number[]) {
    this.#grammars = grammars;
    this.#gbnf = gbnf;
    this.#unread = [...tokens];
  }

  /** Whether the grammar begins with the tokens so far. Throws `GrammarTooExpensive`. */
  matches(): boolean {
    return this.#at() !== 'dead';
  }

  /**
   * The tokens that may come next, where these are found at once; undefined if the caller checks a sampled token instead.
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
function joined(one: Uint32Array, other: Uint32Array): Uint32Array {
  const all = new Uint32Array(one.length + other.length);
  all.set(one);
  all.set(other, one.length);
  return all;
}
