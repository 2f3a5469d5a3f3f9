/** The interface of what makes prompts of bodies, and the results that it has. */
import type { CompiledConstraint } from '../../engine/prompt/reply-constraint.js';
import type { ReplyFormat } from '../../engine/protocol/reply-format.js';
import type { PairTexts, ScoreQuestion } from '../../engine/protocol/jobs.js';
import type { Prompt } from '../../engine/protocol/prompt.js';
import { placeOf } from '../contracts/body-refusals.js';
import type { BodyForm, ChatRequest, Params } from '../contracts/requests.js';
import { WIDE_OPEN_MAPS } from '../contracts/compatible-schema.js';
import { contractError, type ContractError, type ErrorCode } from '../domain/errors.js';
import type { Signal } from '../lib/abort.js';
import type { WeightedAccount } from '../lib/fair-share.js';
import type { Fault } from '../telemetry/scrub.js';

/** The caller gets this error: the body is invalid, or the host cannot take it now. */
export type Refusal = { readonly kind: 'refused'; readonly error: ContractError };

/** There is no result through a fault of the sidecar or its host, or because of this item, which is not retried. */
export interface Failed {
  readonly kind: 'failed';
  /** A short constant text for the log. */
  readonly reason: string;
  /** What was thrown in the host. */
  readonly fault?: Fault;
}

/** aborted: the signal was aborted. */
export type NoResult = Failed | { readonly kind: 'aborted' };

/** A body checked against its contract. `made`: its prompt, where no tokenizer is needed for it. */
export type Checked =
  { readonly kind: 'checked'; readonly params: Params; readonly made?: Tokenized } | Refusal | NoResult;

/** A prompt as tokens, and how its replies are constrained and parsed. */
export type Tokenized =
  /** With images the prompt has one segment of text, perhaps empty, before, between and after them. */
  | {
      readonly kind: 'chat';
      readonly prompt: Prompt;
      /** Identifies the tokenizer and the template that made it, as in EngineFacts. */
      readonly promptVersion?: string;
      readonly format?: ReplyFormat;
      readonly images?: readonly RequestImage[];
    }
  | {
      readonly kind: 'decision';
      readonly input: Uint32Array;
      readonly questions: readonly ScoreQuestion[];
      readonly promptVersion?: string;
    }
  | {
      readonly kind: 'embedding' | 'rerank';
      /** As in engine/prompt/input-tokens.ts; absent: the inputs begin with nothing in common. */
      readonly head?: Uint32Array;
      readonly tokens: Uint32Array;
      readonly lengths: Uint32Array;
      /** Numbers of a vector of the model; 0: its file does not say. */
      readonly width: number;
      /** Indexes of the inputs whose ends were cut off. */
      readonly truncated: readonly number[];
      /** Of a reranker whose engine scores texts. */
      readonly pairs?: PairTexts;
      readonly promptVersion?: string;
    }
  | Refusal
  | NoResult;

export interface RequestImage {
  /** PNG or JPEG. */
  readonly bytes: Uint8Array;
  /** By its head, px. */
  readonly size: { readonly width: number; readonly height: number };
  /** The caller asks for few tokens (`detail`). */
  readonly low: boolean;
  /** SHA-256 of `bytes`. Never logged. */
  readonly sha256: Uint8Array;
}

/** A request's body in memory, which its owner may free at any time. */
export interface BodyBytes {
  /** Undefined once it was freed. Read them again for each use: a reference to them would keep them in memory. */
  readonly bytes: Uint8Array | undefined;
  readonly length: number;
}

/** One body that is converted to tokens, in two steps: the request enters the model's queue in between, before templating costs time. */
export interface OpenBody {
  /** Parses and validates: inline if the body is small and not `apart`, otherwise in the prompt host. */
  check(signal: Signal, apart?: boolean): Promise<Checked>;
  /** Renders and tokenizes for the model named in the body, always in the prompt host. Call it after `check` succeeded. */
  tokenize(signal: Signal): Promise<Tokenized>;
  /** The body is not needed any more, here and in the host. Its owner frees it. Idempotent. */
  close(): void;
}

/** Turns bodies into tokens outside the sidecar's process: one prompt host, or several for bodies of different lengths. */
export interface PromptMaker {
  /**
   * The body stays its owner's, who must not change it. `owner` is charged with the body's host time. `wanted`: the tokenizer and template
   * for its prompt, if there is a choice; absent: those of new prompts.
   */
  open(form: BodyForm, body: BodyBytes, owner: WeightedAccount, wanted?: ModelPromptVersion): OpenBody;
}

/** The tokenizer and template with which prompts of a model are made. */
export interface ModelPromptVersion {
  readonly model: string;
  /** As in EngineFacts. */
  readonly promptVersion: string;
}

export function refusal(code: ErrorCode, message: string, param: string): Refusal {
  return refused(contractError(code, message, { param }));
}

/** The refusal with an error, such as that of an invalid body. */
export function refused(error: ContractError): Refusal {
  return { kind: 'refused', error };
}

/** `reason`: a short constant text for the log; `fault`: what was thrown. */
export function failed(reason: string, fault?: Fault): Failed {
  return { kind: 'failed', reason, ...(fault && { fault }) };
}

/**
 * The tools' parameters, or the schema for the reply, cannot be enforced. The place is named as in the refusals of a contract: the tool,
 * and of the path the names that are not the caller's.
 */
export function unservable(
  { of, at, why, path = [] }: CompiledConstraint & { kind: 'unservable' },
  form: BodyForm,
  { replySchemaAt = ['response_format'], toolPlaces }: Pick<ChatRequest, 'replySchemaAt' | 'toolPlaces'>,
): Refusal {
  if (of === 'tools' && at === undefined) return refusal('unprocessable', `The schema of the tools ${why}`, 'tools');
  const inTool =
    form === 'responses' ? ['parameters'] : form.startsWith('messages') ? ['input_schema'] : ['function', 'parameters'];
  const tool = segmentsOfPath(toolPlaces?.[at ?? 0] ?? `tools[${at}]`);
  const root = of === 'reply' ? replySchemaAt : [...tool, ...inTool];
  const { subject, param } = placeOf([...root, ...path], WIDE_OPEN_MAPS);
  return refusal('unprocessable', `${subject} ${why}`, param ?? root[0] ?? of);
}

/** `input[0].tools[1]` in pieces. */
function segmentsOfPath(path: string): string[] {
  return path.split(/[.[\]]+/).filter((segment) => segment !== '');
}
