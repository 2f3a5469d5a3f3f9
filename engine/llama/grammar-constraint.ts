import { GrammarError } from './grammar-error.js';
import type { Grammars, GrammarState } from './grammars.js';
import type { TokenMask } from '../grammar/mask.js';
import { EngineFault } from '../scheduler/faults.js';
import { InlineConstraint, type InlineGrammars } from './inline-grammars.js';
import type { MaskConstraint } from './masks.js';

/** What it needs of {@link Grammars}. */
export type ConstraintGrammars = Pick<Grammars, 'controlTokensBut' | 'take' | 'masks' | 'isEnd'>;

const NOTHING = new Uint32Array(0);
const NO_LIMIT: TokenMask = { kind: 'but', tokens: NOTHING };

/**
 * What sampling one token within a step may take, ms: several times what a grammar that is not expensive takes. Replies of a step
 * are sampled side by side, so a token's time has the work for the other grammars of the step in it, and this bounds the step.
 */
const TOKEN_MS = 20;
/** By how much a reply's tokens may take longer together, ms; one that takes less makes up for it. */
const OVER_MS = 40;

/**
 * What constrains one reply now: a grammar that is looked at within the step, llama.cpp's state of one where the decoder
 * cannot do that, or masks of a thread where either would be expensive. Which grammars are is known beforehand from their
 * stacks; one whose tokens take long nevertheless goes over to masks, since all that share the step wait for it.
 */
export class GrammarConstraint {
  readonly #grammars: ConstraintGrammars | undefined;
  /** Tokens that may not be sampled while a grammar constrains the reply. */
  readonly #controlTokens: Uint32Array;
  readonly #control: ReadonlySet<number>;
  #state: GrammarState | undefined;
  #inline: InlineConstraint | undefined;
  #masks: MaskConstraint | undefined;
  #unusable = false;
  readonly #inlineGrammars: InlineGrammars | undefined;
  /** The last mask of the grammar, and the same without the control tokens. One alone: each may be as long as the vocabulary. */
  #last: { readonly mask: TokenMask; readonly made: TokenMask } | undefined;
  readonly #unlimited: TokenMask;
  /** Without masks: its grammar, and what was read in it. */
  #text: { readonly gbnf: string; readonly read: number[] } | undefined;
  /** By how much its tokens took longer than {@link TOKEN_MS}, at least 0. */
  #overMs = 0;

  /**
   * Without `grammars` no grammar can be used. `markers`: as {@link Sampling.markers}. `inline`: for a decoder that asks
   * {@link limit} and {@link refused} at each token.
   */
  constructor(grammars: ConstraintGrammars | undefined, markers: readonly string[] = [], inline?: InlineGrammars) {
    this.#grammars = grammars;
    this.#inlineGrammars = inline;
    this.#controlTokens = grammars?.controlTokensBut(markers) ?? new Uint32Array(0);
    this.#control = new Set(this.#controlTokens);
    this.#unlimited = { kind: 'but', tokens: this.#controlTokens };
  }

  /** Undefined: no grammar constrains the reply, or not by llama.cpp's state. */
  get state(): GrammarState | undefined {
    return this.#state;
  }

  /** The reply is not constrained. */
  get free(): boolean {
    return !this.#state && !this.#inline && !this.#masks && !this.#unusable;
  }

  /** As {@link Sampler.pending}. */
  get pending(): Promise<void> | undefined {
    return this.#masks ? this.#masks.pending : this.#inline?.pending;
  }

  /**
   * Tokens that must not be sampled next. Changes after each token if {@link changes}. Not while it is pending. Throws
   * a fault.
   */
  get denied(): Uint32Array {
    if (this.#masks) return joined(this.#controlTokens, this.#masks.denied);
    return this.#state ? this.#controlTokens : NOTHING;
  }

  /** Whether the forbidden tokens change after each token. */
  get changes(): boolean {
    return this.#masks !== undefined;
  }

  /**
   * Under what the next token is to be sampled first; a decoder that gets `only` one token need not sample. Not while it is
   * pending. Throws a fault.
   */
  limit(): TokenMask {
    if (!this.#masks && !this.#inline) return this.#state ? this.#unlimited : NO_LIMIT;
    const narrow = this.#masks ? this.#masks.narrow : this.#inline?.narrow();
    return narrow ? this.#withoutControl(narrow) : this.#unlimited;
  }

  /** A token was sampled under {@link limit}. Undefined: it may come. Otherwise what the next one is to be sampled under. */
  refused(token: number): TokenMask | undefined {
    if (this.#masks) {
      const tokens = this.denied;
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
        : { kind: 'but', tokens: joined(this.#controlTokens, mask.tokens) };
    // llama.cpp would end the process, or take any token.
    if (made.kind === 'only' && made.tokens.length === 0) throw new EngineFault('no token goes on with the grammar');
    this.#last = { mask, made };
    return made;
  }

  /** As {@link Sampler.constrain}. */
  constrain(gbnf: string, tokens: readonly number[], stacks = 1): boolean {
    this.release();
    const grammars = this.#grammars;
    const expensive = (): MaskConstraint | undefined => grammars?.masks(gbnf, tokens, stacks);
    const inline = this.#inlineGrammars && new InlineConstraint(this.#inlineGrammars, gbnf, tokens);
    // Without tokens there is nothing to match. llama.cpp's own check is for when the vocabulary is still being read.
    const ready = inline !== undefined && inline.pending === undefined;
    const taken = tokens.length === 0 || ready ? undefined : grammars?.take(gbnf, tokens);
    if (taken?.kind === 'mismatch' || (ready && tokens.length > 0 && !this.#matches(inline))) return false;
    this.#masks = expensive();
    if (this.#masks) return true;
    if (inline) this.#inline = inline;
    else {
      const state = taken ?? grammars?.take(gbnf, tokens);
      if (state?.kind === 'mismatch') return false;
      if (state?.kind === 'state') this.#state = state.state;
      else this.#unusable = true;
    }
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
    if (this.#grammars?.isEnd(token) !== false) return;
    this.#masks?.accept(token);
    this.#inline?.accept(token);
    this.#text?.read.push(token);
    this.#overMs = Math.max(0, this.#overMs + ms - TOKEN_MS);
    if (this.#overMs > OVER_MS) this.goToMasks();
  }

  /** From now on masks of the thread constrain the reply. */
  goToMasks(): void {
    if (!this.#text || !this.#grammars) return;
    const { gbnf, read } = this.#text;
    this.#text = undefined;
    this.#masks = this.#grammars.masks(gbnf, read, Infinity);
    if (this.#masks) this.#state = this.#inline = undefined;
  }

  release(): void {
    this.#masks?.release();
    this.#masks = undefined;
    this.#state = undefined;
    this.#inline = undefined;
    this.#last = undefined;
    this.#text = undefined;
    this.#overMs = 0;
    this.#unusable = false;
  }

  /** Throws if the grammar cannot be used. */
  check(): void {
    if (this.#unusable) throw new GrammarError();
    this.#masks?.check();
  }
}

function joined(one: Uint32Array, other: Uint32Array): Uint32Array {
  const all = new Uint32Array(one.length + other.length);
  all.set(one);
  all.set(other, one.length);
  return all;
}
