/** POST /v1/chat/completions, whole or streamed. */
import { randomUUID } from 'node:crypto';
import {
  chatChunk,
  chatCompletion,
  chunkHead,
  finishChunk,
  roleChunk,
  toolCallChunk,
  usageChunk,
  withUsage,
  type ChunkHead,
  type CompletionChoice,
  type CompletionHead,
  type CompletionUsage,
} from '../contracts/answers.js';
import type { ChatParams, ToolCall } from '../contracts/requests.js';
import type { Clock } from '../lib/clock.js';
import { jsonIn } from '../lib/json-in.js';
import { generation } from './generation.js';
import { newCallId, StreamKeepAlive, type CallPart, type Finished, type Piece, type ReplyWriter } from './replies.js';
import type { RequestContext } from './request-context.js';
import { WORK_ERRORS, type ChatTokens, type WorkRequest, type WorkRoute } from './route.js';

export const CHAT: WorkRoute<ChatParams, ChatTokens> = {
  name: 'chat',
  operation: 'chat',
  entitlement: 'chat',
  kind: 'chat',
  maxBytes: ({ chatBytes }) => chatBytes,
  form: ({ contract, billingLine }) =>
    contract === 'strict' ? 'chat' : billingLine === 'keep' ? 'compatible-billed' : 'compatible',
  begin: (request) => generation(request, makeWriter),
  reference: {
    path: '/v1/chat/completions',
    method: 'post',
    id: 'createChatCompletion',
    tag: 'chat',
    summary: 'Continue a conversation',
    description: 'One completion object, or with `stream: true` server-sent events (docs/contract.md#stream-frames).',
    key: true,
    request: 'ChatCompletionRequest',
    compatibleRequest: 'CompatibleChatRequest',
    answer: 'ChatCompletion',
    compatibleAnswer: 'PricedCompletion',
    frames: ['ChatCompletionChunk', 'UsageChunk', 'Error'],
    compatibleFrames: ['CountedChunk', 'TieredChunk', 'PricedUsageChunk'],
    errors: WORK_ERRORS,
    compatibleErrors: ['context_length_exceeded'],
  },
};

function makeWriter({ context, params, model, services }: WorkRequest<ChatParams>): ReplyWriter {
  // Of a model that was never loaded it is known once the job has begun.
  const weightVersion = model.engine.facts?.weightVersion ?? '';
  const head: CompletionHead = {
    id: `chatcmpl-${randomUUID()}`,
    created: Math.floor(services.date().getTime() / 1000),
    model: model.id,
    fingerprint: fingerprintOf(weightVersion),
    tier: context.tier,
  };
  if (!params.stream) return new WholeWriter(context, head, weightVersion);
  const { clock, limits } = services;
  const { includeUsage, continuousUsage = false } = params;
  const options = { includeUsage, continuousUsage, clock, keepAliveMs: limits.keepAliveMs };
  return new StreamWriter(context, head, options);
}

/** Digits of a weight version that a fingerprint contains. */
const FINGERPRINT = 12;

/** The `system_fingerprint` of a weight version. */
export function fingerprintOf(weightVersion: string): string {
  return `fp_${weightVersion.slice(0, FINGERPRINT)}`;
}

/**
 * Server-sent events. The 200 is sent with the first token, or after one keep-alive interval without a token: a failure before that is an
 * ordinary response, and a proxy receives bytes during a long wait or prefill. The first interval begins at the construction.
 */
export class StreamWriter implements ReplyWriter {
  readonly #context: RequestContext;
  #chunkHead: ChunkHead;
  readonly #head: CompletionHead;
  readonly #includeUsage: boolean;
  readonly #continuousUsage: boolean;
  readonly #begun = new Set<number>();
  readonly #keepAlive: StreamKeepAlive;

  constructor(
    context: RequestContext,
    head: CompletionHead,
    options: { includeUsage: boolean; continuousUsage?: boolean; clock: Clock; keepAliveMs: number },
  ) {
    this.#context = context;
    this.#head = head;
    this.#chunkHead = chunkHead(head);
    this.#includeUsage = options.includeUsage;
    this.#continuousUsage = options.continuousUsage === true;
    const idle = (): void => context.stream().comment('keep-alive');
    this.#keepAlive = new StreamKeepAlive(options.clock, options.keepAliveMs, idle, context.tellPlace);
    context.onClose(() => this.#keepAlive.close());
  }

  madeBy(weightVersion: string): void {
    const fingerprint = fingerprintOf(weightVersion);
    if (fingerprint !== this.#head.fingerprint)
      this.#chunkHead = chunkHead(Object.assign({}, this.#head, { fingerprint }));
  }

  piece({ choice, channel, text }: Piece): void {
    this.#begin(choice);
    this.#send(chatChunk(this.#chunkHead, choice, channel, text));
  }

  call({ choice, index, name, arguments: part }: CallPart): void {
    this.#begin(choice);
    const begun = name !== undefined && { id: newCallId(), name };
    this.#send(toolCallChunk(this.#chunkHead, choice, { index, arguments: part, ...begun }));
  }

  finished({ choice, reason }: Finished): void {
    this.#begin(choice);
    this.#send(finishChunk(this.#chunkHead, choice, reason));
  }

  done(usage: CompletionUsage): void {
    const stream = this.#context.stream();
    if (this.#includeUsage) stream.event(usageChunk(this.#chunkHead, usage));
    stream.event('[DONE]');
    stream.end(this.#context.times.trailer());
    this.#context.ended(200);
  }

  /** The first chunk of a choice names the role. */
  #begin(choice: number): void {
    if (this.#begun.has(choice)) return;
    this.#begun.add(choice);
    this.#send(roleChunk(this.#chunkHead, choice));
  }

  #send(chunk: string): void {
    this.#keepAlive.sent();
    this.#context.stream().event(this.#continuousUsage ? withUsage(chunk, this.#usageSoFar()) : chunk);
  }

  /** Without the tokens of thought, which are counted at a reply's end. */
  #usageSoFar(): CompletionUsage {
    const { promptTokens, cachedTokens, completionTokens } = this.#context;
    return { promptTokens, cachedTokens, completionTokens, reasoningTokens: 0 };
  }
}

/** One JSON body at the end. */
export class WholeWriter implements ReplyWriter {
  readonly #context: RequestContext;
  readonly #head: CompletionHead;
  #weightVersion: string;
  readonly #drafts = new Map<number, Draft>();
  readonly #choices: CompletionChoice[] = [];

  constructor(context: RequestContext, head: CompletionHead, weightVersion: string) {
    this.#context = context;
    this.#head = head;
    this.#weightVersion = weightVersion;
  }

  madeBy(weightVersion: string): void {
    this.#weightVersion = weightVersion;
  }

  piece({ choice, channel, text }: Piece): void {
    this.#draft(choice)[channel].push(text);
  }

  call({ choice, index, name, arguments: part }: CallPart): void {
    const { calls } = this.#draft(choice);
    if (name !== undefined) calls[index] = { name, arguments: [] };
    calls[index]?.arguments.push(part);
  }

  finished({ choice, reason, matchedStop }: Finished): void {
    const { content, reasoning, calls } = this.#draft(choice);
    const toolCalls = calls.flatMap((call) => toolCall(call) ?? []);
    this.#choices[choice] = {
      content: toolCalls.length > 0 && content.length === 0 ? null : content.join(''),
      ...(reasoning.length > 0 && { reasoning: reasoning.join('') }),
      ...(toolCalls.length > 0 && { toolCalls }),
      finishReason: reason,
      ...(matchedStop !== undefined && { matchedStop }),
    };
  }

  done(usage: CompletionUsage): void {
    const head = Object.assign({}, this.#head, { fingerprint: fingerprintOf(this.#weightVersion) });
    const body = chatCompletion(head, this.#choices, usage, this.#weightVersion);
    this.#context.reply({ status: 200, headers: { 'Server-Timing': this.#context.times.header() }, body });
  }

  #draft(choice: number): Draft {
    let draft = this.#drafts.get(choice);
    if (!draft) this.#drafts.set(choice, (draft = { content: [], reasoning: [], calls: [] }));
    return draft;
  }
}

/** The pieces of a reply so far. */
interface Draft {
  readonly content: string[];
  readonly reasoning: string[];
  readonly calls: { readonly name: string; readonly arguments: string[] }[];
}

/** Undefined if the reply ended within the arguments, which are then not valid JSON. */
function toolCall({ name, arguments: parts }: Draft['calls'][number]): ToolCall | undefined {
  const text = parts.join('');
  if (jsonIn(text) === undefined) return undefined;
  return { id: newCallId(), type: 'function', function: { name, arguments: text } };
}
