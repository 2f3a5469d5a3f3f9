/** POST /decisions (docs/contract.md#post-decisions). */
import {
  MODEL_ID,
  closed,
  oneOfBy,
  notBlank,
  MAX_ID,
  MAX_INPUT,
  MAX_LEVELS,
  MAX_OPTIONS,
  MAX_QUESTIONS,
  MAX_WORDING,
  OPTION_NAME,
  PROMPT_FORMAT_VERSION,
  firstRepeated,
  folded,
  exactly,
} from './common-schema.js';
import { placeOf, type Parsed, refuse, refuseAt } from './body-refusals.js';
import type { DecisionRequest, QuestionParams, QuestionText } from './requests.js';
import { compile, type ValueOf } from './validator.js';

const ID = notBlank(MAX_ID);
const WORDING = notBlank(MAX_WORDING);
const MEANING = { type: 'string', maxLength: MAX_WORDING } as const;

export const DECISIONS_SCHEMA = closed(['model', 'input', 'questions'], {
  model: MODEL_ID,
  input: notBlank(MAX_INPUT),
  questions: {
    type: 'array',
    minItems: 1,
    maxItems: MAX_QUESTIONS,
    items: oneOfBy('type', [
      closed(['id', 'type', 'question'], {
        id: ID,
        type: { const: 'yes_no' },
        question: WORDING,
        yes: MEANING,
        no: MEANING,
      }),
      exactly({
        id: ID,
        type: { const: 'choice' },
        question: WORDING,
        options: {
          type: 'array',
          minItems: 2,
          maxItems: MAX_OPTIONS,
          items: closed(['name'], { name: OPTION_NAME, description: MEANING }),
        },
      }),
      exactly({
        id: ID,
        type: { const: 'score' },
        question: WORDING,
        levels: { type: 'array', minItems: 2, maxItems: MAX_LEVELS, items: WORDING },
      }),
    ]),
  },
  temperature: { type: 'number', exclusiveMinimum: 0, maximum: 100 },
  prompt_format_version: {
    type: ['integer', 'null'],
    enum: [PROMPT_FORMAT_VERSION, null],
    'x-message': `must be ${PROMPT_FORMAT_VERSION}, the version that is served, or null`,
  },
});

type DecisionsBody = ValueOf<typeof DECISIONS_SCHEMA>;
type Question = DecisionsBody['questions'][number];

const check = compile<DecisionsBody>(DECISIONS_SCHEMA, { written: 'decisions' });

const NO_OPEN_MAPS: ReadonlySet<string> = new Set();

/** Checks a decisions body against its contract. */
export function toDecisionRequest(value: unknown): Parsed<DecisionRequest> {
  const outcome = check(value);
  if (!outcome.ok) return refuseAt(placeOf(outcome.segments, NO_OPEN_MAPS), outcome.message);
  const { model, input, questions, temperature = 1 } = outcome.value;

  const repeatedId = firstRepeated(questions.map(({ id }) => id));
  if (repeatedId >= 0) return refuse(`questions[${repeatedId}].id`, 'must not be the id of an earlier question');
  for (const [i, asked] of questions.entries()) {
    if (asked.type !== 'choice') continue;
    const repeated = firstRepeated(asked.options.map(({ name }) => folded(name)));
    if (repeated < 0) continue;
    const param = `questions[${i}].options[${repeated}].name`;
    return refuse(param, 'must differ from the other names of its question, ignoring case and surrounding space');
  }

  return {
    kind: 'ok',
    request: {
      params: { route: 'decisions', model, temperature, questions: questions.map(paramsOf) },
      input,
      questions: questions.map(textOf),
    },
  };
}

function paramsOf(asked: Question): QuestionParams {
  const { id, type } = asked;
  switch (type) {
    case 'yes_no':
      return { id, type, answers: ['yes', 'no'] };
    case 'choice':
      return { id, type, answers: asked.options.map(({ name }) => name) };
    case 'score':
      return { id, type, answers: asked.levels };
  }
}

function textOf(asked: Question): QuestionText {
  switch (asked.type) {
    case 'yes_no':
      return { question: asked.question, meanings: [asked.yes, asked.no] };
    case 'choice':
      return { question: asked.question, meanings: asked.options.map(({ description }) => description) };
    case 'score':
      return { question: asked.question, meanings: asked.levels.map(() => undefined) };
  }
}
