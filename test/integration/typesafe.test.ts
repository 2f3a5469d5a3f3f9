import { createTypeSafeAi } from '@ai-sdk/typesafe-ai';
import {
  AuthenticationError,
  BadRequestError,
  PermissionDeniedError,
  TypeSafeClient,
  choice,
  noul,
  score,
} from '@typesafe-ai/sdk';
import { APICallError, experimental_decide } from 'ai';
import t from 'tap';
import { sharedSidecar, TYPESAFE as MODEL } from '../support/shared-sidecar.js';

const sidecar = await sharedSidecar();
type DecisionModel = Parameters<typeof experimental_decide>[0]['model'];

/**
 * The two packages have their own types of one interface, which TypeScript cannot reconcile with the options used here.
 */
function evaluationModel(apiKey: string): DecisionModel {
  return createTypeSafeAi({ apiKey, baseURL: sidecar.base }).evaluationModel(MODEL) as unknown as DecisionModel;
}

const state = { document: 'I was charged twice. Please fix this.', customer: { since: 2019, vip: true } };

/** Whether it is a distribution over exactly these answers. */
function isDistribution(probabilities: Readonly<Record<string, number>>, answers: readonly string[]): boolean {
  const sum = Object.values(probabilities).reduce((total, p) => total + p, 0);
  return Object.keys(probabilities).join() === answers.join() && Math.abs(sum - 1) < 1e-9;
}

t.test('@typesafe-ai/sdk, with base URL and key, asks all three types of question', async (t) => {
  const client = new TypeSafeClient({ apiKey: sidecar.key, baseURL: sidecar.base.replace(/\/v1$/, '') });
  const { answers, model, usage } = await client.systemOne({
    state,
    questions: {
      angry: noul('Is the customer angry?', { true: 'They shout', false: null }),
      team: choice('Who should handle this?', { billing: 'Charges and refunds', technical: null, other: null }),
      urgency: score('How urgent is it?', ['can wait', 'today', 'now']),
    },
  });
  t.equal(model, MODEL);
  t.ok(answers.angry.noul > 0 && answers.angry.noul < 1);
  t.ok(isDistribution(answers.team.probabilities, ['billing', 'technical', 'other']));
  t.equal(answers.team.probabilities[answers.team.choice], Math.max(...Object.values(answers.team.probabilities)));
  t.ok(answers.team.confidence >= 0 && answers.team.confidence <= 1);
  t.ok(isDistribution(answers.urgency.probabilities, ['0', '1', '2']));
  const { 1: one, 2: two } = answers.urgency.probabilities;
  t.ok(Math.abs(answers.urgency.score - (one + 2 * two)) < 1e-9);
  t.same(answers.urgency.legend, { 0: 'can wait', 1: 'today', 2: 'now' });
  t.ok(usage.input_tokens > 0);
  t.equal(usage.output_tokens, 0);
});

t.test('@typesafe-ai/sdk: errors have its typed classes', async (t) => {
  const baseURL = sidecar.base.replace(/\/v1$/, '');
  const client = new TypeSafeClient({ apiKey: sidecar.key, baseURL });
  const stranger = new TypeSafeClient({ apiKey: 'ra-dev-unknown', baseURL });
  const questions = { angry: noul('Is the customer angry?') };
  await t.rejects(stranger.systemOne({ state, questions }), AuthenticationError);
  await t.rejects(client.systemOne({ state, questions, model: 'another' }), PermissionDeniedError);
  await t.rejects(client.systemOne({ state: ' ', questions }), BadRequestError);
});

t.test('ai with @ai-sdk/typesafe-ai, with base URL and key, asks all three types of question', async (t) => {
  const { answers, usage, providerMetadata } = await experimental_decide({
    model: evaluationModel(sidecar.key),
    // Flat: these packages wrap it in a list of parts, which uses two of the three levels that the contract allows.
    state: { document: state.document, since: 2019 },
    questions: {
      refund: { type: 'boolean', instructions: 'Does the customer want money back?' },
      team: {
        type: 'choice',
        instructions: 'Who should handle this?',
        criteria: { billing: 'Charges and refunds', support: 'All else' },
      },
      urgency: { type: 'score', instructions: { ask: 'How urgent is it?' }, criteria: ['can wait', 'today', 'now'] },
    },
    maxRetries: 0,
  });
  t.ok(answers.refund.probability > 0 && answers.refund.probability < 1);
  const { probabilities } = answers.team;
  t.ok(probabilities && isDistribution(probabilities, ['billing', 'support']));
  t.ok(probabilities && probabilities[answers.team.choice] >= 0.5);
  t.ok(answers.urgency.score >= 0 && answers.urgency.score <= 2);
  t.equal(usage.outputTokens, 0);
  t.match(providerMetadata, { typesafe: { confidence: { team: Number, urgency: Number } } });
});

t.test('ai: an error is its API call error', async (t) => {
  const call = experimental_decide({
    model: evaluationModel('ra-dev-unknown'),
    state,
    questions: { refund: { type: 'boolean', instructions: 'Does the customer want money back?' } },
  });
  const error: unknown = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  t.ok(APICallError.isInstance(error));
  t.match(error, { statusCode: 401 });
});
