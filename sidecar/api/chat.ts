import { randomUUID } from 'node:crypto';
import type { CompletionHead } from '../contracts/answers.js';
import type { ChatParams } from '../contracts/requests.js';
import { contractError, type ContractError } from '../domain/errors.js';
import type { EngineFacts, GenerateJob, GenerationSink } from '../engine-client/engine.js';
import { prefixOf } from '../engine-client/prefix-index.js';
import type { Exchange } from '../http/exchange.js';
import { ReplyCounts } from './reply-counts.js';
import { preflight, takeSeat, type PreparedRequest, type Planned, type Tokens } from './preflight.js';
import * as refusals from './refusals.js';
import { StreamWriter, WholeWriter, type ReplyWriter } from './reply-writers.js';
import { endUnfinished, growTo, runJob, type JobEnd, type RunEnd } from './run-job.js';
import type { Services } from './services.js';
import { UsageSession } from './usage-session.js';
import { RequestContext } from './request-context.js';

/** POST /v1/chat/completions, whole or streamed. */
export async function chat(exchange: Exchange, services: Services): Promise<void> {
  const context = new RequestContext(exchange, 'chat', services);
  const arrival = await preflight<ChatParams>(context, 'chat', services);
  if (!arrival) return;
  let writer: ReplyWriter | undefined;
  let usage: UsageSession | undefined;
  try {
    const { facts } = arrival.model.engine;
    const { firstImage } = arrival.params;
    if (firstImage !== undefined || !facts) {
      context.fail(firstImage === undefined ? refusals.cold(arrival.model.engine) : refusals.noVision(firstImage));
      return;
    }
    // Before the wait for a seat, since a stream is kept alive through that too.
    const reply = (writer = makeWriter(context, arrival, facts, services));
    const session = (usage = new UsageSession(services, context, arrival.caller, arrival.model, 'chat'));
    const seated = await takeSeat(context, arrival, arrival.params.n, (tokens) =>
      plan(context, arrival.params, facts, tokens, session, services),
    );
    if (!seated) return;

    const counts = new ReplyCounts(services.clock, context, session);
    const end = await runJob(context, seated.lease, services.draining, (jobEnd, lease) => {
      const shut = session.open();
      if (shut) return shut;
      return arrival.model.engine.generate(
        { seats: growTo(lease, seated.job.n), ...seated.job },
        sink(context, reply, counts, jobEnd),
      );
    });
    if (await finish(context, reply, counts, session, end)) arrival.claim.complete();
  } finally {
    writer?.close();
    usage?.abandon();
    arrival.release();
    arrival.claim.release();
    context.abandoned();
  }
}

/** The last checks, now that the prompt's length is known, credit at the very end; and the job for the engine. */
function plan(
  context: RequestContext,
  params: ChatParams,
  facts: EngineFacts,
  tokens: Tokens,
  usage: UsageSession,
  services: Services,
): Planned<Omit<GenerateJob, 'seats'>> | ContractError {
  if (tokens.kind !== 'chat') return contractError('internal', 'The prompt host answered for another route.');
  const promptTokens = tokens.tokens.length;
  const left = facts.contextPerSeat - promptTokens;
  const maxTokens = params.maxTokens ?? Math.max(1, left);
  if (maxTokens > left) {
    const param = params.maxTokens === undefined || left < 1 ? 'messages' : 'max_completion_tokens';
    return refusals.overContext(promptTokens, maxTokens, facts.contextPerSeat, param);
  }
  context.promptTokens = promptTokens;
  const unpaid = usage.reserve(promptTokens, maxTokens * params.n);
  if (unpaid) return unpaid;
  const { n, temperature, topP, frequencyPenalty, presencePenalty, stops } = params;
  const seed = seed32(params.seed ?? Math.floor(services.random() * 2 ** 32));
  const sampling = { temperature, topP, frequencyPenalty, presencePenalty, seed };
  const { tokens: prompt, format } = tokens;
  return {
    work: { promptTokens, maxTokens: maxTokens * n, prefix: prefixOf(prompt) },
    job: { prompt, n, maxTokens, ...sampling, stops, ...(format && { format }) },
  };
}

/** The sampler takes 32 unsigned bits; the contract's seed has 64 signed ones. Both halves count. */
export function seed32(seed: number): number {
  const bits = BigInt.asUintN(64, BigInt(Math.trunc(seed)));
  return Number((bits ^ (bits >> 32n)) & 0xffffffffn);
}

function makeWriter(
  context: RequestContext,
  { params, model }: PreparedRequest<ChatParams>,
  facts: EngineFacts,
  services: Services,
): ReplyWriter {
  const head: CompletionHead = {
    id: `chatcmpl-${randomUUID()}`,
    created: Math.floor(services.date().getTime() / 1000),
    model: model.id,
    fingerprint: `fp_${facts.weightVersion.slice(0, 12)}`,
  };
  if (!params.stream) return new WholeWriter(context, head, facts.weightVersion);
  const { clock } = services;
  return new StreamWriter(context, head, {
    includeUsage: params.includeUsage,
    clock,
    keepAliveMs: services.limits.keepAliveMs,
  });
}

function sink(context: RequestContext, writer: ReplyWriter, counts: ReplyCounts, end: JobEnd): GenerationSink {
  return {
    started: (cachedTokens) => {
      context.cachedTokens = cachedTokens;
      context.prefilling();
    },
    piece: (piece) => {
      counts.piece(piece.choice, piece.tokens);
      writer.piece(piece);
    },
    call: (piece) => {
      counts.piece(piece.choice, piece.tokens);
      writer.call(piece);
    },
    finished: (finished) => {
      counts.finished(finished);
      writer.finished(finished);
    },
    freed: () => end.freed(),
    done: () => end.done(),
    failed: (fault) => end.failed(fault),
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
  // A prompt that no engine took up used nothing, as its usage has it.
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
