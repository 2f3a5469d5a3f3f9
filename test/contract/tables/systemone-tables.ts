/**
 * POST /systemone (docs/contract.md#post-systemone). Callers choose the questions’ names here, so a refusal names a
 * question by its index.
 */
import { type At, FULL_SYSTEMONE, type Json, pathText } from '../../support/bodies.js';
import { filled, many, modelId, object, oneOf } from './builders.js';
import { CANARY, type Closed, type ContractCase, type Rule, type Surface, changed, plainPlace } from './rule.js';

const IDS = ['a', 'b', 'c'];

/** `questions has an entry (index 1) whose criteria`; labels of a criteria object are not named either. */
function place(at: At): { subject: string; param: string | null } {
  const [map, id, ...inner] = at;
  if (map !== 'questions' || id === undefined) return plainPlace(at);
  const entry = `questions has an entry (index ${IDS.indexOf(String(id))})`;
  const labelled = inner[0] === 'criteria' && inner.length > 1;
  const inside = labelled ? 'criteria has an entry that' : pathText(inner);
  return { subject: inside === '' ? `${entry} that` : `${entry} whose ${inside}`, param: 'questions' };
}

export const SYSTEMONE: Surface = { route: 'systemone', base: FULL_SYSTEMONE, place };

const MAX_WORDING = 65_536;
const ANY_TEXT = 'must be a string or an array or an object';
const TOO_WIDE = 'must have at most 256 members in each array or object and at most 3 levels';
const TOO_LONG = `must have at most ${MAX_WORDING} characters in each text, JSON included`;

const nested = (levels: number): Json => (levels === 0 ? 1 : { a: nested(levels - 1) });
const members = (count: number): Json => Object.fromEntries(many(count, (i) => [`k${i}`, i]));
const labels = (count: number): Json => Object.fromEntries(many(count, (i) => [`l${i}`, null]));
const ask: Json = { type: 'noul', instructions: 'x' };
const asked = (count: number): Json => Object.fromEntries(many(count, (i) => [`q${i}`, ask]));

/** JSON text of so many characters that is not a string: `["aaa"]`. */
const rendered = (length: number): Json => ['a'.repeat(length - 4)];

const instructions = (id: string): Rule => ({
  at: ['questions', id, 'instructions'],
  kinds: ['string', 'array', 'object'],
  wrong: ANY_TEXT,
  good: ['x', [], {}, [1, { a: null }], 'a'.repeat(MAX_WORDING), rendered(MAX_WORDING)],
  bad: [
    ['', 'must not be blank'],
    [' \n', 'must not be blank'],
    [filled(MAX_WORDING + 1), `must have at most ${MAX_WORDING} characters`],
    [rendered(MAX_WORDING + 1), TOO_LONG],
  ],
});

/** One text of a criteria, where names are the caller's. */
const entry = (at: At, good: readonly Json[]): Rule => ({
  at,
  kinds: ['null', 'boolean', 'number', 'string', 'array', 'object'],
  wrong: '',
  good: [null, '', 1, false, ['x'], { a: 1 }, 'a'.repeat(MAX_WORDING), ...good],
  bad: [[filled(MAX_WORDING + 1), `must have at most ${MAX_WORDING} characters`]],
});

export const SYSTEMONE_RULES: readonly Rule[] = [
  object([]),
  modelId(),
  {
    at: ['state'],
    kinds: ['string', 'array', 'object'],
    wrong: ANY_TEXT,
    good: [
      ...['x', [], {}, [1, null, 'a'], [[[1]]], 'a'.repeat(1_000_000), rendered(1_000_000)],
      ...[nested(3), members(256), many(256, String), [members(256), members(256)]],
    ],
    bad: [
      ['', 'must not be blank'],
      [' \n', 'must not be blank'],
      [filled(1_000_001), 'must have at most 1000000 characters'],
      [rendered(1_000_001), 'must have at most 1000000 characters as JSON'],
      ...[nested(4), [[[[]]]], members(257), many(257, String), [members(257)], [[members(257)]]].map(
        (state) => [state, TOO_WIDE] as const,
      ),
    ],
  },
  {
    ...object(['questions'], [asked(1), asked(128), { [filled(128)]: ask }, { ['__proto__']: ask }]),
    bad: [
      [{}, 'must have at least 1 entry'],
      [asked(129), 'must have at most 128 entries'],
      ...(
        [
          ['', 'must not be blank'],
          [' ', 'must not be blank'],
          [filled(129), 'must have at most 128 characters'],
        ] as const
      ).map(([name, predicate]) => [{ [name]: ask }, `has a name that is not allowed: a name ${predicate}`] as const),
    ],
  },
  ...['temperature', 'prompt_format_version', 'return_prompt_token_ids', 'chat_template_kwargs'].map((name): Rule => ({
    at: [name],
    kinds: ['null'],
    wrong: 'must be absent or null',
    good: [null],
    bad: [],
  })),
  ...IDS.map((id) => object(['questions', id])),
  ...IDS.map((id, i) => {
    const types = ['noul', 'choice', 'score'];
    return oneOf(['questions', id, 'type'], types, types.slice(i, i + 1));
  }),
  ...IDS.map(instructions),
  {
    at: ['questions', 'a', 'criteria'],
    kinds: ['null', 'object'],
    wrong: 'must be an object or null',
    good: [null, {}, { true: 'x' }, { false: ['x'] }],
    bad: [
      [{ [CANARY]: 'x' }, 'has a field outside the contract; its fields are true, false'],
      [{ true: rendered(MAX_WORDING + 1) }, TOO_LONG],
      [{ false: rendered(MAX_WORDING + 1) }, TOO_LONG],
    ],
  },
  {
    at: ['questions', 'b', 'criteria'],
    kinds: ['object'],
    wrong: 'must be an object',
    good: [labels(2), labels(26), { a: null, ['__proto__']: 'x' }, { [filled(256)]: null, b: 1 }],
    bad: [
      [labels(1), 'must have at least 2 entries'],
      [labels(27), 'must have at most 26 entries'],
      [{ a: null, ' A': null }, 'must have labels that differ, ignoring case and surrounding space'],
      [{ a: null, b: rendered(MAX_WORDING + 1) }, TOO_LONG],
      ...(
        [
          ['', 'must not be empty'],
          [`${CANARY}\n`, 'must be a single line'],
          [filled(257), 'must have at most 256 characters'],
        ] as const
      ).map(
        ([name, predicate]) =>
          [{ a: null, [name]: null }, `has a name that is not allowed: a name ${predicate}`] as const,
      ),
    ],
  },
  {
    at: ['questions', 'c', 'criteria'],
    kinds: ['array'],
    wrong: 'must be an array',
    good: [many(2, String), many(10, String), ['same', 'same'], ['x', null, 3, { a: 1 }, ['b'], false]],
    bad: [
      [['x'], 'must have at least 2 items'],
      [many(11, String), 'must have at most 10 items'],
      [[rendered(MAX_WORDING + 1), 'x'], TOO_LONG],
    ],
  },
  entry(['questions', 'b', 'criteria', 'sales'], [rendered(MAX_WORDING)]),
];

export const SYSTEMONE_OBJECTS: readonly Closed[] = [
  { at: ['questions', 'a'], fields: ['type', 'instructions', 'criteria'], required: ['type', 'instructions'] },
  ...['b', 'c'].map((id) => ({
    at: ['questions', id],
    fields: ['type', 'instructions', 'criteria'],
    required: ['type', 'instructions', 'criteria'],
  })),
];

const tooLong = (id: string, label: string | number): ContractCase =>
  changed(SYSTEMONE, ['questions', id, 'criteria', label], filled(MAX_WORDING + 1), {
    message: `questions has an entry (index ${IDS.indexOf(id)}) whose criteria has an entry that must have at most ${MAX_WORDING} characters`,
    param: 'questions',
  });

export const SYSTEMONE_CASES: readonly ContractCase[] = [
  ...['model', 'state', 'questions'].map((name) =>
    changed(SYSTEMONE, [name], undefined, { message: `${name} is required`, param: name }),
  ),
  // Open at the top.
  ...[CANARY, 'input', 'anything_else', 'constructor', ''].map((name) => changed(SYSTEMONE, [name], { a: [1] })),
  changed(SYSTEMONE, ['__proto__'], { a: [1] }),
  changed(SYSTEMONE, [], { [CANARY]: 1, temperature: 0 }, { message: 'model is required', param: 'model' }),
  tooLong('a', 'true'),
  tooLong('a', 'false'),
  tooLong('c', 0),
  tooLong('c', 2),
];
