import type { Decoder, Part, PartResult } from './decoder.js';
import type { Output } from './protocol.js';

/**
 * One job on its sequence, as the step loop drives it: asked for its part of the next step, then handed the result.
 * A task never touches another's sequence and never waits for anything itself but `rewind`.
 */
export interface Task {
  readonly id: number;
  readonly sequence: number;
  /** No other sequence may share its decodes (a decision's result must not depend on the neighbours). */
  readonly alone: boolean;
  /** Prompt tokens still to be evaluated before anything can be sampled; 0 while decoding. */
  readonly prefillLeft: number;
  /** All is out; the sequence can be freed. */
  readonly done: boolean;
  /** The next part, with at most `budget` prompt tokens (at least 1). Called once a step. */
  part(budget: number): Part;
  /** Takes the part's result and adds what it produced to `out`. Faults are the loop's business. */
  accept(result: Exclude<PartResult, { kind: 'fault' }>, out: Output[]): void;
  /** Cuts the sequence back between replies or questions when `accept` called for it. */
  rewind(decoder: Decoder): Promise<void>;
  /** Lets go of samplers. Idempotent. */
  dispose(): void;
}

/** What tasks need to know of the model. */
export interface ModelTokens {
  isEnd(token: number): boolean;
  /** The bytes a token stands for; none for control tokens. */
  bytes(token: number): Uint8Array;
  /** A control token's name, such as `<|channel|>`; undefined: the token is none. */
  control(token: number): string | undefined;
}
