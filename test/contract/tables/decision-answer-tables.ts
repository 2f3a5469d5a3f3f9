/** The answers of both decision routes (docs/contract.md#post-decisions and #post-systemone). */
import type { At } from '../../support/bodies.js';
import { type AnswerTable, all, anyText, count, probability, score } from './answer-builders.js';
import { constant, object, oneOf, text } from './builders.js';
import { USAGE } from './completion-table.js';
import type { Rule } from './rule.js';

/** Probabilities by name: two at least. */
const spread = (at: At): Rule => ({
  ...object(at, [{ a: 0, b: 1 }]),
  bad: [[{ a: 1 }, 'must have at least 2 entries']],
});

const answer = (id: string, ...rest: At): At => ['answers', id, ...rest];
const answersRule: Rule = { ...object(['answers']), bad: [[{}, 'must have at least 1 entry']] };

export const DECISIONS: AnswerTable = {
  kind: 'decisions',
  base: {
    object: 'decisions',
    model: 'm',
    prompt_format_version: 1,
    answers: {
      a: { type: 'yes_no', probabilities: { yes: 0.5, no: 0.5 }, label_mass: 1 },
      b: { type: 'choice', probabilities: { x: 0.5, y: 0.5 }, label_mass: 1, choice: 'x' },
      c: { type: 'score', probabilities: { 0: 0.5, 1: 0.5 }, label_mass: 1, score: 0.5 },
    },
    usage: { prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 },
  },
  rules: [
    object([]),
    constant(['object'], 'decisions'),
    text(['model'], 1, 128),
    { ...constant(['prompt_format_version'], '1'), good: [1] },
    answersRule,
    ...['a', 'b', 'c'].map((id) => object(answer(id))),
    oneOf(answer('a', 'type'), ['yes_no', 'choice', 'score'], ['yes_no']),
    ...['a', 'b', 'c'].map((id) => probability(answer(id, 'label_mass'))),
    object(answer('a', 'probabilities')),
    probability(answer('a', 'probabilities', 'yes')),
    probability(answer('a', 'probabilities', 'no')),
    spread(answer('b', 'probabilities')),
    probability(answer('b', 'probabilities', 'x')),
    anyText(answer('b', 'choice')),
    spread(answer('c', 'probabilities')),
    probability(answer('c', 'probabilities', 0)),
    score(answer('c', 'score')),
    object(['usage']),
    count(['usage', 'prompt_tokens']),
    { ...constant(['usage', 'completion_tokens'], '0'), good: [0] },
    count(['usage', 'total_tokens']),
  ],
  objects: [
    all([], ['object', 'model', 'prompt_format_version', 'answers', 'usage']),
    all(answer('a'), ['type', 'probabilities', 'label_mass']),
    all(answer('a', 'probabilities'), ['yes', 'no']),
    all(answer('b'), ['type', 'probabilities', 'label_mass', 'choice']),
    all(answer('c'), ['type', 'probabilities', 'label_mass', 'score']),
    all(['usage'], USAGE),
  ],
};

const UUID = '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$';

export const SYSTEMONE: AnswerTable = {
  kind: 'systemone',
  base: {
    id: '0b6ad1c0-1b7e-4d1f-9c57-0d8f3b5b9a10',
    model: 'm',
    answers: {
      a: { type: 'noul', noul: 0.5 },
      b: { type: 'choice', choice: 'x', confidence: 0, probabilities: { x: 0.5, y: 0.5 } },
      c: { type: 'score', score: 1, confidence: 0, probabilities: { 0: 0.5, 1: 0.5 }, legend: { 0: 'lo', 1: null } },
    },
    usage: { input_tokens: 3, output_tokens: 0 },
  },
  rules: [
    object([]),
    {
      at: ['id'],
      kinds: ['string'],
      wrong: 'must be a string',
      good: ['00000000-0000-0000-0000-000000000000'],
      bad: [
        ['', `must match ${UUID}`],
        ['0B6AD1C0-1b7e-4d1f-9c57-0d8f3b5b9a10', `must match ${UUID}`],
        ['x0b6ad1c0-1b7e-4d1f-9c57-0d8f3b5b9a10', `must match ${UUID}`],
        ['0b6ad1c0-1b7e-4d1f-9c57-0d8f3b5b9a10x', `must match ${UUID}`],
      ],
    },
    text(['model'], 1, 128),
    answersRule,
    ...['a', 'b', 'c'].map((id) => object(answer(id))),
    oneOf(answer('a', 'type'), ['noul', 'choice', 'score'], ['noul']),
    probability(answer('a', 'noul')),
    anyText(answer('b', 'choice')),
    probability(answer('b', 'confidence')),
    spread(answer('b', 'probabilities')),
    probability(answer('b', 'probabilities', 'x')),
    score(answer('c', 'score')),
    probability(answer('c', 'confidence')),
    spread(answer('c', 'probabilities')),
    probability(answer('c', 'probabilities', 0)),
    { ...object(answer('c', 'legend')), bad: [[{ 0: 'x' }, 'must have at least 2 entries']] },
    object(['usage']),
    count(['usage', 'input_tokens']),
    { ...constant(['usage', 'output_tokens'], '0'), good: [0] },
  ],
  objects: [
    all([], ['id', 'model', 'answers', 'usage']),
    all(answer('a'), ['type', 'noul']),
    all(answer('b'), ['type', 'choice', 'confidence', 'probabilities']),
    all(answer('c'), ['type', 'score', 'confidence', 'probabilities', 'legend']),
    all(['usage'], ['input_tokens', 'output_tokens']),
  ],
};
