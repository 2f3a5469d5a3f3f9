import type { ReplyFormat, ScoreQuestion } from '../../engine/protocol/messages.js';
import type { ContractError } from '../domain/errors.js';
import type { Params, Route } from '../contracts/requests.js';
import type { Signal } from '../lib/abort.js';
import type { Payer } from './fair-share.js';

export type Refusal = { readonly kind: 'invalid'; readonly error: ContractError };

/** failed: the host died or hung on this very item (it is not tried again); aborted: the signal fired. */
export type NoResult = { readonly kind: 'failed' } | { readonly kind: 'aborted' };

/** A body checked against its contract. */
export type Checked = { readonly kind: 'checked'; readonly params: Params } | Refusal | NoResult;

/** A prompt as tokens, and how its replies are held and taken apart. */
export type Tokenized =
  | { readonly kind: 'chat'; readonly tokens: Uint32Array; readonly format?: ReplyFormat }
  | { readonly kind: 'decision'; readonly input: Uint32Array; readonly questions: readonly ScoreQuestion[] }
  | Refusal
  | NoResult;

/**
 * One body on its way to tokens. Two steps and not one, because a place in the model's queue is taken between them:
 * after the model's name is known, before templating and tokenizing cost anything.
 */
export interface OpenPrompt {
  /** Parses and validates: inline when the body is small, in the prompt host otherwise. */
  check(signal: Signal): Promise<Checked>;
  /** Renders and tokenizes for the model named in the body, always in the prompt host. Call after `check` succeeded. */
  tokenize(signal: Signal): Promise<Tokenized>;
  /** Lets go of the body, here and in the host. Idempotent. */
  close(): void;
}

/** Turns bodies into tokens outside the sidecar's process. */
export interface PromptHost {
  /** Takes the body over: the caller must not change it. `payer` is charged with the host time that the body takes. */
  open(route: Route, body: Uint8Array, payer: Payer): OpenPrompt;
}
