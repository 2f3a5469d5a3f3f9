/** What POST /responses answers, as JSON texts: the response object and the events of its stream. */
import type { ContractError, ErrorCode } from '../domain/errors.js';
import type { ServedTier } from '../domain/service-class.js';
import { costFields, type CompletionUsage } from './answers.js';
import type { ChatParams } from './requests.js';

/** What all of one response's answers have in common. */
export interface ResponseHead {
  /** `resp_…`. */
  readonly id: string;
  /** Unix time in seconds. */
  readonly created: number;
  readonly model: string;
  readonly params: ChatParams;
  /** As of a completion. */
  readonly tier?: ServedTier | undefined;
  /** Unix time in seconds when it is called. */
  readonly now: () => number;
}

export type ResponseItem =
  | { readonly type: 'reasoning'; readonly id: string; readonly text: string }
  | { readonly type: 'message'; readonly id: string; readonly text: string }
  | {
      readonly type: 'function_call';
      readonly id: string;
      readonly callId: string;
      readonly name: string;
      /** Absent: the function is in none. */
      readonly namespace?: string;
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
    case 'function_call': {
      const { callId, name, namespace, text } = item;
      const named = { name, ...(namespace !== undefined && { namespace }) };
      return { id, type, status, call_id: callId, ...named, arguments: begun ? '' : text };
    }
  }
}

/** The one part of an item's content; undefined if a call has none. */
export function contentPart(type: ResponseItem['type'], text: string): object | undefined {
  if (type === 'function_call') return undefined;
  return type === 'message'
    ? { type: 'output_text', text, annotations: [], logprobs: [] }
    : { type: 'reasoning_text', text };
}

/** How a response ended: `incomplete` at its longest length, or with an error. */
export type ResponseEnd =
  | { readonly output: readonly ResponseItem[]; readonly usage: CompletionUsage; readonly incomplete: boolean }
  | { readonly output: readonly ResponseItem[]; readonly error: ContractError };

/** The response object. The caller's content (instructions, tools, schema) is not repeated: the sidecar does not keep it once parsed. */
export function responseObject({ id, created, model, params, tier, now }: ResponseHead, end?: ResponseEnd): object {
  const { maxTokens, temperature, topP, calls, reasoningEffort, jsonObject } = params;
  const incomplete = end !== undefined && 'incomplete' in end && end.incomplete;
  const error = end !== undefined && 'error' in end ? end.error : undefined;
  const status = error ? 'failed' : incomplete ? 'incomplete' : 'completed';
  return {
    id,
    object: 'response',
    created_at: created,
    completed_at: end === undefined || status !== 'completed' ? null : now(),
    status: end === undefined ? 'in_progress' : status,
    background: false,
    frequency_penalty: 0,
    error: error ? failureOf(error) : null,
    incomplete_details: incomplete ? { reason: 'max_output_tokens' } : null,
    instructions: null,
    max_output_tokens: maxTokens ?? null,
    model,
    output: (end?.output ?? []).map((item, i, all) =>
      itemObject(item, incomplete && i === all.length - 1 ? 'incomplete' : 'completed'),
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
    usage: end !== undefined && 'usage' in end ? usageOf(end.usage) : null,
    user: null,
    metadata: {},
    ...(tier !== undefined && { service_tier: tier }),
  };
}

function usageOf({ promptTokens, cachedTokens, completionTokens, reasoningTokens, costs }: CompletionUsage): object {
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
    ...(costs && costFields(costs, ['input', 'output'])),
  };
}

/** One event of a stream, numbered from 0 on. */
export function responseEvent(type: string, number: number, fields: object): string {
  return JSON.stringify({ type, sequence_number: number, ...fields });
}

/** OpenAI's codes of failed responses, by which clients decide whether to try again. Absent: `server_error`, where they do. */
const FAILURES: Partial<Record<ErrorCode, string>> = {
  context_length_exceeded: 'context_length_exceeded',
  bad_request: 'invalid_prompt',
  unprocessable: 'invalid_prompt',
  unsupported_endpoint: 'invalid_prompt',
  insufficient_credit: 'insufficient_quota',
  quota_exceeded: 'insufficient_quota',
  capacity_exceeded: 'rate_limit_exceeded',
  user_rate_limited: 'rate_limit_exceeded',
};

/** The error of a failed response. */
function failureOf({ code, message }: ContractError): object {
  return { code: FAILURES[code] ?? 'server_error', message };
}

/**
 * The event of a stream that ends early; none follows it. Beside the response it has the error object: OpenAI's own clients throw a typed
 * error for an event that has one, and read past an event without.
 */
export function failedEvent(
  head: ResponseHead,
  output: readonly ResponseItem[],
  error: ContractError,
  number: number,
): string {
  const { code, message, param, type } = error;
  const response = responseObject(head, { output, error });
  return responseEvent('response.failed', number, { response, error: { message, type, code, param } });
}
