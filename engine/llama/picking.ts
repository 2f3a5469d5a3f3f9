/** What `make engine-native` adds to the addon for choosing next tokens within the decode (engine/native/next-token.cpp). */
import type { AddonContext } from './addon-context.js';

/** How one reply's tokens are chosen, with the random numbers of its seed; not for grammars. */
export interface AddonPicker {
  /** All tokens picked so far, if penalties need them. */
  readonly picked: () => Int32Array;
}

/** The version of `engine/native/next-token.cpp`. An addon built from another one is used like the prebuilt one. */
export const KNOWN_NATIVE = 6;

/** Consecutive steps without JavaScript in between. */
export interface AddonRun {
  /** Resolves after the last step. Rejects as `decodeBatch` does when the first one failed; nothing was then picked. */
  readonly ended: Promise<void>;
  /** Tokens picked since the last call, step by step. */
  readonly take: () => Int32Array;
  /** No further step begins. */
  readonly halt: () => void;
}

/** The sampling parameters of a reply. */
export interface Picked {
  readonly temperature: number;
  readonly seed: number;
  readonly topP: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
}

/**
 * The functions that `make engine-native` adds to the addon (engine/native/next-token.cpp): tokens are picked within
 * the decode, without a separate job per token.
 */
export interface Picking {
  readonly newPicker: (sampling: Picked) => AddonPicker;
  /** Forgets all sequences, and writes zeros over what their cells held. Not while it decodes. */
  readonly clear: (context: AddonContext) => void;
  /**
   * Decodes parts and picks a token for each that has a picker, on a thread that makes all runs of the process. `parts` has
   * four numbers of each: sequence, first position, tokens, and 1 where its last token's logits are wanted, or 2 where it is no part
   * but closes a gap between them: its one token is removed after each step. `tokens` has the tokens of all, in their order. The logits of a part are then at the index of its last token. -1: it has no picker, or
   * there were no logits. Where every part is one token with a picker, up to `most` steps, the picks of each being the tokens
   * of the next one. None follows one that picked an end token, or that failed. -2: no logit was a number (not-a-number.ts).
   */
  readonly run: (
    context: AddonContext,
    parts: Int32Array,
    tokens: Int32Array,
    pickers: readonly (AddonPicker | undefined)[],
    most: number,
  ) => AddonRun;
}

/** What of it an addon may have. */
export interface PickingBindings {
  readonly raVersion?: number;
  readonly RaPicker?: new (
    temperature: number,
    seed: number,
    topP: number,
    frequencyPenalty: number,
    presencePenalty: number,
  ) => AddonPicker;
  readonly raDecodeRun?: Picking['run'];
  readonly raClearMemory?: Picking['clear'];
}

/** The functions of an addon of the known version; none for any other. */
export function picking({
  raVersion: version,
  RaPicker: Make,
  raDecodeRun: run,
  raClearMemory: clear,
}: PickingBindings): { readonly picking?: Picking } {
  if (version !== KNOWN_NATIVE || !Make || !run || !clear) return {};
  const newPicker: Picking['newPicker'] = ({ temperature, seed, topP, frequencyPenalty, presencePenalty }) =>
    new Make(temperature, seed, topP, frequencyPenalty, presencePenalty);
  return { picking: { run, newPicker, clear } };
}
