import type { Grammars, GrammarState } from './grammars.js';
import type { MaskHold } from './masks.js';

const NOTHING = new Uint32Array(0);

/** What holds one reply now: llama.cpp's state of a grammar, or masks where that would be expensive. */
export class GrammarHold {
  readonly #grammars: Grammars | undefined;
  /** What may not be sampled while held. */
  readonly #controlTokens: Uint32Array;
  #state: GrammarState | undefined;
  #masks: MaskHold | undefined;
  #unusable = false;

  /** Without `grammars` no grammar can be used. `markers`: as {@link Sampling.markers}. */
  constructor(grammars: Grammars | undefined, markers: readonly string[] = []) {
    this.#grammars = grammars;
    this.#controlTokens = grammars?.controlTokensBut(markers) ?? new Uint32Array(0);
  }

  /** Undefined: nothing, or masks. */
  get state(): GrammarState | undefined {
    return this.#state;
  }

  /** Nothing holds the reply. */
  get free(): boolean {
    return this.#state === undefined && this.#masks === undefined && !this.#unusable;
  }

  /** As {@link Sampler.pending}. */
  get pending(): Promise<void> | undefined {
    return this.#masks?.pending;
  }

  /** What may not be sampled next. New after each token where {@link changes}. Not while it is pending. Throws a fault. */
  get denied(): Uint32Array {
    if (this.#masks) return joined(this.#controlTokens, this.#masks.denied);
    return this.#state ? this.#controlTokens : NOTHING;
  }

  /** Whether what may not be sampled is another set after each token. */
  get changes(): boolean {
    return this.#masks !== undefined;
  }

  /** As {@link Sampler.hold}. */
  hold(gbnf: string, tokens: readonly number[], stacks = 1): boolean {
    this.release();
    const grammars = this.#grammars;
    // Whether it begins with what was read is asked of llama.cpp, at once; where nothing was read there is nothing to ask.
    const taken = tokens.length === 0 ? undefined : grammars?.take(gbnf, tokens);
    if (taken?.kind === 'mismatch') return false;
    this.#masks = grammars?.masks(gbnf, tokens, stacks);
    if (this.#masks) return true;
    const state = taken ?? grammars?.take(gbnf, tokens);
    if (state?.kind === 'state') this.#state = state.state;
    else this.#unusable = state?.kind !== 'mismatch';
    return state?.kind !== 'mismatch';
  }

  /** A token was sampled. */
  accept(token: number): void {
    if (this.#masks && this.#grammars?.isEnd(token) === false) this.#masks.accept(token);
  }

  release(): void {
    this.#masks?.release();
    this.#masks = undefined;
    this.#state = undefined;
    this.#unusable = false;
  }

  /** Throws when the grammar cannot be used. */
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
