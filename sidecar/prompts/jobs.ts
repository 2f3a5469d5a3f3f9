/** What a prompt host's client keeps of a body on its way to tokens, and which step follows which. */
import type { BodyForm } from '../contracts/requests.js';
import { contractError } from '../domain/errors.js';
import type { Item } from './fair-share.js';
import type { Payer } from './payer.js';
import type { HostProcess } from './host-process.js';
import type { Answer, Step } from './messages.js';
import type { Checked, NoResult, Refusal, Tokenized } from './prompt-host.js';

/** One body, on the sidecar's side until it is closed, since a new host needs it again. */
export interface Body {
  readonly id: number;
  readonly route: BodyForm;
  readonly payer: Payer;
  bytes: Uint8Array | undefined;
  /** The host that keeps a copy. */
  sentTo?: HostProcess | undefined;
}

/** What one caller waits for: one item, or up to three after one another. */
export interface Job {
  readonly body: Body;
  /** What the host is to do for the present item. */
  step: Step;
  item?: Item<Job>;
  /** Settles the caller's promise; only the first call counts. */
  readonly settle: (result: Checked | Tokenized) => void;
  /** Ends the watch over its silence; set while it runs. */
  unwatch?: (() => void) | undefined;
  /** Clock reading at which the watch began. */
  runsSince?: number;
}

/**
 * Bytes of a body that a host is given one more millisecond for, to receive and decode them: 32 MiB/s, where a quiet core does
 * some 100. Without that the largest bodies take half of the default `prompts.silenceMs` before anything is read.
 */
const BYTES_A_MS = 32 * 1024;

/** How long a host may be silent over an item of this body, ms. */
export function longestSilenceMs(silenceMs: number, { bytes }: Pick<Body, 'bytes'>): number {
  return silenceMs + (bytes?.length ?? 0) / BYTES_A_MS;
}

/** The caller's result, or the next step that the host is to do. */
export type Following =
  { readonly kind: 'result'; readonly result: Checked | Tokenized } | { readonly kind: 'step'; readonly step: Step };

/** What follows an answer. */
export function following(answer: Answer): Following {
  switch (answer.kind) {
    case 'dear':
      return { kind: 'step', step: { kind: 'compile', ...(answer.syntax && { syntax: answer.syntax }) } };
    case 'compiled':
      return { kind: 'step', step: { kind: 'tokenize', held: answer.held } };
    default:
      return { kind: 'result', result: answer };
  }
}

export const FAILED: NoResult = { kind: 'failed' };
export const ABORTED: NoResult = { kind: 'aborted' };
export const FULL: Refusal = {
  kind: 'invalid',
  error: contractError('capacity_exceeded', 'Too many requests are waiting to be read. Retry after the time given.'),
};

/** The host cannot be started; it is tried again in `retryAfterMs`. */
export function unavailable(retryAfterMs: number): Refusal {
  return {
    kind: 'invalid',
    error: contractError('cold', 'Prompts cannot be read now. Try again after the time given.', { retryAfterMs }),
  };
}
