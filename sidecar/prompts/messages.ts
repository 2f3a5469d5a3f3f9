/**
 * The messages between the sidecar and its prompt host, over engine/protocol/link.ts. The sidecar starts with `start`; the host answers
 * `ready`, and then sends one `answer` per `item`. Another version in `start` or an unknown kind of message ends the host. Nothing else is
 * checked: both ends are from one build.
 */
import type { CompiledConstraint } from '../../engine/prompt/reply-constraint.js';
import type { CallFormatText } from '../../engine/prompt/tool-use.js';
import type { CallSyntax } from '../../engine/protocol/reply-format.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { BodyForm } from '../contracts/requests.js';
import type { Checked, Tokenized } from './prompt-maker.js';

/** Changed with the messages: a sidecar whose files were replaced while it runs must not use a host of the new ones. */
export const PROMPTS_VERSION = 13;

/** A model that the host makes prompts for. */
export interface PromptModel extends Pick<EngineSetup, 'kind' | 'file' | 'template'> {
  /** The id that callers send. */
  readonly id: string;
  /** The most tokens of a chat prompt or of an input; text that cannot fit by its length is rejected without being tokenized. */
  readonly contextPerSeat: number;
  /** Absent: it takes no images. */
  readonly images?: ImageBounds;
  /** Its engine can constrain a whole reply by a grammar, but cannot begin in the middle of a reply. */
  readonly wholeGrammars?: true;
  /** Its engine scores texts and not their tokens, as an external reranker does. */
  readonly pairTexts?: true;
}

export interface ImageBounds {
  readonly maxImages: number;
  readonly maxPixels: number;
}

/** The result of loading a model. With `problem` (one line, for the operator) every item for it fails. */
export interface ModelReport {
  readonly id: string;
  /** The template supports tools, a system message. */
  readonly tools: boolean;
  readonly system: boolean;
  /** The model thinks in front of its replies, between marks that are known. */
  readonly thoughts?: true;
  /** Identifies tokenizer and template, as in EngineFacts; absent: the file cannot be read. */
  readonly promptVersion?: string;
  /** How a chat model calls tools. */
  readonly calls?: CallFormatText;
  /** Of one that makes vectors or scores: the most tokens of an input, tokens of its vocabulary, numbers of a vector (0: not known). */
  readonly inputs?: Readonly<Record<'most' | 'vocabulary' | 'width', number>>;
  readonly problem?: string;
}

/** Options of a host, passed on to its workers unchanged. */
export interface HostSetup {
  readonly models: readonly PromptModel[];
  /** Worker threads; 0: the host's own thread processes the items in turn. */
  readonly workers: number;
  /** The module that processes items: its default export, imported once its `setup` is in the environment data. Absent: worker.ts. */
  readonly workerFile?: string;
}

/**
 * Stack of a thread that tokenizes. llama.cpp's regular expressions recurse over runs of similar characters, 400 bytes
 * to 2 KiB of stack each: with a thread's usual 4 MB the DeepSeek vocabularies crash at 20,000 letters, with this at
 * some 600,000. Reserved, not used until needed.
 */
export const STACK_MB = 256;

/**
 * What the host is to do with a body. `check`: whether the body is a valid request. `tokenize`: the prompt's tokens as well. If
 * the answer is `needs-compiler`, `compile` follows, in the host's compiler thread, and then `tokenize` again with the compiled
 * grammars of the tools and of the reply's schema.
 */
export type Work =
  | { readonly kind: 'check' }
  | { readonly kind: 'tokenize'; readonly compiled?: CompiledConstraint }
  | { readonly kind: 'compile'; readonly syntax?: CallSyntax };

/** The host's answer to an item. */
export type Answer =
  | Checked
  | Tokenized
  | { readonly kind: 'needs-compiler'; readonly syntax?: CallSyntax }
  | { readonly kind: 'compiled'; readonly compiled: CompiledConstraint };

/** Sidecar to host, which processes the items in order. `cancel`: an item that has not started is not needed any more. */
export type ToHost =
  | { readonly kind: 'start'; readonly v: number; readonly setup: HostSetup }
  | {
      readonly kind: 'item';
      readonly item: number;
      readonly work: Work;
      readonly body: number;
      /** With the first item of a body, which is kept until `drop` or until its `tokenize` is answered, unless by `needs-compiler`. */
      readonly sent?: HostBody;
    }
  | { readonly kind: 'cancel'; readonly item: number }
  | { readonly kind: 'drop'; readonly body: number };

/** Host to sidecar. */
export type FromHost =
  | { readonly kind: 'ready'; readonly models: readonly ModelReport[] }
  | {
      readonly kind: 'answer';
      readonly item: number;
      readonly result: Answer;
      /** Time from its begin to its result in the host; absent: it was cancelled before it began. */
      readonly ms?: number;
    };

/** A body in a host. Where a pool works on it, it is in shared memory: it is copied once, on its way into the host. */
export interface HostBody {
  readonly form: BodyForm;
  readonly bytes: Uint8Array;
}

export type WorkerTask = { readonly kind: 'report' } | (Exclude<Work, { readonly kind: 'compile' }> & HostBody);

/** A task for the compiler thread: the bytes are those of a chat's body that was found valid. */
export interface CompilerTask extends HostBody {
  /** Of calls, by the model's template; absent: no tools are offered. */
  readonly syntax?: CallSyntax;
}
