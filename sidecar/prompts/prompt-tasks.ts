/** The sidecar's state of bodies that are checked and tokenized, and the order of a task's steps. */
import type { BodyForm } from '../contracts/requests.js';
import { contractError } from '../domain/errors.js';
import type { Item, WeightedAccount } from '../lib/fair-share.js';
import type { HostProcess } from './host-process.js';
import type { Answer, Work } from './messages.js';
import type { BodyBytes, Checked, NoResult, Refusal, Tokenized } from './prompt-maker.js';

/** One body that prompts are made of. Its source keeps the bytes until it is closed, since a new host needs them again. */
export class Body {
  readonly id: number;
  readonly form: BodyForm;
  readonly owner: WeightedAccount;
  readonly #source: BodyBytes;
  /** The host that keeps a copy. */
  sentTo: HostProcess | undefined;
  /** It is not needed any more. */
  closed = false;

  constructor(id: number, form: BodyForm, source: BodyBytes, owner: WeightedAccount) {
    this.id = id;
    this.form = form;
    this.#source = source;
    this.owner = owner;
  }

  /** Undefined once it is closed, or its source freed it. */
  get bytes(): Uint8Array | undefined {
    return this.closed ? undefined : this.#source.bytes;
  }
}

/** One `check` or `tokenize` of a body: one item of the host, or up to three in sequence. */
export interface PromptTask {
  readonly body: Body;
  /** The step of the present item. */
  work: Work;
  item?: Item<PromptTask>;
  /** Settles the caller's promise; only the first time counts. */
  readonly settle: (result: Checked | Tokenized) => void;
  /** Cancels the timer that detects a hang; set while it runs. */
  unwatch?: (() => void) | undefined;
  /** Clock reading at which that timer started. */
  runsSince?: number;
}

/**
 * A host gets one more millisecond for each so many bytes of a body, to receive and decode them: 32 MiB/s, where an idle core does
 * some 100. Otherwise the largest bodies would take half of the default `prompts.silenceMs` before they are read.
 */
const BYTES_A_MS = 32 * 1024;

/** The longest time without an answer for an item of this body, ms. */
export function longestSilenceMs(silenceMs: number, { bytes }: Pick<Body, 'bytes'>): number {
  return silenceMs + (bytes?.length ?? 0) / BYTES_A_MS;
}

/** The result of the task, or what the host is to do next. */
export type Following =
  { readonly kind: 'result'; readonly result: Checked | Tokenized } | { readonly kind: 'work'; readonly work: Work };

/** Returns what follows an answer. */
export function following(answer: Answer): Following {
  switch (answer.kind) {
    case 'needs-compiler':
      return { kind: 'work', work: { kind: 'compile', ...(answer.syntax && { syntax: answer.syntax }) } };
    case 'compiled':
      return { kind: 'work', work: { kind: 'tokenize', compiled: answer.compiled } };
    default:
      return { kind: 'result', result: answer };
  }
}

export const ABORTED: NoResult = { kind: 'aborted' };
export const FULL: Refusal = {
  kind: 'refused',
  error: contractError('capacity_exceeded', 'Too many requests are waiting to be read. Retry after the time given.'),
};

/** The host cannot be started; it is tried again in `retryAfterMs`. */
export function unavailable(retryAfterMs: number): Refusal {
  return {
    kind: 'refused',
    error: contractError('cold', 'Prompts cannot be read now. Try again after the time given.', { retryAfterMs }),
  };
}
