/** POST /decisions (docs/contract.md#post-decisions). */
import { type At, FULL_DECISIONS, type Json } from '../../support/bodies.js';
import { constant, filled, list, modelId, notBlank, number, object, oneOf, text } from './builders.js';
import { CANARY, type Closed, type ContractCase, type Rule, type Surface, changed, plainPlace } from './rule.js';

export const DECISIONS: Surface = { route: 'decisions', base: FULL_DECISIONS, place: plainPlace };

const MAX_WORDING = 65_536;
const REPEATED_NAME = 'must differ from the other names of its question, ignoring case and surrounding space';
const OTHER_VERSION = 'must be 1, the version that is served, or null';

const asked = (i: number): Json => ({ id: `q${i}`, type: 'yes_no', question: 'x' });
const option = (i: number): Json => ({ name: `option ${i}` });

const input = notBlank(['input'], 1_000_000);
const levels = list(['questions', 2, 'levels'], 2, 10, String);
const NAME: At = ['questions', 1, 'options', 1, 'name'];

export const DECISION_RULES: readonly Rule[] = [
  object([]),
  modelId(),
  { ...input, good: [...input.good, '😀'.repeat(1_000_000)] },
  list(['questions'], 1, 128, asked),
  object(['questions', 0], [asked(0)]),
  oneOf(['questions', 0, 'type'], ['yes_no', 'choice', 'score'], ['yes_no']),
  ...[0, 1, 2].map((i) => ({
    ...notBlank(['questions', i, 'id'], 128),
    good: ['x', '__proto__', '7', filled(128), '😀'.repeat(128)],
  })),
  ...[0, 1, 2].map((i) => notBlank(['questions', i, 'question'], MAX_WORDING)),
  text(['questions', 0, 'yes'], 0, MAX_WORDING),
  text(['questions', 0, 'no'], 0, MAX_WORDING),
  list(['questions', 1, 'options'], 2, 26, option),
  object(['questions', 1, 'options', 0], [option(0)]),
  {
    ...text(NAME, 1, 256),
    good: ['x', '__proto__', '1', filled(256), '\u0085', '😀'.repeat(256)],
    bad: [
      ['', 'must not be empty'],
      [filled(257), 'must have at most 256 characters'],
      ...['\n', '\r', '\u0000', '\u001f', '\u007f', '\u2028', '\u2029'].map(
        (character) => [`${CANARY}${character}b`, 'must be a single line'] as const,
      ),
      ['sales', REPEATED_NAME],
      [' SALES\u00a0', REPEATED_NAME],
    ],
  },
  text(['questions', 1, 'options', 0, 'description'], 0, MAX_WORDING),
  { ...levels, good: [...levels.good, ['same', 'same']] },
  notBlank(['questions', 2, 'levels', 1], MAX_WORDING),
  {
    ...number(['temperature'], 0, 100),
    good: [100, 0.001, 5e-324],
    bad: [
      [0, 'must be above 0'],
      [-1, 'must be above 0'],
      [100.001, 'must be at most 100'],
    ],
  },
  {
    ...constant(['prompt_format_version'], OTHER_VERSION),
    kinds: ['null'],
    wrong: OTHER_VERSION,
    good: [1, null],
    bad: [0, 2, 1.5, '1'].map((version) => [version, OTHER_VERSION]),
  },
];

const COMMON = ['id', 'type', 'question'];

export const DECISION_OBJECTS: readonly Closed[] = [
  {
    at: [],
    fields: ['model', 'input', 'questions', 'temperature', 'prompt_format_version'],
    required: ['model', 'input', 'questions'],
  },
  { at: ['questions', 0], fields: [...COMMON, 'yes', 'no'], required: COMMON },
  { at: ['questions', 1], fields: [...COMMON, 'options'], required: [...COMMON, 'options'] },
  { at: ['questions', 1, 'options', 0], fields: ['name', 'description'], required: ['name'] },
  { at: ['questions', 2], fields: [...COMMON, 'levels'], required: [...COMMON, 'levels'] },
];

const refused = (at: At, value: Json, message: string, param: string | null): ContractCase =>
  changed(DECISIONS, at, value, { message, param });

const outside = (i: number, name: string, fields: string): ContractCase =>
  refused(
    ['questions', i, name],
    CANARY,
    `questions[${i}] has a field outside the contract; its fields are id, type, question, ${fields}`,
    `questions[${i}]`,
  );

export const DECISION_CASES: readonly ContractCase[] = [
  outside(0, 'options', 'yes, no'),
  outside(0, 'levels', 'yes, no'),
  outside(1, 'yes', 'options'),
  outside(1, 'levels', 'options'),
  outside(2, 'no', 'levels'),
  outside(2, 'options', 'levels'),
  refused(['questions', 2, 'id'], 'a', 'questions[2].id must not be the id of an earlier question', 'questions[2].id'),
  refused(['questions', 1, 'id'], 'a', 'questions[1].id must not be the id of an earlier question', 'questions[1].id'),
  changed(DECISIONS, ['questions', 2, 'id'], 'A'),
  changed(DECISIONS, ['questions', 2, 'id'], ' a'),
  ...(
    [
      ['straße', 'STRASSE'],
      ['ẞ', 'ss'],
      ['σ', 'ς'],
      ['É', 'é'],
      ['Ω', '\u2126'],
      ['\ufeffa', 'A'],
    ] as const
  ).map(([one, other]) =>
    refused(
      ['questions', 1, 'options'],
      [{ name: one }, { name: other }],
      `questions[1].options[1].name ${REPEATED_NAME}`,
      'questions[1].options[1].name',
    ),
  ),
  changed(DECISIONS, ['questions', 1, 'options'], [{ name: 'a b' }, { name: 'a  b' }]),
  refused([], { [CANARY]: 1, temperature: 0 }, 'model is required', 'model'),
  // The first in the schema's order, whatever is wrong further on.
  refused(
    [],
    { model: '', input: ' ', questions: [asked(0)], temperature: 0, prompt_format_version: 2 },
    'model must not be empty',
    'model',
  ),
  refused(['questions'], [asked(0), { type: 'yes_no' }, CANARY], 'questions[1].id is required', 'questions[1].id'),
];
