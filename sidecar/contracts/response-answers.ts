/** What POST /responses answers, as JSON texts: the response object and the events of its stream. */
import type { ContractError } from '../domain/errors.js';
import type { CompletionUsage } from './answers.js';
import type { ChatParams } from './requests.js';

/** What all of one response's answers have in common. */
export interface ResponseHead {
  /** `resp_…`. */
  readonly id: string;
  /** Unix time in seconds. */
  readonly created: number;
  readonly model: string;
  readonly params: ChatParams;
  /** Unix time in seconds when it is called. */
  readonly now: () => number;
}

/** One item of a response, whole. */
export type ResponseItem =
  | { readonly type: 'reasoning'; readonly id: string; readonly text: string }
  | { readonly type: 'message'; readonly id: string; readonly text: string }
  | {
      readonly type: 'function_call';
      readonly id: string;
      readonly callId: string;
      readonly name: string;
      readonly text: string;
    };

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** An item as the wire has it. In progress it is empty: its text comes in deltas. */
export function itemObject(item: ResponseItem, status: ItemStatus): object {
  const { id, type } = item;
  const begun = status === 'in_progress';
  switch (type) {
    case 'reasoning':
      return { id, type, summary: [], content: begun ? [] : [contentPart(type, item.text)], status };
    case 'message':
      return { id, type, status, role: 'assistant', content: begun ? [] : [contentPart(type, item.text)] };
    case 'function_call':
      return { id, type, status, call_id: item.callId, name: item.name, arguments: begun ? '' : item.text };
  }
}

/** The one part of an item's content; undefined: a call has none. */
export function contentPart(type: ResponseItem['type'], text: string): object | undefined {
  if (type === 'function_call') return undefined;
  return type === 'message'
    ? { type: 'output_text', text, annotations: [], logprobs: [] }
    : { type: 'reasoning_text', text };
}

/** How a response stands: absent `usage`, it is under way. `incomplete`: it ended at its longest length. */
export interface ResponseEnd {
  readonly output: readonly ResponseItem[];
  readonly usage: CompletionUsage;
  readonly incomplete: boolean;
}

/**
 * The response object. What the caller sent as content (instructions, tools, schema) is not repeated: the
 * sidecar does not keep it once the body was parsed.
 */
export function responseObject({ id, created, model, params, now }: ResponseHead, end?: ResponseEnd): object {
  const { maxTokens, temperature, topP, calls, reasoningEffort, jsonObject } = params;
  return {
    id,
    object: 'response',
    created_at: created,
    completed_at: end === undefined || end.incomplete ? null : now(),
    status: end === undefined ? 'in_progress' : end.incomplete ? 'incomplete' : 'completed',
    background: false,
    frequency_penalty: 0,
    error: null,
    incomplete_details: end?.incomplete === true ? { reason: 'max_output_tokens' } : null,
    instructions: null,
    max_output_tokens: maxTokens ?? null,
    model,
    output: (end?.output ?? []).map((item, i, all) =>
      itemObject(item, end?.incomplete === true && i === all.length - 1 ? 'incomplete' : 'completed'),
    ),
    parallel_tool_calls: calls?.parallel ?? true,
    presence_penalty: 0,
    previous_response_id: null,
    reasoning: { effort: reasoningEffort ?? null, summary: null },
    store: false,
    temperature,
    text: { format: { type: jsonObject ? 'json_object' : 'text' } },
    tool_choice: calls?.required === true ? 'required' : 'auto',
    tools: [],
    top_p: topP,
    truncation: 'disabled',
    usage: end === undefined ? null : usageOf(end.usage),
    user: null,
    metadata: {},
  };
}

function usageOf({ promptTokens, cachedTokens, completionTokens, reasoningTokens }: CompletionUsage): object {
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
  };
}

/** One event of a stream, numbered from 0 on. */
export function responseEvent(type: string, number: number, fields: object): string {
  return JSON.stringify({ type, sequence_number: number, ...fields });
}

/**
 * The event of a stream that ends early; none follows it. OpenAI's reference has the fields at the top. What OpenAI sends, and
 * its own clients and the AI SDK take for an error, has them under `error`. So it has both.
 */
export function errorEvent({ code, message, param, type }: ContractError, number: number): string {
  return responseEvent('error', number, { code, message, param, error: { message, type, code, param } });
}
