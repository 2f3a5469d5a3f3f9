import type { Grammars, GrammarState } from './grammars.js';
import type { MaskHold } from './masks.js';

/** What it needs of {@link Grammars}. */
export type HoldGrammars = Pick<Grammars, 'controlTokensBut' | 'take' | 'masks' | 'isEnd'>;

const NOTHING = new Uint32Array(0);

/** What sampling one token within a step may take, ms: several times what a grammar that is not expensive takes. */
const TOKEN_MS = 20;
/** By how much a reply's tokens may take longer together, ms; one that takes less makes up for it. */
const OVER_MS = 40;

/**
 * What holds one reply now: llama.cpp's state of a grammar, or masks where that would be expensive. Which grammars are is
 * known beforehand from their stacks; one whose tokens take long all the same goes over to masks, since whatever shares the
 * step waits for it.
 */
export class GrammarHold {
  readonly #grammars: HoldGrammars | undefined;
  /** What may not be sampled while held. */
  readonly #controlTokens: Uint32Array;
  #state: GrammarState | undefined;
  #masks: MaskHold | undefined;
  #unusable = false;
  /** While a state holds: its grammar, and what was read in it. */
  #text: { readonly gbnf: string; readonly read: number[] } | undefined;
  /** By how much its tokens took longer than {@link TOKEN_MS}, at least 0. */
  #overMs = 0;

  /** Without `grammars` no grammar can be used. `markers`: as {@link Sampling.markers}. */
  constructor(grammars: HoldGrammars | undefined, markers: readonly string[] = []) {
    this.#grammars = grammars;
    this.#controlTokens = grammars?.controlTokensBut(markers) ?? new Uint32Array(0);
  }

  /** Undefined: none, or masks. */
  get state(): GrammarState | undefined {
    return this.#state;
  }

  /** The reply is not constrained. */
  get free(): boolean {
    return this.#state === undefined && this.#masks === undefined && !this.#unusable;
  }

  /** As {@link Sampler.pending}. */
  get pending(): Promise<void> | undefined {
    return this.#masks?.pending;
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

  /** As {@link Sampler.hold}. */
  hold(gbnf: string, tokens: readonly number[], stacks = 1): boolean {
    this.release();
    const grammars = this.#grammars;
    // llama.cpp checks at once whether the grammar matches the tokens so far; without tokens there is nothing to check.
    const taken = tokens.length === 0 ? undefined : grammars?.take(gbnf, tokens);
    if (taken?.kind === 'mismatch') return false;
    this.#masks = grammars?.masks(gbnf, tokens, stacks);
    if (this.#masks) return true;
    const state = taken ?? grammars?.take(gbnf, tokens);
    if (state?.kind === 'state') {
      this.#state = state.state;
      this.#text = { gbnf, read: [...tokens] };
    } else this.#unusable = state?.kind !== 'mismatch';
    return state?.kind !== 'mismatch';
  }

  /** A token was sampled, which took so many ms of the step; 0: not known. */
  accept(token: number, ms = 0): void {
    if (this.#grammars?.isEnd(token) !== false) return;
    this.#masks?.accept(token);
    this.#text?.read.push(token);
    this.#overMs = Math.max(0, this.#overMs + ms - TOKEN_MS);
    if (this.#text && this.#overMs > OVER_MS) this.#goToMasks(this.#grammars, this.#text);
  }

  #goToMasks(grammars: HoldGrammars, { gbnf, read }: { gbnf: string; read: readonly number[] }): void {
    this.#text = undefined;
    this.#masks = grammars.masks(gbnf, read, Infinity);
    if (this.#masks) this.#state = undefined;
  }

  release(): void {
    this.#masks?.release();
    this.#masks = undefined;
    this.#state = undefined;
    this.#text = undefined;
    this.#overMs = 0;
    this.#unusable = false;
  }

  /** Throws if the grammar cannot be used. */
  check(): void {
    if (this.#unusable) throw new GrammarError('the grammar cannot be used');
    this.#masks?.check();
  }
}

/** Its name is the reason that a fault gives. */
class GrammarError extends Error {
  override readonly name = 'GrammarError';
}

function joined(one: Uint32Array, other: Uint32Array): Uint32Array {
  const all = new Uint32Array(one.length + other.length);
  all.set(one);
  all.set(other, one.length);
  return all;
}
