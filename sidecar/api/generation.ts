/** Work of the routes that generate replies in any form: the engine's job, and how its results are counted and given to the writer. */
import type { ChatParams } from '../contracts/requests.js';
import { promptLength, type GenerateJob, type Prompt } from '../engine-client/engine.js';
import { prefixOf } from '../engine-client/prefixes.js';
import type { Clock } from '../lib/clock.js';
import type { ModelMeter } from '../telemetry/model-metrics.js';
import { placeInPrompt, type ImagePrompt } from './images.js';
import * as refusals from './refusals.js';
import type { ReplyWriter } from './replies.js';
import { failed, type RequestContext, type Stop } from './request-context.js';
import type { ChatTokens, Plan, Work, WorkRequest } from './route.js';
import type { UsageSession } from './usage-session.js';

type ChatRequest = WorkRequest<ChatParams>;

/** One request's work. `makeWriter` is called before the wait for a seat, since a stream is kept alive during the wait. */
export function generation(
  request: ChatRequest,
  makeWriter: (request: ChatRequest) => ReplyWriter,
): Work<ChatTokens> | Stop {
  const { context, params, model, services, usage } = request;
  const { firstImage, stream, n, toolsLeftOut } = params;
  if (firstImage !== undefined && !model.vision) return failed(refusals.noVision(firstImage));
  if (toolsLeftOut) context.headers = { 'x-ra-tools-left-out': toolsLeftOut.join(', ') };
  const writer = makeWriter(request);
  const counts = new ReplyCounts(services.clock, context, usage);
  return {
    kind: 'work',
    seatsWanted: n,
    plan: (tokens, contexts) => planOf(request, tokens, contexts),
    started: (weightVersion) => writer.madeBy?.(weightVersion),
    results: {
      kind: 'generate',
      piece: (piece) => {
        context.firstToken(stream);
        counts.piece(piece.choice, piece.tokens);
        writer.piece(piece);
      },
      call: (piece) => {
        context.firstToken(stream);
        counts.piece(piece.choice, piece.tokens);
        writer.call(piece);
      },
      finished: (finished) => {
        context.firstToken(stream);
        counts.finished(finished);
        writer.finished(finished);
      },
    },
    answer: () => {
      const { promptTokens, cachedTokens, completionTokens } = context;
      const { reasoningTokens } = counts;
      const costs = services.contract === 'compatible' ? usage.costs : undefined;
      writer.done({ promptTokens, cachedTokens, completionTokens, reasoningTokens, ...(costs && { costs }) });
    },
  };
}

/** Places the prompt's images, checks that the prompt and the completion fit a seat, and makes the job. */
async function planOf(request: ChatRequest, tokens: ChatTokens, contexts: readonly number[]): Promise<Plan | Stop> {
  const { context, params, model, account, services } = request;
  const scope = model.scopeOf(account);
  const placed = await placedPrompt({ params, model, account }, tokens);
  if (placed.kind === 'refused') return failed(placed.error);
  const { prompt, images } = placed;
  const promptTokens = promptLength(prompt);
  const room = params.maxTokens === undefined ? seatLength(promptTokens, contexts) : (contexts.at(-1) ?? 0);
  const completionRoom = room - promptTokens;
  const compatible = services.contract === 'compatible';
  if (completionRoom < 1) {
    // Under the compatible contract a maximum is cut to what is left, so that one token would have been enough.
    const lengths = { promptTokens, asked: compatible ? 1 : (params.maxTokens ?? 1), context: room };
    return failed(refusals.overContext(lengths, 'messages', compatible));
  }
  const maxTokens = Math.min(params.maxTokens ?? completionRoom, completionRoom);
  // Clients that do not know the model ask for more than its context: under the compatible contract that is no bound of their own.
  if (params.maxTokens !== undefined && maxTokens < params.maxTokens && !compatible) {
    const field = params.maxTokensField ?? 'max_completion_tokens';
    return failed(refusals.overCompletion(promptTokens, params.maxTokens, room, field));
  }
  context.promptTokens = promptTokens;
  const { n, temperature, topP, topK, minP, frequencyPenalty, presencePenalty, stops } = params;
  const { format, promptVersion } = tokens;
  const job: Omit<GenerateJob, 'seats'> = {
    prompt,
    scope,
    n,
    maxTokens,
    temperature,
    topP,
    frequencyPenalty,
    presencePenalty,
    seed: seed32(params.seed ?? Math.floor(services.random() * 2 ** 32)),
    stops,
    ...(params.seed === undefined && temperature > 0 && { mayVary: true }),
    ...(topK !== undefined && { topK }),
    ...(minP !== undefined && { minP }),
    ...(promptVersion !== undefined && { promptVersion }),
    ...(format && { format: withAnswerRoom(format, maxTokens) }),
  };
  const needs = { promptTokens, seatTokens: promptTokens + maxTokens, prefix: prefixOf(prompt, scope) };
  return { kind: 'planned', needs, replies: { count: n, maxTokens }, job, ...(images && { images }) };
}

/** The prompt with its images in their places. `images`: absent: it has none; else the caller closes them. */
export async function placedPrompt(
  { params, model, account }: Pick<ChatRequest, 'params' | 'model' | 'account'>,
  { prompt, images }: ChatTokens,
): Promise<ImagePrompt | { readonly kind: 'placed'; readonly prompt: Prompt; readonly images?: undefined }> {
  if (!model.vision || !images) return { kind: 'placed', prompt };
  const of = { account, scope: model.scopeOf(account), param: params.firstImage ?? 'messages' };
  return placeInPrompt(model.vision, prompt, images, of);
}

type Format = NonNullable<GenerateJob['format']>;

/** The part of a reply that a bounded thought leaves for the answer, and the most tokens of it. */
const ANSWER_SHARE = 1 / 4;
const MOST_ANSWER_TOKENS = 1024;

/** A thought's bound together with its closing leaves room in the reply for an answer. */
export function withAnswerRoom(format: Format, maxTokens: number): Format {
  const { thoughtLimit: limit } = format;
  if (!limit) return format;
  const answer = Math.min(Math.ceil(maxTokens * ANSWER_SHARE), MOST_ANSWER_TOKENS);
  const tokens = Math.max(1, Math.min(limit.tokens, maxTokens - answer - limit.closing.length));
  return Object.assign({}, format, { thoughtLimit: Object.assign({}, limit, { tokens }) });
}

/**
 * The seat length, in tokens, for a request without a limit of its reply. `contexts`: the lengths of the model's seats, shortest
 * first. It is the shortest in which the reply has as much room as the prompt takes, so that long seats stay free for requests
 * that need them, or the longest if there is none. It depends on the configuration only, so the same request always has the
 * same limit.
 */
export function seatLength(promptTokens: number, contexts: readonly number[]): number {
  return contexts.find((context) => context >= 2 * promptTokens) ?? contexts.at(-1) ?? 0;
}

/**
 * The sampler takes 32 unsigned bits; the contract's seed has 64 signed ones. What lies beyond the lower half counts too, rounded
 * towards 0, so that reply i is that of seed + i also for negative seeds, except where seed + i passes a multiple of 2^32.
 */
function seed32(seed: number): number {
  const whole = BigInt(Math.trunc(seed));
  return Number(BigInt.asUintN(32, whole) ^ BigInt.asUintN(32, whole / 2n ** 32n));
}

/** The mean time of a token is observed over so many tokens, and over what is left at a reply's end if that is not fewer than these. */
const WINDOW = 32;
const LEAST_TOKENS = 8;

/** And over this time, ms: an engine whose steps are short sends their tokens together. */
const LEAST_MS = 10;

/** One running reply. Times are clock readings. */
interface Progress {
  tokens: number;
  readonly firstTokens: number;
  readonly firstAt: number;
  lastAt: number;
  /** Where the present window began. */
  windowTokens: number;
  windowAt: number;
}

/** Completion tokens over all replies of a request, and the time between them. Called for each piece: allocates only for a new reply. */
export class ReplyCounts {
  readonly #clock: Clock;
  readonly #context: RequestContext;
  readonly #usage: UsageSession;
  readonly #meter: ModelMeter | undefined;
  readonly #replies = new Map<number, Progress>();
  reasoningTokens = 0;

  constructor(clock: Clock, context: RequestContext, usage: UsageSession) {
    this.#clock = clock;
    this.#context = context;
    this.#usage = usage;
    this.#meter = context.meter;
  }

  /** A piece arrived; its reply has so many tokens now. */
  piece(choice: number, tokens: number): void {
    const now = this.#clock.now();
    const reply = this.#replies.get(choice);
    if (reply === undefined) {
      const window = { windowTokens: tokens, windowAt: now };
      this.#replies.set(choice, { tokens, firstTokens: tokens, firstAt: now, lastAt: now, ...window });
      this.#moved(tokens);
      return;
    }
    this.#meter?.piece(now - reply.lastAt);
    reply.lastAt = now;
    this.#grown(reply, tokens);
    this.#observe(reply, now, WINDOW);
  }

  /** A reply is complete. It may have had no piece at all. */
  finished(end: {
    readonly choice: number;
    readonly completionTokens: number;
    readonly reasoningTokens: number;
    readonly draftedTokens?: number;
    readonly acceptedTokens?: number;
  }): void {
    const { choice, completionTokens, reasoningTokens, draftedTokens = 0, acceptedTokens = 0 } = end;
    this.reasoningTokens += reasoningTokens;
    this.#usage.replied(completionTokens);
    this.#context.draftedTokens += draftedTokens;
    this.#context.acceptedTokens += acceptedTokens;
    const reply = this.#replies.get(choice);
    if (reply === undefined) {
      this.#moved(completionTokens);
      return;
    }
    const now = this.#clock.now();
    this.#meter?.replied(completionTokens - reply.firstTokens, now - reply.firstAt);
    this.#grown(reply, completionTokens);
    this.#observe(reply, now, LEAST_TOKENS);
  }

  /** Ends the present window of a reply, if it has as many tokens as this and took long enough. */
  #observe(reply: Progress, now: number, least: number): void {
    const tokens = reply.tokens - reply.windowTokens;
    const ms = now - reply.windowAt;
    if (tokens < least || ms < LEAST_MS) return;
    this.#context.observeTokenMs(ms / tokens);
    reply.windowTokens = reply.tokens;
    reply.windowAt = now;
  }

  #grown(reply: Progress, tokens: number): void {
    const more = tokens - reply.tokens;
    reply.tokens = tokens;
    this.#moved(more);
  }

  #moved(more: number): void {
    this.#context.completionTokens += more;
    this.#usage.countsGrew();
  }
}
