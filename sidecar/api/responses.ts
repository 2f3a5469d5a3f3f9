/** POST /v1/responses, whole or streamed: a chat in the form of the Responses API. Nothing is stored. */
import { randomUUID } from 'node:crypto';
import type { CompletionUsage } from '../contracts/answers.js';
import type { ChatParams } from '../contracts/requests.js';
import {
  contentPart,
  failedEvent,
  itemObject,
  responseEvent,
  responseObject,
  type ResponseHead,
  type ResponseItem,
} from '../contracts/response-answers.js';
import { functionNamed } from '../contracts/responses.js';
import type { Clock } from '../lib/clock.js';
import { generation } from './generation.js';
import { newCallId, StreamKeepAlive, type CallPart, type Finished, type Piece, type ReplyWriter } from './replies.js';
import type { RequestContext } from './request-context.js';
import { WORK_ERRORS, type ChatTokens, type WorkRequest, type WorkRoute } from './route.js';

export const RESPONSES: WorkRoute<ChatParams, ChatTokens> = {
  name: 'responses',
  operation: 'chat',
  entitlement: 'chat',
  kind: 'chat',
  maxBytes: ({ chatBytes }) => chatBytes,
  form: () => 'responses',
  fieldNames: { messages: 'input', max_completion_tokens: 'max_output_tokens', response_format: 'text.format' },
  begin: (request) => generation(request, makeWriter),
  reference: {
    compatibleOnly: true,
    path: '/v1/responses',
    method: 'post',
    id: 'createResponse',
    tag: 'chat',
    summary: 'A chat in the form of the Responses API',
    description:
      'Under `contract: compatible`. Nothing is stored, and the whole conversation is sent as `input`. With `stream: true` server-sent events ' +
      'whose data has a `type`; the last is `response.completed`, `response.incomplete` or, for a stream that ends early, `response.failed` ' +
      '(docs/compatible.md#responses). The header `x-ra-tools-left-out` has the types of tools that are not offered to the model.',
    key: true,
    request: 'ResponsesRequest',
    answer: 'Response',
    frames: ['ResponseEvent'],
    errors: [...WORK_ERRORS, 'context_length_exceeded'],
  },
};

function makeWriter({ context, params, model, services }: WorkRequest<ChatParams>): ReplyWriter {
  const now = (): number => Math.floor(services.date().getTime() / 1000);
  const head: ResponseHead = {
    id: `resp_${randomUUID().replaceAll('-', '')}`,
    created: now(),
    now,
    model: model.id,
    params,
    tier: context.tier,
  };
  if (!params.stream) return new WholeResponseWriter(context, head);
  const { clock, limits } = services;
  return new ResponseStreamWriter(context, head, { clock, keepAliveMs: limits.keepAliveMs });
}

/** The item to which pieces are added. */
interface Draft {
  readonly begun: ResponseItem;
  readonly index: number;
  readonly parts: string[];
}

/** Makes items of a reply, one after another. A subclass may send something for each part of an item. */
abstract class ItemWriter implements ReplyWriter {
  protected readonly context: RequestContext;
  protected readonly head: ResponseHead;
  readonly #items: ResponseItem[] = [];
  #draft: Draft | undefined;
  #incomplete = false;

  constructor(context: RequestContext, head: ResponseHead) {
    this.context = context;
    this.head = head;
  }

  protected itemBegun?(draft: Draft): void;
  protected itemGrew?(draft: Draft, text: string): void;
  protected itemEnded?(draft: Draft, item: ResponseItem, incomplete: boolean): void;
  protected abstract ended(response: object, incomplete: boolean): void;

  piece({ channel, text }: Piece): void {
    const type = channel === 'content' ? 'message' : 'reasoning';
    if (this.#draft?.begun.type !== type) this.#begin({ type, id: newId(type), text: '' });
    this.#add(text);
  }

  call({ name, arguments: part }: CallPart): void {
    if (name !== undefined) {
      const called = functionNamed(name, this.head.params);
      this.#begin({ type: 'function_call', id: newId('function_call'), callId: newCallId(), ...called, text: '' });
    }
    this.#add(part);
  }

  finished({ reason }: Finished): void {
    this.#incomplete = reason === 'length';
    this.#finish();
  }

  done(usage: CompletionUsage): void {
    this.ended(
      responseObject(this.head, { output: this.#items, usage, incomplete: this.#incomplete }),
      this.#incomplete,
    );
  }

  /** Those that are complete. */
  protected get items(): readonly ResponseItem[] {
    return this.#items;
  }

  #begin(begun: ResponseItem): void {
    this.#finish();
    this.#draft = { begun, index: this.#items.length, parts: [] };
    this.itemBegun?.(this.#draft);
  }

  #add(text: string): void {
    if (!this.#draft || text === '') return;
    this.#draft.parts.push(text);
    this.itemGrew?.(this.#draft, text);
  }

  #finish(): void {
    const draft = this.#draft;
    if (!draft) return;
    this.#draft = undefined;
    const item = Object.assign({}, draft.begun, { text: draft.parts.join('') });
    this.#items.push(item);
    this.itemEnded?.(draft, item, this.#incomplete);
  }
}

/** One JSON body at the end. */
export class WholeResponseWriter extends ItemWriter {
  protected ended(response: object): void {
    const headers = { 'Server-Timing': this.context.times.header() };
    this.context.reply({ status: 200, headers, body: JSON.stringify(response) });
  }
}

/**
 * Server-sent events, each a frame with its `type` as its name and in its data. As for a chat, the 200 is sent with the first token, or
 * after one keep-alive interval without a token.
 */
export class ResponseStreamWriter extends ItemWriter {
  readonly #keepAlive: StreamKeepAlive;
  #number = 0;

  constructor(context: RequestContext, head: ResponseHead, options: { clock: Clock; keepAliveMs: number }) {
    super(context, head);
    const idle = (): void => {
      if (context.hasEnded) return;
      // Before the first token the first events are sent, since clients accept no other event before these. Later it is an event
      // too: a comment does not end a client's wait for the next event, which Codex bounds by five minutes.
      if (this.#number === 0) this.#greet();
      else this.#send('keepalive', {});
    };
    this.#keepAlive = new StreamKeepAlive(options.clock, options.keepAliveMs, idle, context.tellPlace);
    context.onClose(() => this.#keepAlive.close());
    context.frames = {
      named: true,
      errorName: 'response.failed',
      errorFrame: (error) => failedEvent(head, this.items, error, this.#number++),
    };
  }

  protected override itemBegun({ begun, index }: Draft): void {
    this.#greet();
    this.#send('response.output_item.added', { output_index: index, item: itemObject(begun, 'in_progress') });
    const part = contentPart(begun.type, '');
    if (part) this.#send('response.content_part.added', { part, ...placeOf(begun, index) });
  }

  protected override itemGrew({ begun, index }: Draft, delta: string): void {
    switch (begun.type) {
      case 'message':
        this.#send('response.output_text.delta', { delta, logprobs: [], ...placeOf(begun, index) });
        return;
      case 'reasoning':
        this.#send('response.reasoning_text.delta', { delta, ...placeOf(begun, index) });
        return;
      case 'function_call':
        this.#send('response.function_call_arguments.delta', { item_id: begun.id, output_index: index, delta });
    }
  }

  protected override itemEnded({ index }: Draft, item: ResponseItem, incomplete: boolean): void {
    const { text } = item;
    const place = placeOf(item, index);
    switch (item.type) {
      case 'message':
        this.#send('response.output_text.done', { text, logprobs: [], ...place });
        break;
      case 'reasoning':
        this.#send('response.reasoning_text.done', { text, ...place });
        break;
      case 'function_call':
        this.#send('response.function_call_arguments.done', {
          item_id: item.id,
          output_index: index,
          name: item.name,
          arguments: text,
        });
    }
    const part = contentPart(item.type, text);
    if (part) this.#send('response.content_part.done', { part, ...place });
    const whole = itemObject(item, incomplete ? 'incomplete' : 'completed');
    this.#send('response.output_item.done', { output_index: index, item: whole });
  }

  protected ended(response: object, incomplete: boolean): void {
    this.#greet();
    this.#send(incomplete ? 'response.incomplete' : 'response.completed', { response });
    this.context.stream().end(this.context.times.trailer());
    this.context.ended(200);
  }

  /** Before the first item. */
  #greet(): void {
    if (this.#number > 0) return;
    const response = responseObject(this.head);
    this.#send('response.created', { response });
    this.#send('response.in_progress', { response });
  }

  #send(type: string, fields: object): void {
    this.#keepAlive.sent();
    this.context.stream().event(responseEvent(type, this.#number++, fields), type);
  }
}

function placeOf({ id }: ResponseItem, index: number): object {
  return { item_id: id, output_index: index, content_index: 0 };
}

const PREFIXES = { message: 'msg', reasoning: 'rs', function_call: 'fc' } as const;

function newId(type: ResponseItem['type']): string {
  return `${PREFIXES[type]}_${randomUUID().replaceAll('-', '')}`;
}
