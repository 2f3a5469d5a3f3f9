import t from 'tap';
import { parseDecisions } from '../../../sidecar/contracts/parse.js';
import { type At, FULL_SYSTEMONE, type Json, bytesOf, shown, verdictOf, withAt } from '../../support/bodies.js';

const parse = (body: Json | string) => parseDecisions('systemone', bytesOf(body));

const put = (at: At, value: Json | undefined) => parse(withAt(FULL_SYSTEMONE, at, value));

const nested = (levels: number): Json => (levels === 0 ? 1 : { a: nested(levels - 1) });
const members = (count: number): Json => Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, i]));
const labels = (count: number): Json => Object.fromEntries(Array.from({ length: count }, (_, i) => [`l${i}`, null]));

t.test('a whole request', (t) => {
  t.same(parse(FULL_SYSTEMONE), {
    kind: 'ok',
    request: {
      params: {
        route: 'systemone',
        model: 'decider-1',
        temperature: 1,
        questions: [
          { id: 'a', type: 'yes_no', answers: ['yes', 'no'] },
          { id: 'b', type: 'choice', answers: ['sales', 'billing'] },
          {
            id: 'c',
            type: 'score',
            answers: ['calm', '{"level":"cross"}', '2'],
            legend: ['"calm"', '{"level":"cross"}', 'null'],
          },
        ],
      },
      input: '{"note":"I was charged twice.","tags":[{"a":1}]}',
      questions: [
        { question: 'Is it about money?', meanings: ['it is', undefined] },
        { question: '{"ask":["Which desk?"]}', meanings: ['sells', undefined] },
        { question: '["How angry?"]', meanings: [undefined, undefined, undefined] },
      ],
    },
  });
  t.end();
});

t.test('order, unusual names and number texts are kept', (t) => {
  const parsed = parse(`{
    "questions": {
      "z": { "criteria": { "b": "x", "10": { "y": 1.0, "2": [ ] }, "__proto__": null, "2": "two" }, "type": "choice",
             "instructions": { "z": 1e2, "1": 12345678901234567890 } },
      "7": { "type": "noul", "instructions": "?" },
      "__proto__": { "type": "score", "instructions": "?", "criteria": [ "lo", 1.50 ] }
    },
    "state": [ 1.0, { "b": 1, "1": 2 } ],
    "model": "m",
    "extra": { "anything": true }
  }`);
  t.same(parsed, {
    kind: 'ok',
    request: {
      params: {
        route: 'systemone',
        model: 'm',
        temperature: 1,
        questions: [
          { id: 'z', type: 'choice', answers: ['b', '10', '__proto__', '2'] },
          { id: '7', type: 'yes_no', answers: ['yes', 'no'] },
          { id: '__proto__', type: 'score', answers: ['lo', '1.50'], legend: ['"lo"', '1.50'] },
        ],
      },
      input: '[1.0,{"b":1,"1":2}]',
      questions: [
        { question: '{"z":1e2,"1":12345678901234567890}', meanings: ['x', '{"y":1.0,"2":[]}', undefined, 'two'] },
        { question: '?', meanings: [undefined, undefined] },
        { question: '?', meanings: [undefined, undefined] },
      ],
    },
  });
  t.end();
});

t.test('fields of the body', (t) => {
  for (const name of ['temperature', 'prompt_format_version', 'return_prompt_token_ids', 'chat_template_kwargs']) {
    t.equal(put([name], null).kind, 'ok', `${name} may be null`);
    for (const value of [0, 1, false, {}, '']) {
      t.match(put([name], value), { error: { message: `${name} must be absent or null`, param: name } });
    }
  }
  t.equal(put(['anything_else'], { a: [1] }).kind, 'ok');
  for (const name of ['model', 'state', 'questions']) {
    t.match(put([name], undefined), { error: { message: `${name} is required`, param: name } });
  }
  t.match(put(['model'], 'a b'), { error: { param: 'model' } });
  t.end();
});

t.test('state', (t) => {
  for (const state of [
    'x',
    [],
    {},
    [1, null, 'a'],
    nested(3),
    members(256),
    [members(256), members(256)],
    [[[1]]],
    'a'.repeat(1_000_000),
  ]) {
    t.equal(put(['state'], state).kind, 'ok', shown(state));
  }
  t.match(put(['state'], 'plain "text"'), { request: { input: 'plain "text"' } });
  for (const [state, predicate] of [
    ['', 'must not be blank'],
    [' \n', 'must not be blank'],
    ['a'.repeat(1_000_001), 'must have at most 1000000 characters'],
    [null, 'must be a string or an array or an object'],
    [1, 'must be a string or an array or an object'],
    [nested(4), 'must have at most 256 members in each array or object and at most 3 levels'],
    [[[[[]]]], 'must have at most 256 members in each array or object and at most 3 levels'],
    [members(257), 'must have at most 256 members in each array or object and at most 3 levels'],
    [[members(257)], 'must have at most 256 members in each array or object and at most 3 levels'],
    [['a'.repeat(1_000_000)], 'must have at most 1000000 characters as JSON'],
  ] as const) {
    t.same(verdictOf(put(['state'], state)), {
      code: 'bad_request',
      status: 400,
      message: `state ${predicate}`,
      param: 'state',
    });
  }
  t.end();
});

t.test('names of questions', (t) => {
  const ask = { type: 'noul', instructions: 'x' };
  const named = (name: string) => put(['questions'], { [name]: ask });
  t.equal(named('a'.repeat(128)).kind, 'ok');
  t.equal(named('__proto__').kind, 'ok');
  for (const [name, predicate] of [
    ['', 'must not be blank'],
    [' ', 'must not be blank'],
    ['z'.repeat(129), 'must have at most 128 characters'],
  ] as const) {
    const message = `questions has a name that is not allowed: a name ${predicate}`;
    t.match(named(name), { error: { message, param: 'questions' } });
  }
  const many = (count: number) =>
    put(['questions'], Object.fromEntries(Array.from({ length: count }, (_, i) => [`q${i}`, ask])));
  t.equal(many(128).kind, 'ok');
  t.match(many(129), { error: { message: 'questions must have at most 128 entries', param: 'questions' } });
  t.match(many(0), { error: { message: 'questions must have at least 1 entry' } });
  t.match(put(['questions'], [ask]), { error: { message: 'questions must be an object' } });
  t.end();
});

/** Places in the second, third or first question, and the message. */
const PROBLEMS: readonly (readonly [at: At, value: Json | undefined, words: string])[] = [
  [['a'], 'x', '(index 0) that must be an object'],
  [['a', 'type'], undefined, '(index 0) whose type is required'],
  [['a', 'type'], 'yes_no', '(index 0) whose type must be one of noul, choice, score'],
  [['a', 'zcanary'], 1, '(index 0) that has a field outside the contract; its fields are type, instructions, criteria'],
  [['a', 'instructions'], undefined, '(index 0) whose instructions is required'],
  [['a', 'instructions'], null, '(index 0) whose instructions must be a string or an array or an object'],
  [['a', 'instructions'], 1, '(index 0) whose instructions must be a string or an array or an object'],
  [['a', 'instructions'], ' ', '(index 0) whose instructions must not be blank'],
  [['a', 'instructions'], 'a'.repeat(65_537), '(index 0) whose instructions must have at most 65536 characters'],
  [
    ['b', 'instructions'],
    ['a'.repeat(65_533)],
    '(index 1) whose instructions must have at most 65536 characters in each text, JSON included',
  ],
  [['a', 'criteria'], [], '(index 0) whose criteria must be an object or null'],
  [
    ['a', 'criteria'],
    { zcanary: 'x' },
    '(index 0) whose criteria has a field outside the contract; its fields are true, false',
  ],
  [
    ['a', 'criteria', 'true'],
    ['a'.repeat(65_533)],
    '(index 0) whose criteria must have at most 65536 characters in each text, JSON included',
  ],
  [['b', 'criteria'], undefined, '(index 1) whose criteria is required'],
  [['b', 'criteria'], null, '(index 1) whose criteria must be an object'],
  [['b', 'criteria'], ['x', 'y'], '(index 1) whose criteria must be an object'],
  [['b', 'criteria'], labels(1), '(index 1) whose criteria must have at least 2 entries'],
  [['b', 'criteria'], labels(27), '(index 1) whose criteria must have at most 26 entries'],
  [
    ['b', 'criteria'],
    { a: null, ' A': null },
    '(index 1) whose criteria must have labels that differ, ignoring case and surrounding space',
  ],
  [
    ['b', 'criteria'],
    { a: null, '': null },
    '(index 1) whose criteria has a name that is not allowed: a name must not be empty',
  ],
  [
    ['b', 'criteria'],
    { a: null, 'b\n': null },
    '(index 1) whose criteria has a name that is not allowed: a name must be a single line',
  ],
  [
    ['b', 'criteria'],
    { a: null, [`z${'z'.repeat(256)}`]: null },
    '(index 1) whose criteria has a name that is not allowed: a name must have at most 256 characters',
  ],
  [
    ['b', 'criteria', 'zcanary'],
    'a'.repeat(65_537),
    '(index 1) whose criteria has an entry that must have at most 65536 characters',
  ],
  [['c', 'criteria'], undefined, '(index 2) whose criteria is required'],
  [['c', 'criteria'], { a: 'x', b: 'y' }, '(index 2) whose criteria must be an array'],
  [['c', 'criteria'], ['x'], '(index 2) whose criteria must have at least 2 items'],
  [['c', 'criteria'], Array<string>(11).fill('x'), '(index 2) whose criteria must have at most 10 items'],
  [
    ['c', 'criteria', 0],
    ['a'.repeat(65_533)],
    '(index 2) whose criteria must have at most 65536 characters in each text, JSON included',
  ],
];

for (const [at, value, words] of PROBLEMS) {
  const parsed = put(['questions', ...at], value);
  t.same(
    verdictOf(parsed),
    { code: 'bad_request', status: 400, message: `questions has an entry ${words}`, param: 'questions' },
    words,
  );
  t.notMatch(JSON.stringify(parsed), 'zcanary');
}

t.test('the index is the place in the text, not in a JavaScript object', (t) => {
  const parsed = parse(
    '{"model":"m","state":"s","questions":{"z":{"type":"noul","instructions":"x"},"1":{"type":"noul"}}}',
  );
  t.match(parsed, { error: { message: 'questions has an entry (index 1) whose instructions is required' } });
  t.end();
});

t.test('fields of a question', (t) => {
  for (const [at, value] of [
    [['a', 'instructions'], ['a'.repeat(65_532)]],
    [['a', 'instructions'], 'a'.repeat(65_536)],
    [['a', 'criteria'], undefined],
    [['a', 'criteria'], null],
    [['a', 'criteria'], {}],
    [['b', 'criteria'], labels(26)],
    [['b', 'criteria'], { a: { x: 1 }, b: ['y'], c: 1, d: true }],
    [
      ['c', 'criteria'],
      ['x', null, 3, { a: 1 }, ['b'], false],
    ],
    [['c', 'criteria'], Array<string>(10).fill('x')],
  ] as const) {
    t.equal(put(['questions', ...at], value).kind, 'ok', `${at.join('.')} ${shown(value)}`);
  }
  t.end();
});

t.test('a name twice', (t) => {
  for (const text of [
    '{"model":"m","state":{"a":1,"a":2},"questions":{"q":{"type":"noul","instructions":"x"}}}',
    '{"model":"m","state":"s","questions":{"q":{"type":"noul","instructions":"x"},"q":{"type":"noul","instructions":"x"}}}',
    '{"model":"m","state":"s","questions":{"q":{"type":"choice","instructions":"x","criteria":{"a":1,"a":2}}}}',
  ]) {
    t.match(parse(text), { error: { message: 'the body must not repeat a name within one object', param: null } });
  }
  t.end();
});
