import { randomUUID } from 'node:crypto';
import type { Lease } from '../admission/seat-queue.js';
import type { CompletionHead } from '../contracts/answers.js';
import type { ChatForm, ChatParams } from '../contracts/requests.js';
import type { ContractError } from '../domain/errors.js';
import { promptLength, type EngineFacts, type GenerateJob } from '../engine-client/engine.js';
import { prefixOf } from '../engine-client/prefix-index.js';
import type { Exchange } from '../http/exchange.js';
import { ReplyCounts } from './reply-counts.js';
import { failed, preflight, type PreparedRequest } from './preflight.js';
import { seeImages, type Seen } from './images.js';
import * as imageRefusals from './image-refusals.js';
import * as refusals from './refusals.js';
import { StreamWriter, WholeWriter, type ReplyWriter } from './reply-writers.js';
import { ENDED, endUnfinished, runJob, type Ended, type ReplyResults, type RunEnd } from './run-job.js';
import { seatLength } from './seat-length.js';
import type { Services } from './services.js';
import type { Vision } from '../vision/vision.js';
import { UsageSession } from './usage-session.js';
import { RequestContext, type Stop } from './request-context.js';
import { SeatWait, type Planned, type Tokens } from './seat-wait.js';

/** POST /v1/chat/completions, whole or streamed. */
export async function chat(exchange: Exchange, services: Services): Promise<void> {
  const context = new RequestContext(exchange, 'chat', services);
  try {
    const end = await complete(context, services, { makeWriter });
    if (end.kind !== 'ended') context.stop(end);
  } finally {
    context.close();
  }
}

/** What differs between the routes that complete chats. */
interface ChatRoute {
  /** The contract of the route's bodies; absent: the one of the setting `contract`. */
  readonly form?: ChatForm;
  readonly makeWriter: (
    context: RequestContext,
    prepared: PreparedRequest<ChatParams>,
    services: Services,
    facts: EngineFacts,
  ) => ReplyWriter;
}

/** One chat from its checks to its answer. Returns why its job did not run; a job that ran is answered in `finish`. */
export async function complete(context: RequestContext, services: Services, route: ChatRoute): Promise<Stop | Ended> {
  const prepared = await preflight<ChatParams>(context, 'chat', services, route.form);
  if (prepared.kind !== 'prepared') return prepared;
  const { params, model } = prepared;
  const { facts } = model.engine;
  const { firstImage } = params;
  if (firstImage !== undefined && !model.vision) return failed(imageRefusals.noVision(firstImage));
  if (firstImage !== undefined && model.vision?.state === 'no-addon')
    return failed(imageRefusals.noImageSupport(firstImage));
  if (!facts) return failed(refusals.cold(model.engine));

  // Before the wait for a seat, since a stream is kept alive through it.
  const writer = route.makeWriter(context, prepared, services, facts);
  const usage = new UsageSession(services, context, prepared.caller, model, 'chat');
  const wait = SeatWait.enter(context, prepared, params.n);
  if (wait.kind !== 'waiting') return wait;
  const tokenized = await wait.tokenize(prepared, 'chat');
  if (tokenized.kind !== 'chat') return tokenized;
  const scope = model.scopeOf(prepared.caller.account);
  const seen = await see(model.vision, tokenized, scope, firstImage);
  if (seen?.kind === 'refused') return failed(seen.error);
  const { format } = tokenized;
  const prompted = { prompt: seen?.prompt ?? tokenized.prompt, scope, ...(format && { format }) };
  const planned = plan(context, params, model.engine.contexts, prompted, usage, services);
  if ('status' in planned) return failed(planned);
  const lease = await wait.seat(planned.needs);
  if ('kind' in lease) return lease;

  const counts = new ReplyCounts(services.clock, context, usage);
  const results = replyResults(context, writer, counts, params.stream ? lease : undefined);
  const { draining } = services;
  const images = seen && { images: seen.images };
  const parts = { engine: model.engine, usage, seatsWanted: params.n, draining, ...images };
  const end = await runJob(context, lease, { kind: 'generate', job: planned.job, results }, parts);
  if (await finish(context, writer, counts, usage, end)) prepared.claim.complete();
  return ENDED;
}

/** The prompt with its images; undefined: it has none. */
async function see(
  vision: Vision | undefined,
  { prompt, images }: Extract<Tokens, { readonly kind: 'chat' }>,
  scope: string,
  param = 'messages',
): Promise<Seen | undefined> {
  return vision && images && (await seeImages(vision, prompt, images, scope, param));
}

/** The last checks, now that the prompt's length is known, credit at the very end; and the job for the engine. */
function plan(
  context: RequestContext,
  params: ChatParams,
  contexts: readonly number[],
  { prompt, scope, format }: Pick<GenerateJob, 'prompt' | 'scope' | 'format'>,
  usage: UsageSession,
  services: Services,
): Planned<Omit<GenerateJob, 'seats'>> | ContractError {
  const promptTokens = promptLength(prompt);
  const room = params.maxTokens === undefined ? seatLength(promptTokens, contexts) : (contexts.at(-1) ?? 0);
  const completionRoom = room - promptTokens;
  const maxTokens = params.maxTokens ?? Math.max(1, completionRoom);
  if (maxTokens > completionRoom) {
    const param = params.maxTokens === undefined || completionRoom < 1 ? 'messages' : 'max_completion_tokens';
    return refusals.overContext(promptTokens, maxTokens, room, param);
  }
  context.promptTokens = promptTokens;
  const unpaid = usage.reserve(promptTokens, maxTokens * params.n);
  if (unpaid) return unpaid;
  const { n, temperature, topP, topK, minP, frequencyPenalty, presencePenalty, stops } = params;
  const narrowing = { ...(topK !== undefined && { topK }), ...(minP !== undefined && { minP }) };
  const seed = seed32(params.seed ?? Math.floor(services.random() * 2 ** 32));
  const sampling = { temperature, topP, ...narrowing, frequencyPenalty, presencePenalty, seed };
  return {
    needs: {
      promptTokens,
      maxTokens: maxTokens * n,
      seatTokens: promptTokens + maxTokens,
      prefix: prefixOf(prompt, scope),
    },
    job: { prompt, scope, n, maxTokens, ...sampling, stops, ...(format && { format }) },
  };
}

/** The sampler takes 32 unsigned bits; the contract's seed has 64 signed ones. Both halves count. */
function seed32(seed: number): number {
  const bits = BigInt.asUintN(64, BigInt(Math.trunc(seed)));
  return Number((bits ^ (bits >> 32n)) & 0xffffffffn);
}

function makeWriter(
  context: RequestContext,
  { params, model }: PreparedRequest<ChatParams>,
  services: Services,
  facts: EngineFacts,
): ReplyWriter {
  const head: CompletionHead = {
    id: `chatcmpl-${randomUUID()}`,
    created: Math.floor(services.date().getTime() / 1000),
    model: model.id,
    fingerprint: `fp_${facts.weightVersion.slice(0, 12)}`,
  };
  if (!params.stream) return new WholeWriter(context, head, facts.weightVersion);
  const { clock } = services;
  const writer = new StreamWriter(context, head, {
    includeUsage: params.includeUsage,
    clock,
    keepAliveMs: services.limits.keepAliveMs,
  });
  context.onClose(() => writer.close());
  return writer;
}

/**
 * What the engine's results are passed to: the counts and the caller. `lease`: of a stream, whose caller has what it waited for
 * once the first token is there. One that was given back after a lost engine ignores that, and its request shows no patience.
 */
function replyResults(
  context: RequestContext,
  writer: ReplyWriter,
  counts: ReplyCounts,
  lease: Lease | undefined,
): ReplyResults {
  const begin = (): void => {
    if (!context.times.begun) lease?.begun();
  };
  return {
    started: (cachedTokens) => context.started(cachedTokens),
    cached: (tokens) => (context.cachedTokens = tokens),
    piece: (piece) => {
      begin();
      counts.piece(piece.choice, piece.tokens);
      writer.piece(piece);
    },
    call: (piece) => {
      begin();
      counts.piece(piece.choice, piece.tokens);
      writer.call(piece);
    },
    finished: (finished) => {
      begin();
      counts.finished(finished);
      writer.finished(finished);
    },
  };
}

/** Records and answers. Resolves with whether the caller got the whole answer. */
async function finish(
  context: RequestContext,
  writer: ReplyWriter,
  counts: ReplyCounts,
  usage: UsageSession,
  end: RunEnd,
): Promise<boolean> {
  const { promptTokens, cachedTokens, completionTokens } = context;
  // Requests that never started consume no tokens.
  if (context.phase !== 'waiting') {
    context.meter?.used({ prompt: promptTokens, cached: cachedTokens, completion: completionTokens });
  }
  if (end.kind !== 'done') {
    await endUnfinished(context, usage, end);
    return false;
  }
  if (!(await usage.closeAnswered())) return false;
  const { reasoningTokens } = counts;
  writer.done({ promptTokens, cachedTokens, completionTokens, reasoningTokens });
  return true;
}
