/** What chat and the model list answer, as JSON text, by hand where it is written per token. Tests check it by answer-schemas.ts. */
import { formatUsd, usdNumber, type Costs, type Rates, type TokenCounts } from '../domain/money.js';
import type { ServedTier } from '../domain/service-class.js';
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
  /** The tier that it is served in. Undefined: the request asks for none. */
  readonly tier?: ServedTier | undefined;
}

/** Tokens of one request: the prompt once, the completions of all choices together. */
export interface CompletionUsage extends TokenCounts {
  /** Of the completion tokens, those of thought. 0 leaves the detail out. */
  readonly reasoningTokens: number;
  /** What they cost. Absent: it is not told, as under `contract: strict`. */
  readonly costs?: Costs;
}

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
    // JSON leaves out what is undefined.
    service_tier: head.tier,
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
    ...(usage.costs && costFields(usage.costs, ['prompt', 'completions'])),
  };
}

/**
 * The cost in USD, as OpenRouter's clients read it. `kinds`: what its API calls input and output. There is no `upstream_inference_cost`,
 * which clients add to the cost.
 */
export function costFields({ input, cachedInput, output }: Costs, kinds: readonly [string, string]): object {
  const prompt = input + cachedInput;
  return {
    cost: usdNumber(prompt + output),
    cost_details: {
      [`upstream_inference_${kinds[0]}_cost`]: usdNumber(prompt),
      [`upstream_inference_${kinds[1]}_cost`]: usdNumber(output),
    },
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
    service_tier: head.tier,
  });
  return `${fields.slice(0, -1)},"choices":[` as ChunkHead;
}

/** A chunk with whole characters of one choice's text or thought. */
export function chatChunk(head: ChunkHead, choice: number, channel: 'content' | 'reasoning', text: string): string {
  const field = channel === 'content' ? 'content' : 'reasoning_content';
  return `${head}{"index":${choice},"delta":{"${field}":${JSON.stringify(text)}},"finish_reason":null}]}`;
}

export function roleChunk(head: ChunkHead, choice: number): string {
  return `${head}{"index":${choice},"delta":{"role":"assistant","content":""},"finish_reason":null}]}`;
}

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

export interface ListedModel {
  readonly id: string;
  /** Unix time in seconds. */
  readonly created: number;
  readonly ownedBy: string;
}

/** What the list says of a model under `contract: compatible`. */
export interface ModelDescription extends ListedModel {
  readonly kind: 'chat' | 'decision' | 'embedding' | 'rerank';
  /** Tokens of its longest seat, which prompt and reply share. */
  readonly context: number;
  readonly takesImages: boolean;
  /** What a chat model's template can do; undefined if it is not known yet. */
  readonly template: { readonly tools: boolean; readonly thoughts?: boolean } | undefined;
  /** The rates of requests that start now. */
  readonly rates: Rates;
}

export function modelList(models: readonly ListedModel[]): string {
  return JSON.stringify({ object: 'list', data: models.map(modelObject) });
}

function modelObject({ id, created, ownedBy }: ListedModel): object {
  return { id, object: 'model', created, owned_by: ownedBy };
}

/** GET /models under `contract: compatible`. */
export function describedModelList(models: readonly ModelDescription[]): string {
  return JSON.stringify({ object: 'list', data: models.map(describedModel) });
}

/** Fields of a chat that every model takes, by the names of OpenRouter's list. */
const PARAMETERS = [
  'frequency_penalty',
  'max_completion_tokens',
  'max_tokens',
  'min_p',
  'n',
  'presence_penalty',
  'response_format',
  'seed',
  'stop',
  'structured_outputs',
  'temperature',
  'top_k',
  'top_p',
];
const TOOL_PARAMETERS = ['parallel_tool_calls', 'tool_choice', 'tools'];
const THOUGHT_PARAMETERS = ['reasoning', 'reasoning_effort'];

/**
 * GET /models/{id}, which exists under `contract: compatible` alone. Clients look for a model's context under different names. A reply may
 * use all of the context that its prompt leaves.
 */
export function describedModel(model: ModelDescription): object {
  const { id, kind, context, takesImages, template, rates } = model;
  return {
    ...modelObject(model),
    name: id,
    context_length: context,
    context_window: context,
    max_model_len: context,
    max_input_tokens: context,
    max_output_tokens: context,
    max_tokens: context,
    meta: { n_ctx: context },
    architecture: {
      input_modalities: takesImages ? ['text', 'image'] : ['text'],
      output_modalities: [kind === 'embedding' ? 'embeddings' : kind === 'rerank' ? 'rerank' : 'text'],
    },
    ...(template && {
      supported_parameters: [
        ...PARAMETERS,
        ...(template.tools ? TOOL_PARAMETERS : []),
        ...(template.thoughts === true ? THOUGHT_PARAMETERS : []),
      ],
    }),
    pricing: {
      prompt: formatUsd(rates.input),
      completion: formatUsd(rates.output),
      input_cache_read: formatUsd(rates.cachedInput),
    },
  };
}
