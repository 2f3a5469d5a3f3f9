/** What the Messages API answers: the message object, the events of its stream, models, and errors, as JSON. */
import type { ContractError, ErrorCode } from '../domain/errors.js';
import type { LimitLeft } from '../domain/limit-left.js';
import type { ServedTier } from '../domain/service-class.js';
import type { CompletionUsage, ModelDescription } from './answers.js';

/** What all of one message's answers have in common. */
export interface MessageHead {
  /** `msg_…`. */
  readonly id: string;
  readonly model: string;
  /** As of a completion. */
  readonly tier?: ServedTier | undefined;
}

export type StopReason = 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | 'model_context_window_exceeded';

/** Why a message ended. `sequence`: the stop sequence that ended it. */
export interface MessageStop {
  readonly reason: StopReason;
  readonly sequence: string | null;
}

/** One block of a reply, whole. `input` is the text of a JSON object. */
export type ReplyBlock =
  | { readonly type: 'text' | 'thinking'; readonly text: string }
  | { readonly type: 'tool_use'; readonly id: string; readonly name: string; readonly input: string };

/**
 * The signature of each thought. Clients send a thought back only with one. Nothing is read from it: a thought that comes back is used as
 * its text says.
 */
export const SIGNATURE = 'unsigned';

/** The message object as JSON. Inputs of calls are in it as they were written, so that no number is rounded and no key moves. */
export function messageText(
  head: MessageHead,
  blocks: readonly ReplyBlock[],
  stop: MessageStop,
  usage: CompletionUsage,
): string {
  const content = blocks.map(blockText).join(',');
  const rest = JSON.stringify({
    stop_reason: stop.reason,
    stop_sequence: stop.sequence,
    usage: usageObject(usage, head),
  });
  return `${headText(head)},"content":[${content}],${rest.slice(1)}`;
}

function headText({ id, model }: MessageHead): string {
  return JSON.stringify({ id, type: 'message', role: 'assistant', model }).slice(0, -1);
}

function blockText(block: ReplyBlock): string {
  if (block.type !== 'tool_use') return JSON.stringify(textBlock(block.type, block.text));
  const { type, id, name, input } = block;
  return `${JSON.stringify({ type, id, name }).slice(0, -1)},"input":${input}}`;
}

function textBlock(type: 'text' | 'thinking', text: string): object {
  return type === 'text' ? { type, text } : { type, thinking: text, signature: text === '' ? '' : SIGNATURE };
}

/** Tokens of the prompt that were reused are counted apart, as in Anthropic's API. */
function usageObject(usage: CompletionUsage, { tier }: Pick<MessageHead, 'tier'>): object {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
    output_tokens: completionTokens,
    output_tokens_details: { thinking_tokens: reasoningTokens },
    ...(tier !== undefined && { service_tier: MESSAGE_TIERS[tier] }),
  };
}

/** The names of tiers in Anthropic's API. */
export const MESSAGE_TIERS = {
  default: 'standard',
  flex: 'batch',
  priority: 'priority',
} as const satisfies Record<ServedTier, string>;

/** The first event. Its usage counts no output: some clients add that of the last event to it. */
export function messageStart(head: MessageHead, usage: Pick<CompletionUsage, 'promptTokens' | 'cachedTokens'>): string {
  const { promptTokens, cachedTokens } = usage;
  const counted = usageObject({ promptTokens, cachedTokens, completionTokens: 0, reasoningTokens: 0 }, head);
  const rest = JSON.stringify({ stop_reason: null, stop_sequence: null, usage: counted });
  return `{"type":"message_start","message":${headText(head)},"content":[],${rest.slice(1)}}`;
}

/** A block begins: `id` and `name` of a call. */
export function blockStart(
  index: number,
  block:
    { readonly type: 'text' | 'thinking' } | { readonly type: 'tool_use'; readonly id: string; readonly name: string },
): string {
  const { type } = block;
  const begun = type === 'tool_use' ? { type, id: block.id, name: block.name, input: {} } : textBlock(type, '');
  return JSON.stringify({ type: 'content_block_start', index, content_block: begun });
}

const DELTAS = {
  text: ['text_delta', 'text'],
  thinking: ['thinking_delta', 'thinking'],
  tool_use: ['input_json_delta', 'partial_json'],
  signature: ['signature_delta', 'signature'],
} as const;

/** A block grows, or a thought that is over gets its signature. Written once a token, so by hand. */
export function blockDelta(index: number, kind: keyof typeof DELTAS, text: string): string {
  const [type, field] = DELTAS[kind];
  return `{"type":"content_block_delta","index":${index},"delta":{"type":"${type}","${field}":${JSON.stringify(text)}}}`;
}

export function blockStop(index: number): string {
  return `{"type":"content_block_stop","index":${index}}`;
}

/** The last event but one. Only what the first event did not count: some clients add up the two. */
export function messageDelta({ reason, sequence }: MessageStop, usage: CompletionUsage): string {
  return JSON.stringify({
    type: 'message_delta',
    delta: { stop_reason: reason, stop_sequence: sequence },
    usage: { output_tokens: usage.completionTokens, output_tokens_details: { thinking_tokens: usage.reasoningTokens } },
  });
}

export const MESSAGE_STOP = '{"type":"message_stop"}';
export const PING = '{"type":"ping"}';

export function tokenCount(tokens: number): string {
  return JSON.stringify({ input_tokens: tokens });
}

/** A model as GET /models describes it to clients of the Messages API. */
export function anthropicModel({ id, created, context }: ModelDescription): object {
  return {
    type: 'model',
    id,
    display_name: id,
    created_at: new Date(created * 1000).toISOString(),
    max_input_tokens: context,
    max_tokens: context,
    capabilities: null,
  };
}

/** All models are on the one page. */
export function anthropicModels(models: readonly ModelDescription[]): string {
  return JSON.stringify({
    data: models.map(anthropicModel),
    has_more: false,
    first_id: models[0]?.id ?? null,
    last_id: models.at(-1)?.id ?? null,
  });
}

/** The fields that tell what is left of a limit, at this wall-clock time; none without a limit. */
export function rateLimitFields(
  of: 'requests' | 'tokens',
  left: LimitLeft | undefined,
  now: Date,
): Readonly<Record<string, string>> {
  if (!left) return {};
  const { limit, remaining, resetMs } = left;
  const name = `anthropic-ratelimit-${of}`;
  const seconds = Math.ceil((now.getTime() + resetMs) / 1000);
  const reset = new Date(seconds * 1000).toISOString().replace('.000', '');
  return { [`${name}-limit`]: `${limit}`, [`${name}-remaining`]: `${remaining}`, [`${name}-reset`]: reset };
}

type AnthropicType =
  | 'invalid_request_error'
  | 'authentication_error'
  | 'billing_error'
  | 'permission_error'
  | 'not_found_error'
  | 'conflict_error'
  | 'request_too_large'
  | 'rate_limit_error'
  | 'api_error'
  | 'timeout_error'
  | 'overloaded_error';

/**
 * Each code's type, and its status where that is another than in the catalogue. What a later try can mend is an `overloaded_error`: agents
 * try again after one and end at an `api_error`.
 */
export const MESSAGE_ERRORS: Readonly<Record<ErrorCode, readonly [type: AnthropicType, status?: number]>> = {
  bad_request: ['invalid_request_error'],
  context_length_exceeded: ['invalid_request_error'],
  unsupported_endpoint: ['invalid_request_error'],
  not_found: ['not_found_error'],
  payload_too_large: ['request_too_large'],
  unprocessable: ['invalid_request_error', 400],
  proxy_retired: ['not_found_error'],
  invalid_api_key: ['authentication_error'],
  expired_api_key: ['authentication_error'],
  revoked_api_key: ['authentication_error'],
  model_not_entitled: ['permission_error'],
  not_in_cohort: ['permission_error'],
  account_frozen: ['permission_error'],
  unattributed_key: ['permission_error'],
  insufficient_credit: ['billing_error'],
  user_rate_limited: ['rate_limit_error'],
  quota_exceeded: ['rate_limit_error'],
  capacity_exceeded: ['overloaded_error', 529],
  request_cancelled: ['api_error'],
  idempotency_key_reused: ['conflict_error', 409],
  internal: ['api_error'],
  bad_gateway: ['overloaded_error'],
  upstream_contract_violation: ['overloaded_error'],
  cold: ['overloaded_error'],
  draining: ['overloaded_error'],
  spool_unhealthy: ['overloaded_error'],
  gateway_unavailable: ['overloaded_error'],
  control_plane_overloaded: ['overloaded_error'],
  credit_gate_unavailable: ['overloaded_error'],
  timeout: ['timeout_error'],
};

/** The status of an answer with an error. */
export function messageErrorStatus({ code, status }: Pick<ContractError, 'code' | 'status'>): number {
  return MESSAGE_ERRORS[code][1] ?? status;
}

/** In `details` of a request with `thread`: clients send it again without. */
export const THREAD_CODE = 'thread_unsupported_request';

/** The error object, of an answer and of a stream's last event. `details` has the catalogue's code and the place. */
export function messageErrorText(error: ContractError, requestId: string): string {
  const { code, param } = error;
  const errorCode = param === 'thread' ? THREAD_CODE : code;
  return JSON.stringify({
    type: 'error',
    error: { type: MESSAGE_ERRORS[code][0], message: messageOf(error), details: { error_code: errorCode, param } },
    request_id: requestId,
  });
}

/**
 * Clients act on the exact words of these two messages. They shorten a conversation only after the one about its length; Claude Code takes
 * an image out, and asks again, only after the one about an image.
 */
function messageOf({ message, lengths, image }: ContractError): string {
  if (image) return `could not process image: ${message}`;
  if (lengths === undefined) return message;
  const { prompt, context } = lengths;
  // A prompt that fills the context leaves no room for a reply.
  return `prompt is too long: ${prompt} tokens > ${Math.min(context, prompt - 1)} maximum`;
}
