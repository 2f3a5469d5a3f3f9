import { randomUUID } from 'node:crypto';
import { decisionAnswer, systemOneAnswer, type QuestionResult } from '../contracts/decision-answers.js';
import type { DecisionParams } from '../contracts/requests.js';
import { contractError, type ContractError } from '../domain/errors.js';
import type { ScoreJob, ScoreSink } from '../engine-client/engine.js';
import { prefixOf } from '../engine-client/prefix-index.js';
import type { Exchange } from '../http/exchange.js';
import { preflight, takeSeat, type Planned, type Tokens } from './preflight.js';
import { endUnfinished, growTo, runJob, type JobEnd, type RunEnd } from './run-job.js';
import * as refusals from './refusals.js';
import type { Services } from './services.js';
import { UsageSession } from './usage-session.js';
import { RequestContext } from './request-context.js';

/** POST /v1/decisions and POST /v1/systemone: one story, two shapes of question and answer. */
export async function decide(route: DecisionParams['route'], exchange: Exchange, services: Services): Promise<void> {
  const context = new RequestContext(exchange, route, services);
  const arrival = await preflight<DecisionParams>(context, route, services);
  if (!arrival) return;
  let usage: UsageSession | undefined;
  try {
    const { params, model } = arrival;
    const { isolateDecisions: isolate } = services;
    // Questions that share no decode gain nothing from a second seat.
    const seats = isolate ? 1 : params.questions.length;
    const session = (usage = new UsageSession(services, context, arrival.caller, model, route));
    const seated = await takeSeat(context, arrival, seats, (tokens) =>
      plan(context, params, tokens, model.engine.facts?.contextPerSeat ?? Infinity, session),
    );
    if (!seated) return;

    const results: QuestionResult[] = [];
    const end = await runJob(context, seated.lease, services.draining, (jobEnd, lease) => {
      const shut = session.open();
      if (shut) return shut;
      return model.engine.score(
        { isolate, seats: growTo(lease, seats), ...seated.job },
        sink(context, results, jobEnd),
      );
    });
    if (await finish(context, params, results, session, end)) arrival.claim.complete();
  } finally {
    usage?.abandon();
    arrival.release();
    arrival.claim.release();
    context.abandoned();
  }
}

function plan(
  context: RequestContext,
  params: DecisionParams,
  tokens: Tokens,
  contextTokens: number,
  usage: UsageSession,
): Planned<Omit<ScoreJob, 'isolate' | 'seats'>> | ContractError {
  if (tokens.kind !== 'decision') return contractError('internal', 'The prompt host answered for another route.');
  const { input, questions } = tokens;
  // The input is billed once per question, whatever is reused inside.
  const tails = questions.reduce((sum, { tail }) => sum + tail.length, 0);
  const promptTokens = questions.length * input.length + tails;
  context.promptTokens = promptTokens;
  const over = questions.findIndex(({ tail }) => input.length + tail.length > contextTokens);
  if (over >= 0) {
    const tokens = input.length + (questions[over]?.tail.length ?? 0);
    // systemone's questions are named by the caller, so its path stops before the name.
    return refusals.questionOverContext(
      over,
      tokens,
      contextTokens,
      params.route === 'decisions' ? `questions[${over}]` : 'questions',
    );
  }
  const unpaid = usage.reserve(promptTokens, 0);
  if (unpaid) return unpaid;
  return {
    work: { promptTokens: input.length + tails, maxTokens: 0, prefix: prefixOf(input) },
    job: { input, questions, temperature: params.temperature },
  };
}

function sink(context: RequestContext, results: QuestionResult[], end: JobEnd): ScoreSink {
  return {
    started: (cachedTokens) => {
      context.cachedTokens = cachedTokens;
      context.prefilling();
    },
    answer: ({ question, probabilities, labelMass }) => {
      results[question] = { probabilities, labelMass };
    },
    freed: () => end.freed(),
    done: () => end.done(),
    failed: (fault) => end.failed(fault),
  };
}

/** Records and answers. Resolves with whether the caller got the whole answer. */
async function finish(
  context: RequestContext,
  params: DecisionParams,
  results: readonly QuestionResult[],
  usage: UsageSession,
  end: RunEnd,
): Promise<boolean> {
  const { promptTokens, cachedTokens } = context;
  // A prompt that no engine took up used nothing, as its usage has it.
  if (context.phase !== 'waiting') context.meter?.used({ prompt: promptTokens, cached: cachedTokens, completion: 0 });
  if (end.kind !== 'done') {
    await endUnfinished(context, usage, end);
    return false;
  }
  if (!(await usage.closeAnswered())) return false;
  const body =
    params.route === 'decisions'
      ? decisionAnswer(params, results, { promptTokens })
      : systemOneAnswer(params, results, { promptTokens }, randomUUID());
  context.reply({ status: 200, headers: { 'Server-Timing': context.times.header() }, body });
  return true;
}
