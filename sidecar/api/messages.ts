/** Anthropic's Messages API, a chat in another form: POST /v1/messages, and /v1/messages/count_tokens. Nothing is stored. */
import { randomUUID } from 'node:crypto';
import type { CompletionUsage } from '../contracts/answers.js';
import {
  blockDelta,
  blockStart,
  blockStop,
  MESSAGE_STOP,
  messageDelta,
  messageErrorStatus,
  messageErrorText,
  messageStart,
  messageText,
  PING,
  rateLimitFields,
  SIGNATURE,
  tokenCount,
  type MessageHead,
  type MessageStop,
  type ReplyBlock,
} from '../contracts/message-answers.js';
import type { ChatParams } from '../contracts/requests.js';
import { promptLength } from '../engine-client/engine.js';
import type { AnswerForm, Exchange } from '../http/exchange.js';
import { AbortHandle } from '../lib/abort.js';
import type { Clock } from '../lib/clock.js';
import { jsonIn } from '../lib/json-in.js';
import { generation, placedPrompt } from './generation.js';
import { preflight, promptFailed, type PreparedRequest } from './preflight.js';
import * as refusals from './refusals.js';
import { newCallId, StreamKeepAlive, type CallPart, type Finished, type Piece, type ReplyWriter } from './replies.js';
import { failed, RequestContext, type Stop } from './request-context.js';
import {
  WORK_ERRORS,
  type ChatTokens,
  type PlainRoute,
  type RouteChecks,
  type WorkRequest,
  type WorkRoute,
} from './route.js';
import type { Services } from './services.js';

/** Of all answers to clients of the Messages API. */
export const MESSAGES_FORM: AnswerForm = {
  limitFields: ({ requests, tokens }, now) =>
    Object.assign({}, rateLimitFields('requests', requests, now), rateLimitFields('tokens', tokens, now)),
  fields: (requestId) => ({ 'request-id': requestId }),
  statusOf: messageErrorStatus,
  errorText: messageErrorText,
};

const CHECKS = {
  operation: 'chat',
  entitlement: 'chat',
  kind: 'chat',
  maxBytes: ({ chatBytes }: Services['limits']) => chatBytes,
  form: ({ billingLine }: Pick<Services, 'billingLine'>) => (billingLine === 'keep' ? 'messages-billed' : 'messages'),
  takesApiKey: true,
} as const satisfies Omit<RouteChecks, 'name'>;

export const MESSAGES: WorkRoute<ChatParams, ChatTokens> = {
  name: 'messages',
  ...CHECKS,
  answerForm: () => MESSAGES_FORM,
  begin: (request) => generation(request, makeWriter),
  reference: {
    compatibleOnly: true,
    path: '/v1/messages',
    method: 'post',
    id: 'createMessage',
    tag: 'chat',
    summary: 'A chat in the form of Anthropic’s Messages API',
    description:
      'Under `contract: compatible`. The whole conversation is sent as `messages`. With `stream: true` server-sent events, each with its ' +
      '`type` as its name; the last is `message_stop` or, for a stream that ends early, `error` (docs/compatible.md#messages-api).',
    key: true,
    request: 'MessagesRequest',
    answer: 'MessageObject',
    frames: ['MessageEvent', 'MessageError'],
    errors: [...WORK_ERRORS, 'context_length_exceeded'],
    messageErrors: true,
  },
};

export const COUNT_TOKENS: PlainRoute = {
  answerForm: () => MESSAGES_FORM,
  serve: countTokens,
  reference: {
    compatibleOnly: true,
    path: '/v1/messages/count_tokens',
    method: 'post',
    id: 'countTokens',
    tag: 'chat',
    summary: 'How many tokens the prompt of a message would have',
    description:
      'Under `contract: compatible`. The body of `POST /v1/messages`, whose fields about the reply have no effect. It costs nothing, and counts ' +
      'against the limits of chat.',
    key: true,
    request: 'MessagesRequest',
    answer: 'TokenCount',
    errors: [...WORK_ERRORS, 'context_length_exceeded'],
    messageErrors: true,
  },
};

async function countTokens(exchange: Exchange, services: Services): Promise<void> {
  // Without an operation: it is none of the requests that a model's metrics count.
  const context = new RequestContext(exchange, { name: 'count_tokens', takesApiKey: true }, services);
  try {
    const prepared = await preflight<ChatParams>(context, { name: 'count_tokens', ...CHECKS }, services);
    const counted = prepared.kind === 'prepared' ? await countOf(context, prepared) : prepared;
    if (typeof counted === 'number') context.reply({ status: 200, body: tokenCount(counted) });
    else context.stop(counted);
  } finally {
    context.close();
  }
}

/** The tokens of a request's prompt, as its usage would have them. */
async function countOf(
  context: RequestContext,
  { params, model, caller, body }: PreparedRequest<ChatParams>,
): Promise<number | Stop> {
  if (params.firstImage !== undefined && !model.vision) return failed(refusals.noVision(params.firstImage));
  const lost = new AbortHandle();
  const clear = context.onInterruption(() => lost.abort());
  const tokens = await body.tokenize(lost);
  clear();
  if (tokens.kind === 'aborted')
    return context.exchange.gone.aborted ? { kind: 'cancelled' } : failed(refusals.timedOut());
  if (tokens.kind === 'refused') return failed(tokens.error);
  if (tokens.kind === 'failed') return promptFailed(context, tokens);
  if (tokens.kind !== 'chat') return promptFailed(context, { reason: 'made for another route' });
  const placed = await placedPrompt({ params, model, account: caller.account }, tokens);
  if (placed.kind === 'refused') return failed(placed.error);
  placed.images?.close();
  return promptLength(placed.prompt);
}

function makeWriter({ context, params, model, usage, services }: WorkRequest<ChatParams>): ReplyWriter {
  const head: MessageHead = { id: `msg_${randomUUID().replaceAll('-', '')}`, model: model.id, tier: context.tier };
  const isBounded = (tokens: number): boolean => tokens >= (params.maxTokens ?? Infinity) || usage.isCut;
  if (!params.stream) return new WholeMessageWriter(context, head, isBounded);
  const { clock, limits } = services;
  return new MessageStreamWriter(context, head, { isBounded, clock, keepAliveMs: limits.keepAliveMs });
}

/** Whether a reply that was cut at so many tokens was cut at a bound of its caller: of the request, or of a quota or credit. */
type IsBounded = (tokens: number) => boolean;

/** A block that grows. */
type Draft =
  { readonly type: 'text' | 'thinking' } | { readonly type: 'tool_use'; readonly id: string; readonly name: string };

/** Makes blocks of a reply, one after another. Its two subclasses define what is done for each. */
abstract class BlockWriter implements ReplyWriter {
  protected readonly context: RequestContext;
  protected readonly head: MessageHead;
  readonly #isBounded: IsBounded;
  #draft: Draft | undefined;
  #stop: MessageStop = { reason: 'end_turn', sequence: null };

  constructor(context: RequestContext, head: MessageHead, isBounded: IsBounded) {
    this.context = context;
    this.head = head;
    this.#isBounded = isBounded;
  }

  protected abstract begun(draft: Draft): void;
  protected abstract grew(draft: Draft, text: string): void;
  protected abstract ended(draft: Draft): void;
  protected abstract stopped(stop: MessageStop, usage: CompletionUsage): void;

  piece({ channel, text }: Piece): void {
    const type = channel === 'content' ? 'text' : 'thinking';
    this.grew(this.#draft?.type === type ? this.#draft : this.#begin({ type }), text);
  }

  call({ name, arguments: text }: CallPart): void {
    const draft = name === undefined ? this.#draft : this.#begin({ type: 'tool_use', id: newCallId(), name });
    if (draft && text !== '') this.grew(draft, text);
  }

  finished({ reason, matchedStop, completionTokens }: Finished): void {
    this.#end();
    const atMost = this.#isBounded(completionTokens);
    this.#stop =
      typeof matchedStop === 'string'
        ? { reason: 'stop_sequence', sequence: matchedStop }
        : { reason: reason === 'length' && !atMost ? 'model_context_window_exceeded' : STOPS[reason], sequence: null };
  }

  done(usage: CompletionUsage): void {
    this.stopped(this.#stop, usage);
  }

  #begin(draft: Draft): Draft {
    this.#end();
    this.#draft = draft;
    this.begun(draft);
    return draft;
  }

  #end(): void {
    if (this.#draft) this.ended(this.#draft);
    this.#draft = undefined;
  }
}

const STOPS = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' } as const;

/** One JSON body at the end. */
export class WholeMessageWriter extends BlockWriter {
  readonly #blocks: ReplyBlock[] = [];
  #parts: string[] = [];

  protected begun(): void {
    this.#parts = [];
  }

  protected grew(_draft: Draft, text: string): void {
    this.#parts.push(text);
  }

  protected ended(draft: Draft): void {
    const text = this.#parts.join('');
    if (draft.type !== 'tool_use') this.#blocks.push({ type: draft.type, text });
    // A call that the reply's longest length has cut is left out.
    else if (jsonIn(text) !== undefined)
      this.#blocks.push({ type: draft.type, id: draft.id, name: draft.name, input: text });
  }

  protected stopped(stop: MessageStop, usage: CompletionUsage): void {
    const headers = { 'Server-Timing': this.context.times.header() };
    this.context.reply({ status: 200, headers, body: messageText(this.head, this.#blocks, stop, usage) });
  }
}

/**
 * Server-sent events, each with its `type` as its name. As for a chat, the 200 is sent with the first token, or with a ping after one
 * keep-alive interval without a token. `message_start` comes with the first token, when it is known how much of the prompt was reused.
 */
export class MessageStreamWriter extends BlockWriter {
  readonly #keepAlive: StreamKeepAlive;
  #started = false;
  #index = 0;

  constructor(
    context: RequestContext,
    head: MessageHead,
    { isBounded, clock, keepAliveMs }: { isBounded: IsBounded; clock: Clock; keepAliveMs: number },
  ) {
    super(context, head, isBounded);
    const idle = (): void => {
      if (!context.hasEnded) context.stream().event(PING, 'ping');
    };
    this.#keepAlive = new StreamKeepAlive(clock, keepAliveMs, idle, context.tellPlace);
    context.onClose(() => this.#keepAlive.close());
    context.frames = { named: true };
  }

  protected begun(draft: Draft): void {
    this.#start();
    this.#send('content_block_start', blockStart(this.#index, draft));
  }

  protected grew({ type }: Draft, text: string): void {
    this.#send('content_block_delta', blockDelta(this.#index, type, text));
  }

  protected ended({ type }: Draft): void {
    if (type === 'thinking') this.#send('content_block_delta', blockDelta(this.#index, 'signature', SIGNATURE));
    this.#send('content_block_stop', blockStop(this.#index));
    this.#index += 1;
  }

  protected stopped(stop: MessageStop, usage: CompletionUsage): void {
    this.#start();
    this.#send('message_delta', messageDelta(stop, usage));
    this.#send('message_stop', MESSAGE_STOP);
    this.context.stream().end(this.context.times.trailer());
    this.context.ended(200);
  }

  #start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#send('message_start', messageStart(this.head, this.context));
  }

  #send(type: string, event: string): void {
    this.#keepAlive.sent();
    this.context.stream().event(event, type);
  }
}
