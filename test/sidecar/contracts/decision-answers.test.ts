import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { validateAnswer } from '../../../sidecar/contracts/answer-schemas.js';
import {
  type QuestionResult,
  choiceConfidence,
  decisionAnswer,
  scoreConfidence,
  systemOneAnswer,
} from '../../../sidecar/contracts/decision-answers.js';
import type { DecisionParams } from '../../../sidecar/contracts/requests.js';
import type { Json } from '../../support/bodies.js';
import { rounds } from '../../support/long-form.js';
import { looseIn } from '../../support/replies.js';

const ID = '0b6ad1c0-1b7e-4d1f-9c57-0d8f3b5b9a10';

const result = (...probabilities: number[]): QuestionResult => ({
  probabilities: Float64Array.from(probabilities),
  labelMass: 0.75,
});

const PARAMS: DecisionParams = {
  route: 'decisions',
  model: 'decider-1',
  temperature: 1,
  questions: [
    { id: 'z', type: 'yes_no', answers: ['yes', 'no'] },
    { id: '10', type: 'choice', answers: ['b', '7', '__proto__', '2'] },
    { id: '__proto__', type: 'score', answers: ['low', 'mid', 'high'] },
    { id: '2', type: 'choice', answers: ['one', 'two'] },
  ],
};

const RESULTS = [result(0.25, 0.75), result(0.1, 0.2, 0.5, 0.2), result(0.5, 0.25, 0.25), result(0.5, 0.5)];

/** Objects whose names are the caller’s, and paths of fields that an answer may lack: none. */
const [MAPS, NO_FIELD] = [/answers$|(?<!z\.)probabilities|legend/, /^$a/];

t.test('decisions, to the letter and in order', async (t) => {
  const text = decisionAnswer(PARAMS, RESULTS, { promptTokens: 40 });
  t.equal(
    text,
    '{"object":"decisions","model":"decider-1","prompt_format_version":1,"answers":{' +
      '"z":{"type":"yes_no","probabilities":{"yes":0.25,"no":0.75},"label_mass":0.75},' +
      '"10":{"type":"choice","probabilities":{"b":0.1,"7":0.2,"__proto__":0.5,"2":0.2},"label_mass":0.75,"choice":"__proto__"},' +
      '"__proto__":{"type":"score","probabilities":{"0":0.5,"1":0.25,"2":0.25},"label_mass":0.75,"score":0.75},' +
      '"2":{"type":"choice","probabilities":{"one":0.5,"two":0.5},"label_mass":0.75,"choice":"one"}' +
      '},"usage":{"prompt_tokens":40,"completion_tokens":0,"total_tokens":40}}',
  );
  t.match(validateAnswer('Decisions', JSON.parse(text)), { ok: true });
  t.strictSame(looseIn('Decisions', JSON.parse(text) as Json, NO_FIELD, MAPS), []);
});

t.test('systemone, to the letter and in order', async (t) => {
  const [first, second, third] = PARAMS.questions;
  const questions = [first!, second!, { ...third!, legend: ['"low"', 'null', '{"b":1,"1":2}'] }];
  const text = systemOneAnswer({ ...PARAMS, questions }, RESULTS.slice(0, 3), { promptTokens: 40 }, ID);
  t.equal(
    text,
    `{"id":"${ID}","model":"decider-1","answers":{` +
      '"z":{"type":"noul","noul":0.25},' +
      '"10":{"type":"choice","choice":"__proto__","confidence":0.3333333333333333,"probabilities":{"b":0.1,"7":0.2,"__proto__":0.5,"2":0.2}},' +
      '"__proto__":{"type":"score","score":0.75,"confidence":0,"probabilities":{"0":0.5,"1":0.25,"2":0.25},"legend":{"0":"low","1":null,"2":{"b":1,"1":2}}}' +
      '},"usage":{"input_tokens":40,"output_tokens":0}}',
  );
  t.match(validateAnswer('SystemOne', JSON.parse(text)), { ok: true });
  t.strictSame(looseIn('SystemOne', JSON.parse(text) as Json, NO_FIELD, MAPS), []);
  const plain = systemOneAnswer({ ...PARAMS, questions: [third!] }, [RESULTS[2]!], { promptTokens: 1 }, ID);
  t.match(plain, '"legend":{"0":"low","1":"mid","2":"high"}', 'levels replace a missing legend');
});

t.test('confidence', async (t) => {
  t.equal(choiceConfidence(Float64Array.of(1, 0, 0)), 1);
  t.equal(choiceConfidence(Float64Array.of(0.25, 0.25, 0.25, 0.25)), 0);
  t.equal(choiceConfidence(Float64Array.of(0.25, 0.75)), 0.5);
  t.equal(choiceConfidence(Float64Array.of(0.49, 0.49)), 0, 'not below 0');
  t.equal(scoreConfidence(Float64Array.of(0, 1, 0)), 1);
  t.equal(scoreConfidence(Float64Array.of(0.5, 0, 0.5)), 0, 'not below 0');
  // n = 4: a uniform distribution is 1 from the middle on average; 0.2 of the mass is 1 from the mode.
  t.ok(Math.abs(scoreConfidence(Float64Array.of(0.1, 0.8, 0.1, 0)) - 0.8) < 1e-12);
  const spread = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 2, maxLength: 26 });
  fc.assert(
    fc.property(spread, (weights) => {
      const sum = weights.reduce((total, weight) => total + weight, 0);
      fc.pre(sum > 1e-3);
      const probabilities = Float64Array.from(weights, (weight) => weight / sum);
      for (const confidence of [choiceConfidence(probabilities), scoreConfidence(probabilities)])
        assert.ok(confidence >= 0 && confidence <= 1);
    }),
    { numRuns: rounds({ short: 20, long: 200 }) },
  );
});

t.test('an engine’s result that violates the protocol is a fault, not an answer', async (t) => {
  const usage = { promptTokens: 1 };
  const one = { ...PARAMS, questions: PARAMS.questions.slice(0, 1) };
  for (const [results, message] of [
    [[], 'as many results as questions'],
    [[result(0.5, 0.5), result(0.5, 0.5)], 'as many results as questions'],
    [[result(1)], 'a probability per answer'],
    [[result(0.5, 0.25, 0.25)], 'a probability per answer'],
    [[result(NaN, 1)], 'a finite number'],
    [[result(Infinity, 1)], 'a finite number'],
    [[{ ...result(0.5, 0.5), labelMass: NaN }], 'a finite number'],
  ] as const)
    t.throws(() => decisionAnswer(one, results, usage), { name: 'RangeError', message });
  t.match(decisionAnswer(one, [{ ...result(0.5, 0.5), labelMass: 1 + 2e-16 + 1e-9 }], usage), '"label_mass":1}');
});
