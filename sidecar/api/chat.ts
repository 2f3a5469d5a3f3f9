import { randomUUID } from 'node:crypto';
import type { Lease } from '../admission/seat-queue.js';
import type { CompletionHead } from '../contracts/answers.js';
import type { ChatForm, ChatParams } from '../contracts/requests.js';
import type { Exchange } from '../http/exchange.js';
import { makeJob, type ChatTokens, type MadeJob } from './chat-job.js';
import { ReplyCounts } from './reply-counts.js';
import { JoinedWriter } from './joined-writer.js';
import { failed, preflight, type PreparedRequest } from './preflight.js';
import { endUnfinished } from './end-unfinished.js';
import * as imageRefusals from './image-refusals.js';
import type { RequestBody } from './request-body.js';
import { fingerprintOf, StreamWriter, WholeWriter, type ReplyWriter } from './reply-writers.js';
import { ENDED, runJob, type Ended, type RemadeJob, type ReplyReceiver, type RunEnd } from './run-job.js';
import type { Services } from './services.js';
import { UsageSession } from './usage-session.js';
import { RequestContext, type Stop } from './request-context.js';
import { SeatWait } from './seat-wait.js';

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
interface ChatRouteOptions {
  /** The contract of the route's bodies; absent: the one of the setting `contract`. */
  readonly form?: ChatForm;
  readonly makeWriter: (
    context: RequestContext,
    prepared: PreparedRequest<ChatParams>,
    services: Services,
  ) => ReplyWriter;
}

/** One chat from its checks to its answer. Returns why it was granted no seat; once it was, `finish` answers it. */
export async function complete(
  context: RequestContext,
  services: Services,
  route: ChatRouteOptions,
): Promise<Stop | Ended> {
  const prepared = await preflight<ChatParams>(context, 'chat', services, route.form);
  if (prepared.kind !== 'prepared') return prepared;
  const { params, model } = prepared;
  const { firstImage } = params;
  if (firstImage !== undefined && !model.vision) return failed(imageRefusals.noVision(firstImage));

  // Created before the wait for a seat, since it keeps the stream alive during the wait.
  const writer = joined(route.makeWriter(context, prepared, services), params, context, services);
  const usage = new UsageSession(services, context, prepared.caller, model, 'chat');
  const wait = SeatWait.enter(context, prepared, params.n);
  if (wait.kind !== 'waiting') return wait;
  const make = async (tokens: Promise<ChatTokens | Stop>, contexts: readonly number[]): Promise<MadeJob | Stop> =>
    makeJob({ context, prepared, usage, services }, await tokens, contexts);
  const made = await make(wait.tokenize(prepared, 'chat'), model.engine.contexts);
  if (made.kind !== 'made') return made;
  const lease = await wait.seat(made.needs);
  if ('kind' in lease) return lease;

  const counts = new ReplyCounts(services.clock, context, usage);
  const receiver = replyReceiver({ context, writer, counts, body: prepared.body }, params.stream ? lease : undefined);
  const { draining } = services;
  const remake = async (replica: number): Promise<RemadeJob | Stop> => {
    const own = model.engine.replicas[replica]?.facts;
    const again = wait.tokenizeAgain(prepared, 'chat', own?.promptVersion);
    const next = await make(again, own ? [own.contextPerSeat] : model.engine.contexts);
    return next.kind === 'made' ? { kind: 'remade', plan: next, ...(next.images && { images: next.images }) } : next;
  };
  const images = made.images && { images: made.images };
  const parts = { engine: model.engine, usage, seatsWanted: params.n, draining, remake, ...images };
  const end = await runJob(context, lease, { kind: 'generate', plan: made, receiver }, parts);
  if (await finish(context, writer, counts, usage, end)) prepared.claim.complete();
  return ENDED;
}

function makeWriter(
  context: RequestContext,
  { params, model }: PreparedRequest<ChatParams>,
  services: Services,
): ReplyWriter {
  // Of a model that was never loaded it is known once the job has begun.
  const weightVersion = model.engine.facts?.weightVersion ?? '';
  const head: CompletionHead = {
    id: `chatcmpl-${randomUUID()}`,
    created: Math.floor(services.date().getTime() / 1000),
    model: model.id,
    fingerprint: fingerprintOf(weightVersion),
  };
  if (!params.stream) return new WholeWriter(context, head, weightVersion);
  const { clock } = services;
  const writer = new StreamWriter(context, head, {
    includeUsage: params.includeUsage,
    clock,
    keepAliveMs: services.limits.keepAliveMs,
  });
  context.onClose(() => writer.close());
  return writer;
}

/** Joins the frames of a stream, if `stream.intervalMs` is set. */
function joined(
  writer: ReplyWriter,
  { stream }: ChatParams,
  context: RequestContext,
  { clock, limits }: Services,
): ReplyWriter {
  if (!stream || limits.streamIntervalMs === 0) return writer;
  const made = new JoinedWriter(writer, clock, limits.streamIntervalMs);
  context.onClose(() => made.close());
  return made;
}

interface Replying {
  readonly context: RequestContext;
  readonly writer: ReplyWriter;
  readonly counts: ReplyCounts;
  readonly body: RequestBody;
}

/**
 * Passes the engine's results to the counts and to the caller. `lease`: that of a stream, whose caller has what it waited for when
 * the first token arrives. A lease that was given back after a lost engine ignores this, so the request's patience is not observed.
 */
function replyReceiver({ context, writer, counts, body }: Replying, lease: Lease | undefined): ReplyReceiver {
  // Before the writer has the first result, with which it records the first token's time.
  const begin = (): void => {
    if (!context.times.begun) lease?.begun();
  };
  return {
    started: (cachedTokens, weightVersion) => {
      context.started(cachedTokens);
      body.begun();
      writer.madeBy?.(weightVersion);
    },
    cached: (tokens) => context.cached(tokens),
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

/** Writes the usage record and the end of the answer. Resolves with whether the caller got the whole answer. */
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
    writer.flush?.();
    await endUnfinished(context, usage, end);
    return false;
  }
  if (!(await usage.closeAnswered())) return false;
  const { reasoningTokens } = counts;
  writer.done({ promptTokens, cachedTokens, completionTokens, reasoningTokens });
  return true;
}
