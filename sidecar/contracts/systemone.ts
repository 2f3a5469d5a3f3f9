/**
 * POST /systemone (docs/contract.md#post-systemone): the questions of /decisions in TypeSafe's shape.
 *
 * Callers choose names here (questions, labels), so order is read from the text, and no name of theirs is ever in an
 * error. The value decides whether a request is valid; the text only says what order it had and how it was written.
 */
import {
  MODEL_ID,
  NOT_BLANK,
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
  firstRepeated,
  folded,
  exactly,
} from './common-schema.js';
import { type Member, type Span, compactText, elementsOf, membersOf, rootOf } from './json.js';
import { hasAtMost } from './formats.js';
import { placeOf, type Parsed, refuseAt } from './body-refusals.js';
import type { DecisionRequest, QuestionParams, QuestionText } from './requests.js';
import { compile } from './validator.js';

/** Most members of one array or object in `state`, and how many of them may stand inside one another. */
const MAX_STATE_MEMBERS = 256;
const MAX_STATE_LEVELS = 3;

const ABSENT_OR_NULL = { type: 'null', 'x-message': 'must be absent or null' } as const;

/** A text, JSON or null. What is not a string is measured once it is rendered. */
const ENTRY = { type: ['string', 'number', 'boolean', 'array', 'object', 'null'], maxLength: MAX_WORDING } as const;

const INSTRUCTIONS = {
  type: ['string', 'array', 'object'],
  maxLength: MAX_WORDING,
  if: { type: 'string' },
  then: NOT_BLANK,
} as const;

const QUESTION = oneOfBy('type', [
  closed(['type', 'instructions'], {
    type: { const: 'noul' },
    instructions: INSTRUCTIONS,
    criteria: { type: ['object', 'null'], additionalProperties: false, properties: { true: ENTRY, false: ENTRY } },
  }),
  exactly({
    type: { const: 'choice' },
    instructions: INSTRUCTIONS,
    criteria: {
      type: 'object',
      minProperties: 2,
      maxProperties: MAX_OPTIONS,
      propertyNames: OPTION_NAME,
      additionalProperties: ENTRY,
    },
  }),
  exactly({
    type: { const: 'score' },
    instructions: INSTRUCTIONS,
    criteria: { type: 'array', minItems: 2, maxItems: MAX_LEVELS, items: ENTRY },
  }),
]);

export const SYSTEMONE_SCHEMA = {
  type: 'object',
  required: ['model', 'state', 'questions'],
  properties: {
    model: MODEL_ID,
    state: { type: ['string', 'array', 'object'], maxLength: MAX_INPUT, if: { type: 'string' }, then: NOT_BLANK },
    questions: {
      type: 'object',
      minProperties: 1,
      maxProperties: MAX_QUESTIONS,
      propertyNames: notBlank(MAX_ID),
      additionalProperties: QUESTION,
    },
    temperature: ABSENT_OR_NULL,
    prompt_format_version: ABSENT_OR_NULL,
    return_prompt_token_ids: ABSENT_OR_NULL,
    chat_template_kwargs: ABSENT_OR_NULL,
  },
} as const;

/** A body that passed its schema. What callers named is read from the text instead. */
interface SystemOneBody {
  readonly model: string;
  readonly state: unknown;
}

const check = compile<SystemOneBody>(SYSTEMONE_SCHEMA, { written: 'systemone' });

/** Names of maps whose keys callers choose. */
const OPEN_MAPS: ReadonlySet<string> = new Set(['questions', 'criteria']);

/** One question as read from the text. */
interface Question {
  readonly params: QuestionParams;
  readonly text: QuestionText;
}

/** A problem that no schema can see. `segments` lead to it. */
interface Problem {
  readonly segments: readonly string[];
  readonly predicate: string;
}

/** Checks a systemone body against its contract. `text` is what `value` was parsed from. */
export function toSystemOneRequest(value: unknown, text: string): Parsed<DecisionRequest> {
  const outcome = check(value);
  if (!outcome.ok) return refuseIn(text, outcome.segments, outcome.message);
  const { model, state } = outcome.value;
  if (!isSmall(state, MAX_STATE_LEVELS)) {
    const limits = `at most ${MAX_STATE_MEMBERS} members in each array or object and at most ${MAX_STATE_LEVELS} levels`;
    return refuseIn(text, ['state'], `must have ${limits}`);
  }

  const body = fieldsOf(text, rootOf(text));
  const input = renderedOf(text, fieldOf(body, 'state')) ?? '';
  if (!hasAtMost(input, MAX_INPUT))
    return refuseIn(text, ['state'], `must have at most ${MAX_INPUT} characters as JSON`);
  const questions: Question[] = [];
  for (const member of membersOf(text, fieldOf(body, 'questions'))) {
    const question = readQuestion(text, member);
    if ('predicate' in question) {
      return refuseIn(text, ['questions', member.name, ...question.segments], question.predicate);
    }
    questions.push(question);
  }
  return {
    kind: 'ok',
    request: {
      params: { route: 'systemone', model, temperature: 1, questions: questions.map(({ params }) => params) },
      input,
      questions: questions.map((question) => question.text),
    },
  };
}

/** Refuses what is at `segments`; the message names a question by its index, not by its name. */
function refuseIn(text: string, segments: readonly string[], predicate: string): Parsed<never> {
  const [map, name] = segments;
  const index =
    map === 'questions' && name !== undefined
      ? membersOf(text, fieldOf(fieldsOf(text, rootOf(text)), map)).findIndex((question) => question.name === name)
      : undefined;
  return refuseAt(placeOf(segments, OPEN_MAPS, index), predicate);
}

function readQuestion(text: string, member: Member): Question | Problem {
  const fields = fieldsOf(text, member);
  const type = renderedOf(text, fieldOf(fields, 'type')) as 'noul' | 'choice' | 'score';
  const question = renderedOf(text, fieldOf(fields, 'instructions')) ?? '';
  if (!hasAtMost(question, MAX_WORDING)) return tooLong('instructions');
  const read = READERS[type](text, member.name, fields.get('criteria'));
  if ('predicate' in read) return read;
  if (read.meanings.some((meaning) => meaning !== undefined && !hasAtMost(meaning, MAX_WORDING))) {
    return tooLong('criteria');
  }
  return { params: read.params, text: { question, meanings: read.meanings } };
}

type Reader = (
  text: string,
  id: string,
  criteria: Span | undefined,
) => { readonly params: QuestionParams; readonly meanings: QuestionText['meanings'] } | Problem;

const READERS: Readonly<Record<'noul' | 'choice' | 'score', Reader>> = {
  noul(text, id, criteria) {
    const fields = criteria && text.charAt(criteria.from) === '{' ? fieldsOf(text, criteria) : new Map<string, Span>();
    const meanings = ['true', 'false'].map((answer) => {
      const span = fields.get(answer);
      return span && renderedOf(text, span);
    });
    return { params: { id, type: 'yes_no', answers: ['yes', 'no'] }, meanings };
  },
  choice(text, id, criteria) {
    const options = criteria ? membersOf(text, criteria) : [];
    const answers = options.map(({ name }) => name);
    if (firstRepeated(answers.map(folded)) >= 0) {
      return { segments: ['criteria'], predicate: 'must have labels that differ, ignoring case and surrounding space' };
    }
    return { params: { id, type: 'choice', answers }, meanings: options.map((option) => renderedOf(text, option)) };
  },
  score(text, id, criteria) {
    const levels = criteria ? elementsOf(text, criteria) : [];
    const answers = levels.map((level, i) => renderedOf(text, level) ?? String(i));
    if (!answers.every((answer) => hasAtMost(answer, MAX_WORDING))) return tooLong('criteria');
    const legend = levels.map((level) => compactText(text, level));
    return { params: { id, type: 'score', answers, legend }, meanings: levels.map(() => undefined) };
  },
};

function tooLong(field: string): Problem {
  return { segments: [field], predicate: `must have at most ${MAX_WORDING} characters in each text, JSON included` };
}

/** A string's value, other values as compact JSON, null as undefined. */
function renderedOf(text: string, span: Span): string | undefined {
  const first = text.charAt(span.from);
  if (first === '"') return JSON.parse(text.slice(span.from, span.to)) as string;
  return first === 'n' ? undefined : compactText(text, span);
}

function fieldsOf(text: string, span: Span): ReadonlyMap<string, Span> {
  return new Map(membersOf(text, span).map((member) => [member.name, member]));
}

/** A field that the schema requires. */
function fieldOf(fields: ReadonlyMap<string, Span>, name: string): Span {
  const span = fields.get(name);
  if (span === undefined) throw new Error('the text and its value disagree');
  return span;
}

/** Whether arrays and objects stay within the members and levels allowed in `state`. */
function isSmall(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  const items: unknown[] = Object.values(value);
  return levels > 0 && items.length <= MAX_STATE_MEMBERS && items.every((item) => isSmall(item, levels - 1));
}
