import { randomUUID } from 'node:crypto';
import { decisionAnswer, systemOneAnswer, type QuestionResult } from '../contracts/decision-answers.js';
import type { DecisionParams } from '../contracts/requests.js';
import { tokenPrompt, type ScoreJob } from '../engine-client/engine.js';
import { prefixOf } from '../engine-client/prefixes.js';
import * as refusals from './refusals.js';
import { failed, type Stop } from './request-context.js';
import {
  WORK_ERRORS,
  type Plan,
  type RouteReference,
  type DecisionTokens,
  type Work,
  type WorkRequest,
  type WorkRoute,
} from './route.js';

/** Whole request bodies on both decision routes (docs/contract.md#limits). */
const BODY_BYTES = 1024 * 1024;

export const DECISIONS = decisionRoute('decisions', {
  path: '/v1/decisions',
  method: 'post',
  id: 'decide',
  tag: 'decisions',
  summary: 'Answer questions about an input',
  description:
    'Yes/no, choice and score questions, answered with probabilities (docs/decisions.md). The body has at most 1 MiB.',
  key: true,
  request: 'DecisionsRequest',
  answer: 'Decisions',
  errors: WORK_ERRORS,
});

export const SYSTEMONE = decisionRoute('systemone', {
  path: '/v1/systemone',
  method: 'post',
  id: 'systemOne',
  tag: 'decisions',
  summary: 'The same in the shape of System One',
  description: 'Same models, limits and billing as /v1/decisions. The body has at most 1 MiB.',
  key: true,
  request: 'SystemOneRequest',
  answer: 'SystemOne',
  errors: WORK_ERRORS,
});

/** Both routes have the same steps, with two formats of questions and answers. */
function decisionRoute(
  name: DecisionParams['route'],
  reference: RouteReference,
): WorkRoute<DecisionParams, DecisionTokens> {
  return {
    name,
    operation: 'decisions',
    entitlement: name,
    kind: 'decision',
    maxBytes: () => BODY_BYTES,
    form: () => name,
    begin,
    reference,
  };
}

function begin(request: WorkRequest<DecisionParams>): Work<DecisionTokens> {
  const { context, params, services } = request;
  const results: QuestionResult[] = [];
  return {
    kind: 'work',
    // Isolated questions are evaluated one by one, so a second seat would not help.
    seatsWanted: services.isolateDecisions ? 1 : params.questions.length,
    plan: (tokens, contexts) => planOf(request, tokens, contexts.at(-1) ?? Infinity),
    results: {
      kind: 'score',
      answer: ({ question, probabilities, labelMass }) => {
        results[question] = { probabilities, labelMass };
      },
    },
    answer: () => {
      const { promptTokens } = context;
      const body =
        params.route === 'decisions'
          ? decisionAnswer(params, results, { promptTokens })
          : systemOneAnswer(params, results, { promptTokens }, randomUUID());
      context.reply({ status: 200, headers: { 'Server-Timing': context.times.header() }, body });
    },
  };
}

/** Checks that each question fits a seat of `contextTokens`, and makes the job. */
function planOf(
  { context, params, model, account, services }: WorkRequest<DecisionParams>,
  { input, questions, promptVersion }: DecisionTokens,
  contextTokens: number,
): Plan | Stop {
  // The input is billed once per question, whatever the engine reuses.
  const tails = questions.reduce((sum, { tail }) => sum + tail.length, 0);
  context.promptTokens = questions.length * input.length + tails;
  const over = questions.findIndex(({ tail }) => input.length + tail.length > contextTokens);
  if (over >= 0) {
    const length = input.length + (questions[over]?.tail.length ?? 0);
    // systemone's questions are named by the caller, so the path ends before the name.
    const param = params.route === 'decisions' ? `questions[${over}]` : 'questions';
    return failed(refusals.questionOverContext(over, length, contextTokens, param));
  }
  const scope = model.scopeOf(account);
  const job: Omit<ScoreJob, 'seats'> = {
    isolate: services.isolateDecisions,
    scope,
    input,
    questions,
    temperature: params.temperature,
    ...(promptVersion !== undefined && { promptVersion }),
  };
  const needs = {
    promptTokens: input.length + tails,
    seatTokens: input.length + Math.max(...questions.map(({ tail }) => tail.length)),
    prefix: prefixOf(tokenPrompt(input), scope),
  };
  return { kind: 'planned', needs, job };
}
