import { randomUUID } from 'node:crypto';
import { decisionAnswer, systemOneAnswer, type QuestionResult } from '../contracts/decision-answers.js';
import type { DecisionParams } from '../contracts/requests.js';
import { contractError, type ContractError } from '../domain/errors.js';
import type { ScoreJob, ScoreSink } from '../engine-client/engine.js';
import { prefixOf } from '../engine-client/prefix-index.js';
import type { Exchange } from '../http/exchange.js';
import { arrive, takeSeat, type Planned, type Tokens } from './preflight.js';
import { endUnfinished, growTo, runOnSeat, type JobEnd, type RunEnd } from './run-job.js';
import * as refusals from './refusals.js';
import type { Services } from './services.js';
import { UsageLog } from './usage-session.js';
import { Visit } from './request-context.js';

/** POST /v1/decisions and POST /v1/systemone: one story, two shapes of question and answer. */
export async function decide(route: DecisionParams['route'], exchange: Exchange, services: Services): Promise<void> {
  const visit = new Visit(exchange, route, services);
  const arrival = await arrive<DecisionParams>(visit, route, services);
  if (!arrival) return;
  let usage: UsageLog | undefined;
  try {
    const { params, model } = arrival;
    const { isolateDecisions: isolate } = services;
    // Questions that share no decode gain nothing from a second seat.
    const seats = isolate ? 1 : params.questions.length;
    const books = (usage = new UsageLog(services, visit, arrival.caller, model, route));
    const seated = await takeSeat(visit, arrival, seats, (tokens) =>
      plan(visit, params, tokens, model.engine.facts?.contextPerSeat ?? Infinity, books),
    );
    if (!seated) return;

    const results: QuestionResult[] = [];
    const end = await runOnSeat(visit, seated.lease, services.draining, (jobEnd, lease) => {
      const shut = books.open();
      if (shut) return shut;
      return model.engine.score({ isolate, seats: growTo(lease, seats), ...seated.job }, sink(visit, results, jobEnd));
    });
    if (await finish(visit, params, results, books, end)) arrival.claim.complete();
  } finally {
    usage?.abandon();
    arrival.release();
    arrival.claim.release();
    visit.abandoned();
  }
}

function plan(
  visit: Visit,
  params: DecisionParams,
  tokens: Tokens,
  context: number,
  usage: UsageLog,
): Planned<Omit<ScoreJob, 'isolate' | 'seats'>> | ContractError {
  if (tokens.kind !== 'decision') return contractError('internal', 'The prompt host answered for another route.');
  const { input, questions } = tokens;
  // The input is billed once per question, whatever is reused inside.
  const tails = questions.reduce((sum, { tail }) => sum + tail.length, 0);
  const promptTokens = questions.length * input.length + tails;
  visit.promptTokens = promptTokens;
  const over = questions.findIndex(({ tail }) => input.length + tail.length > context);
  if (over >= 0) {
    const tokens = input.length + (questions[over]?.tail.length ?? 0);
    // systemone's questions are named by the caller, so its path stops before the name.
    return refusals.questionOverContext(
      over,
      tokens,
      context,
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

function sink(visit: Visit, results: QuestionResult[], end: JobEnd): ScoreSink {
  return {
    started: (cachedTokens) => {
      visit.cachedTokens = cachedTokens;
      visit.prefilling();
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
  visit: Visit,
  params: DecisionParams,
  results: readonly QuestionResult[],
  usage: UsageLog,
  end: RunEnd,
): Promise<boolean> {
  const { promptTokens, cachedTokens } = visit;
  // A prompt that no engine took up used nothing, as its usage has it.
  if (visit.phase !== 'waiting') visit.meter?.used({ prompt: promptTokens, cached: cachedTokens, completion: 0 });
  if (end.kind !== 'done') {
    await endUnfinished(visit, usage, end);
    return false;
  }
  if (!(await usage.closeAnswered())) return false;
  const body =
    params.route === 'decisions'
      ? decisionAnswer(params, results, { promptTokens })
      : systemOneAnswer(params, results, { promptTokens }, randomUUID());
  visit.reply({ status: 200, headers: { 'Server-Timing': visit.times.header() }, body });
  return true;
}
