/**
 * What chat and model listing answer, as JSON text. Written by hand where it is written per token: one JSON.stringify of
 * the new characters and a concatenation. Tests check every shape against `answer-schemas.ts`.
 */
import type { ToolCall } from './requests.js';

export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter' | 'function_call';

/** What all answers to one request have in common. */
export interface CompletionHead {
  /** 1 to 256 characters; the same in every chunk. */
  readonly id: string;
  /** Unix time in seconds; the same in every chunk. */
  readonly created: number;
  readonly model: string;
  /** At most 120 characters. */
  readonly fingerprint: string;
}

/** Tokens of one request: the prompt once, the completions of all choices together. */
export interface CompletionUsage {
  readonly promptTokens: number;
  /** Prompt tokens whose KV state was reused. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Of the completion tokens, those of thought. 0 leaves the detail out. */
  readonly reasoningTokens: number;
}

/** One whole reply. */
export interface CompletionChoice {
  readonly content: string | null;
  readonly reasoning?: string;
  readonly toolCalls?: readonly ToolCall[];
  readonly finishReason: FinishReason;
  /** The stop string that ended it, or the id of the end token. */
  readonly matchedStop?: string | number;
}

/** The chat completion object. `choices` in order of their index; `weightVersion` names the weights that made them all. */
export function chatCompletion(
  head: CompletionHead,
  choices: readonly CompletionChoice[],
  usage: CompletionUsage,
  weightVersion: string,
): string {
  return JSON.stringify({
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    system_fingerprint: head.fingerprint,
    choices: choices.map((choice, index) => ({
      index,
      message: messageOf(choice),
      finish_reason: choice.finishReason,
      ...(choice.matchedStop !== undefined && { matched_stop: choice.matchedStop }),
    })),
    usage: usageObject(usage),
    metadata: {
      weight_version: weightVersion,
      weight_versions: [{ version: weightVersion, start: 0, end: usage.completionTokens }],
    },
  });
}

function messageOf({ content, reasoning, toolCalls }: CompletionChoice): object {
  return {
    role: 'assistant',
    content,
    ...(reasoning !== undefined && { reasoning_content: reasoning }),
    ...(toolCalls !== undefined && { tool_calls: toolCalls.map((call, index) => ({ index, ...call })) }),
  };
}

/** The usage object (docs/contract.md#usage). */
function usageObject(usage: CompletionUsage): object {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    ...(usage.reasoningTokens > 0 && { completion_tokens_details: { reasoning_tokens: usage.reasoningTokens } }),
  };
}

/** The beginning that all chunks of one stream share. Made once a stream by {@link chunkHead}. */
export type ChunkHead = string & { readonly chunkHead: true };

export function chunkHead(head: CompletionHead): ChunkHead {
  const fields = JSON.stringify({
    id: head.id,
    object: 'chat.completion.chunk',
    created: head.created,
    model: head.model,
    system_fingerprint: head.fingerprint,
  });
  return `${fields.slice(0, -1)},"choices":[` as ChunkHead;
}

/** A chunk with whole characters of one choice's text or thought. */
export function chatChunk(head: ChunkHead, choice: number, channel: 'content' | 'reasoning', text: string): string {
  const field = channel === 'content' ? 'content' : 'reasoning_content';
  return `${head}{"index":${choice},"delta":{"${field}":${JSON.stringify(text)}},"finish_reason":null}]}`;
}

/** The first chunk of a choice. */
export function roleChunk(head: ChunkHead, choice: number): string {
  return `${head}{"index":${choice},"delta":{"role":"assistant","content":""},"finish_reason":null}]}`;
}

/** The last chunk of a choice. */
export function finishChunk(head: ChunkHead, choice: number, reason: FinishReason): string {
  return `${head}{"index":${choice},"delta":{},"finish_reason":"${reason}"}]}`;
}

/** The first piece of a tool call names it; later ones add to its arguments. */
export type ToolCallPiece =
  | { readonly index: number; readonly id: string; readonly name: string; readonly arguments: string }
  | { readonly index: number; readonly arguments: string };

export function toolCallChunk(head: ChunkHead, choice: number, piece: ToolCallPiece): string {
  const call =
    'id' in piece
      ? {
          index: piece.index,
          id: piece.id,
          type: 'function',
          function: { name: piece.name, arguments: piece.arguments },
        }
      : { index: piece.index, function: { arguments: piece.arguments } };
  return `${head}{"index":${choice},"delta":{"tool_calls":[${JSON.stringify(call)}]},"finish_reason":null}]}`;
}

/** The chunk that `stream_options.include_usage` asks for: no choices, sent once before `[DONE]`. */
export function usageChunk(head: ChunkHead, usage: CompletionUsage): string {
  return `${head}],"usage":${JSON.stringify(usageObject(usage))}}`;
}

/** A chunk with the usage so far (`stream_options.continuous_usage_stats`). */
export function withUsage(chunk: string, usage: CompletionUsage): string {
  return `${chunk.slice(0, -1)},"usage":${JSON.stringify(usageObject(usage))}}`;
}

/** A model of the list. */
export interface ListedModel {
  readonly id: string;
  /** Unix time in seconds. */
  readonly created: number;
  readonly ownedBy: string;
  /** Tokens of its longest seat, prompt and reply together. Absent under the strict contract. */
  readonly context?: number;
}

/** GET /models/{id}. */
export function modelObject(model: ListedModel): string {
  return JSON.stringify(modelFields(model));
}

/** GET /models. */
export function modelList(models: readonly ListedModel[]): string {
  return JSON.stringify({ object: 'list', data: models.map(modelFields) });
}

/** The context has vLLM's name for it, which load tools and gateways read. */
function modelFields({ id, created, ownedBy, context }: ListedModel): object {
  const window = context === undefined ? {} : { max_model_len: context };
  return { id, object: 'model', created, owned_by: ownedBy, ...window };
}
