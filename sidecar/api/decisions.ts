import { randomUUID } from 'node:crypto';
import { decisionAnswer, systemOneAnswer, type QuestionResult } from '../contracts/decision-answers.js';
import type { DecisionParams } from '../contracts/requests.js';
import { tokenPrompt, type CacheScope, type ScoreJob } from '../engine-client/engine.js';
import { prefixOf } from '../engine-client/prefixes.js';
import type { Exchange } from '../http/exchange.js';
import { failed, preflight } from './preflight.js';
import { ENDED, runJob, type AnswerReceiver, type Ended, type RemadeJob, type RunEnd } from './run-job.js';
import { endUnfinished } from './end-unfinished.js';
import * as refusals from './refusals.js';
import type { RequestBody } from './request-body.js';
import type { Services } from './services.js';
import { UsageSession } from './usage-session.js';
import { RequestContext, type Stop } from './request-context.js';
import type { JobPlan } from './job-plan.js';
import { SeatWait, type Tokens } from './seat-wait.js';

/** POST /v1/decisions and POST /v1/systemone: the same steps with two formats of questions and answers. */
export async function decide(route: DecisionParams['route'], exchange: Exchange, services: Services): Promise<void> {
  const context = new RequestContext(exchange, route, services);
  try {
    const end = await complete(context, route, services);
    if (end.kind !== 'ended') context.stop(end);
  } finally {
    context.close();
  }
}

/** One decision request from its checks to its answer. Returns why its job did not run; a job that ran is answered in `finish`. */
async function complete(
  context: RequestContext,
  route: DecisionParams['route'],
  services: Services,
): Promise<Stop | Ended> {
  const prepared = await preflight<DecisionParams>(context, route, services);
  if (prepared.kind !== 'prepared') return prepared;
  const { params, model } = prepared;
  const { isolateDecisions: isolate } = services;
  // Isolated questions are evaluated one by one, so a second seat would not help.
  const seats = isolate ? 1 : params.questions.length;
  const usage = new UsageSession(services, context, prepared.caller, model, route);
  const wait = SeatWait.enter(context, prepared, seats);
  if (wait.kind !== 'waiting') return wait;
  const scope = model.scopeOf(prepared.caller.account);
  const make = async (tokens: Promise<DecisionPrompts | Stop>, contextTokens: number): Promise<Planned | Stop> =>
    plan(context, params, await tokens, { contextTokens, scope, isolate }, usage);
  const longest = model.engine.contexts.at(-1) ?? Infinity;
  const planned = await make(wait.tokenize(prepared, 'decision'), longest);
  if (planned.kind !== 'planned') return planned;
  const lease = await wait.seat(planned.needs);
  if ('kind' in lease) return lease;

  const results: QuestionResult[] = [];
  const remake = async (replica: number): Promise<RemadeJob | Stop> => {
    const own = model.engine.replicas[replica]?.facts;
    const again = wait.tokenizeAgain(prepared, 'decision', own?.promptVersion);
    const made = await make(again, own?.contextPerSeat ?? longest);
    return made.kind === 'planned' ? { kind: 'remade', plan: made } : made;
  };
  const parts = { engine: model.engine, usage, seatsWanted: seats, draining: services.draining, remake };
  const receiver = answerReceiver(results, context, prepared.body);
  const end = await runJob(context, lease, { kind: 'score', plan: planned, receiver }, parts);
  if (await finish(context, params, results, usage, end)) prepared.claim.complete();
  return ENDED;
}

type DecisionPrompts = Extract<Tokens, { readonly kind: 'decision' }>;

interface Planned extends JobPlan<ScoreJob> {
  readonly kind: 'planned';
}

/** What a decision's job depends on besides its prompt. */
interface Where {
  readonly contextTokens: number;
  readonly scope: CacheScope;
  readonly isolate: boolean;
}

function plan(
  context: RequestContext,
  params: DecisionParams,
  tokens: DecisionPrompts | Stop,
  { contextTokens, scope, isolate }: Where,
  usage: UsageSession,
): Planned | Stop {
  if (tokens.kind !== 'decision') return tokens;
  const { input, questions, promptVersion } = tokens;
  // The input is billed once per question, whatever the engine reuses.
  const tails = questions.reduce((sum, { tail }) => sum + tail.length, 0);
  const promptTokens = questions.length * input.length + tails;
  context.promptTokens = promptTokens;
  const over = questions.findIndex(({ tail }) => input.length + tail.length > contextTokens);
  if (over >= 0) {
    const length = input.length + (questions[over]?.tail.length ?? 0);
    // systemone's questions are named by the caller, so the path ends before the name.
    const param = params.route === 'decisions' ? `questions[${over}]` : 'questions';
    return failed(refusals.questionOverContext(over, length, contextTokens, param));
  }
  const unpaid = usage.reserve(promptTokens, 0);
  if (unpaid) return failed(unpaid);
  return {
    kind: 'planned',
    needs: {
      promptTokens: input.length + tails,
      seatTokens: input.length + Math.max(...questions.map(({ tail }) => tail.length)),
      prefix: prefixOf(tokenPrompt(input), scope),
    },
    job: {
      isolate,
      scope,
      input,
      questions,
      temperature: params.temperature,
      ...(promptVersion !== undefined && { promptVersion }),
    },
  };
}

/** Collects the engine's answers in `results`. */
function answerReceiver(results: QuestionResult[], context: RequestContext, body: RequestBody): AnswerReceiver {
  return {
    started: (cachedTokens) => {
      context.started(cachedTokens);
      body.begun();
    },
    cached: (tokens) => context.cached(tokens),
    answer: ({ question, probabilities, labelMass }) => {
      results[question] = { probabilities, labelMass };
    },
  };
}

/** Writes the usage record and the answer. Resolves with whether the caller got the whole answer. */
async function finish(
  context: RequestContext,
  params: DecisionParams,
  results: readonly QuestionResult[],
  usage: UsageSession,
  end: RunEnd,
): Promise<boolean> {
  const { promptTokens, cachedTokens } = context;
  // Requests that never started consume no tokens.
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
