/**
 * The messages between the sidecar and its prompt host, over engine/protocol/link.ts. The sidecar speaks first (`start`); the host answers `ready`, and from then on one `answer` an
 * `item`. Every message carries `v`; one with another `v`, or of an unknown kind, ends the host.
 */
import type { CallsFormat } from '../../engine/prompt/call-format.js';
import type { CallsOrder } from '../../engine/prompt/chat-prompt.js';
import type { Route } from '../contracts/requests.js';
import type { Checked, Tokenized } from './prompt-host.js';

export const PROMPTS_VERSION = 4;

/** A model whose prompts the host makes. */
export interface PromptModel {
  /** What callers name. */
  readonly id: string;
  readonly kind: 'chat' | 'decision';
  /** Path of a GGUF file. */
  readonly file: string;
  /** Tokens that a chat prompt can have at most; what cannot fit by its length alone is refused without being tokenized. */
  readonly contextPerSeat: number;
  /** Jinja source to use in place of the file's own chat template. */
  readonly template?: string;
}

/** What the host found on loading a model. With `problem` (one line, for the operator) every item for it fails. */
export interface ModelReport {
  readonly id: string;
  /** The template can be given tools, a system message. */
  readonly tools: boolean;
  readonly system: boolean;
  readonly problem?: string;
}

/** How a host is to be set up. Goes on to those who work as it is. */
export interface HostSetup {
  readonly models: readonly PromptModel[];
  /** Threads beside the host's own; 0: that one works the items off, in turn. */
  readonly workers: number;
  /** Path of the module that works items off: its default export, asked once its `setup` is in the environment data. */
  readonly workerFile: string;
}

/**
 * Of a thread that tokenizes. llama.cpp's regular expressions recurse over runs of like characters, 400 bytes to 2 KiB of
 * stack each: with a thread's usual 4 MB the DeepSeek vocabularies die of 20,000 letters, with this of some 600,000.
 * Reserved, not used until needed.
 */
export const STACK_MB = 256;

/**
 * `check`: is the body a valid request. `tokenize`: its tokens as well; the answer may be `dear`, then the same is asked
 * again with what `compile` made, in the host's compiler thread, of the tools.
 */
export type Work =
  | { readonly step: 'check' }
  | { readonly step: 'tokenize'; readonly calls?: CallsFormat }
  | { readonly step: 'compile'; readonly compile: CallsOrder };

/** What the host answers to an item. */
export type Answer =
  | Checked
  | Tokenized
  | { readonly kind: 'dear'; readonly compile: CallsOrder }
  | { readonly kind: 'compiled'; readonly calls: CallsFormat };

/** Sidecar to host, which works the items off in their order. `cancel`: an item that has not begun is not wanted any more. */
export type Order =
  | { readonly kind: 'start'; readonly setup: HostSetup }
  | {
      readonly kind: 'item';
      readonly item: number;
      readonly work: Work;
      readonly body: number;
      /** With the first item of a body, which is kept until `drop` or until its `tokenize` is answered, unless with `dear`. */
      readonly sent?: { readonly route: Route; readonly bytes: Uint8Array };
    }
  | { readonly kind: 'cancel'; readonly item: number }
  | { readonly kind: 'drop'; readonly body: number };

/** Host to sidecar. */
export type News =
  | { readonly kind: 'ready'; readonly models: readonly ModelReport[] }
  | {
      readonly kind: 'answer';
      readonly item: number;
      readonly result: Answer;
      /** Time from its begin to its result in the host; absent: it was cancelled before it began. */
      readonly ms?: number;
    };

/** What goes over the link. */
export type OnTheWire<M> = M & { readonly v: number };

/** Puts the protocol's version on a message. */
export function versioned<M extends Order | News>(message: M): OnTheWire<M> {
  return { v: PROMPTS_VERSION, ...message };
}

/** The host's reading of what arrived; undefined: not a message of this version. */
export function readOrder(raw: unknown): Order | undefined {
  return isOfThisVersion(raw) ? (raw as Order) : undefined;
}

/** The sidecar's reading of what arrived; undefined: not a message of this version. */
export function readNews(raw: unknown): News | undefined {
  return isOfThisVersion(raw) ? (raw as News) : undefined;
}

/** Beyond the version and the kind nothing is checked: both ends are one build. */
function isOfThisVersion(raw: unknown): boolean {
  return typeof raw === 'object' && raw !== null && 'v' in raw && raw.v === PROMPTS_VERSION && 'kind' in raw;
}

/** A task for one worker. For another thread the body is shared memory: it is copied once, on its way into the host. */
export type WorkerTask =
  | { readonly kind: 'report' }
  | { readonly kind: 'check'; readonly route: Route; readonly bytes: Uint8Array }
  | { readonly kind: 'tokenize'; readonly route: Route; readonly bytes: Uint8Array; readonly calls?: CallsFormat };

/** A task for the compiler thread: the bytes are those of a chat's body that was found valid. */
export interface CompilerTask {
  readonly bytes: Uint8Array;
  readonly compile: CallsOrder;
}
