import t from 'tap';
import { parseDecisions } from '../../../sidecar/contracts/parse.js';
import {
  type At,
  FULL_DECISIONS,
  type Json,
  bytesOf,
  objectsIn,
  pathText,
  shown,
  verdictOf,
  withAt,
} from '../../support/bodies.js';

const parse = (body: Json | string) => parseDecisions('decisions', bytesOf(body));

const put = (at: At, value: Json | undefined) => parse(withAt(FULL_DECISIONS, at, value));

t.test('a whole request', (t) => {
  t.same(parse(FULL_DECISIONS), {
    kind: 'ok',
    request: {
      params: {
        route: 'decisions',
        model: 'decider-1',
        temperature: 2,
        questions: [
          { id: 'a', type: 'yes_no', answers: ['yes', 'no'] },
          { id: 'b', type: 'choice', answers: ['sales', 'billing'] },
          { id: 'c', type: 'score', answers: ['calm', 'cross', 'furious'] },
        ],
      },
      input: 'I was charged twice.',
      questions: [
        { question: 'Is it about money?', meanings: ['it is', 'it is not'] },
        { question: 'Which desk?', meanings: ['sells', undefined] },
        { question: 'How angry?', meanings: [undefined, undefined, undefined] },
      ],
    },
  });
  t.match(put(['temperature'], undefined), { request: { params: { temperature: 1 } } });
  t.end();
});

const option = (i: number): Json => ({ name: `option ${i}` });
const many = <T>(count: number, make: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));
const asked = (i: number): Json => ({ id: `q${i}`, type: 'yes_no', question: 'x' });

const RULES: readonly (readonly [at: At, good: readonly Json[], bad: readonly (readonly [Json, string])[]])[] = [
  [
    ['model'],
    ['a', 'a'.repeat(128)],
    [
      ['', 'must not be empty'],
      ['a'.repeat(129), 'must have at most 128 characters'],
      [1, 'must be a string'],
    ],
  ],
  [
    ['input'],
    ['x', ' x ', 'a'.repeat(1_000_000), '😀'.repeat(1_000_000)],
    [
      ['', 'must not be blank'],
      [' \n\t\u00a0\u3000', 'must not be blank'],
      ['a'.repeat(1_000_001), 'must have at most 1000000 characters'],
      [['x'], 'must be a string'],
      [null, 'must be a string'],
    ],
  ],
  [
    ['questions'],
    [many(1, asked), many(128, asked)],
    [
      [[], 'must have at least 1 item'],
      [many(129, asked), 'must have at most 128 items'],
      [{}, 'must be an array'],
    ],
  ],
  [
    ['questions', 0],
    [asked(0)],
    [
      ['x', 'must be an object'],
      [null, 'must be an object'],
    ],
  ],
  [
    ['questions', 0, 'type'],
    ['yes_no'],
    [
      ['noul', 'must be one of yes_no, choice, score'],
      [1, 'must be one of yes_no, choice, score'],
    ],
  ],
  [
    ['questions', 0, 'id'],
    ['x', '__proto__', '7', 'é'.repeat(128)],
    [
      ['', 'must not be blank'],
      ['  ', 'must not be blank'],
      ['a'.repeat(129), 'must have at most 128 characters'],
      [1, 'must be a string'],
    ],
  ],
  ...[0, 1, 2].map(
    (i) =>
      [
        ['questions', i, 'question'],
        ['x', 'a'.repeat(65_536)],
        [
          ['', 'must not be blank'],
          ['a'.repeat(65_537), 'must have at most 65536 characters'],
          [{}, 'must be a string'],
        ],
      ] as const,
  ),
  ...(['yes', 'no'] as const).map(
    (name) =>
      [
        ['questions', 0, name],
        ['', 'x', 'a'.repeat(65_536)],
        [
          ['a'.repeat(65_537), 'must have at most 65536 characters'],
          [null, 'must be a string'],
        ],
      ] as const,
  ),
  [
    ['questions', 1, 'options'],
    [many(2, option), many(26, option)],
    [
      [many(1, option), 'must have at least 2 items'],
      [many(27, option), 'must have at most 26 items'],
      [{}, 'must be an array'],
    ],
  ],
  [['questions', 1, 'options', 0], [option(0)], [['sales', 'must be an object']]],
  [
    ['questions', 1, 'options', 1, 'name'],
    ['x', '__proto__', '1', 'a'.repeat(256), '\u0085', '😀'.repeat(256)],
    [
      ['', 'must not be empty'],
      ['a'.repeat(257), 'must have at most 256 characters'],
      ['a\nb', 'must be a single line'],
      ['a\u0000', 'must be a single line'],
      ['a\u001f', 'must be a single line'],
      ['a\u007f', 'must be a single line'],
      ['a\u2028b', 'must be a single line'],
      ['a\u2029b', 'must be a single line'],
      [1, 'must be a string'],
      ['sales', 'must differ from the other names of its question, ignoring case and surrounding space'],
      [' SALES\u00a0', 'must differ from the other names of its question, ignoring case and surrounding space'],
    ],
  ],
  [
    ['questions', 1, 'options', 0, 'description'],
    ['', 'a'.repeat(65_536)],
    [
      ['a'.repeat(65_537), 'must have at most 65536 characters'],
      [null, 'must be a string'],
    ],
  ],
  [
    ['questions', 2, 'levels'],
    [many(2, String), many(10, String), ['same', 'same']],
    [
      [['x'], 'must have at least 2 items'],
      [many(11, String), 'must have at most 10 items'],
      ['x', 'must be an array'],
    ],
  ],
  [
    ['questions', 2, 'levels', 1],
    ['x', 'a'.repeat(65_536)],
    [
      [' ', 'must not be blank'],
      ['a'.repeat(65_537), 'must have at most 65536 characters'],
      [1, 'must be a string'],
    ],
  ],
  [
    ['temperature'],
    [100, 0.001, 5e-324],
    [
      [0, 'must be above 0'],
      [-1, 'must be above 0'],
      [100.001, 'must be at most 100'],
      ['1', 'must be a number'],
      [null, 'must be a number'],
    ],
  ],
  [
    ['prompt_format_version'],
    [1, null],
    [0, 2, 1.5, '1'].map((value) => [value, 'must be 1, the version that is served, or null'] as const),
  ],
];

for (const [at, good, bad] of RULES) {
  const path = pathText(at);
  for (const value of good) t.equal(put(at, value).kind, 'ok', `${path} takes ${shown(value)}`);
  for (const [value, predicate] of bad) {
    const expected = { code: 'bad_request', status: 400, message: `${path} ${predicate}`, param: path };
    t.same(verdictOf(put(at, value)), expected, `${path} refuses ${shown(value)}`);
  }
}

t.test('every object is closed, and what is left out is told', (t) => {
  for (const at of objectsIn(FULL_DECISIONS)) {
    for (const unknown of ['zcanary', '__proto__']) {
      const parsed = put([...at, unknown], 'zcanary');
      const subject = pathText(at) === '' ? 'the body' : pathText(at);
      t.match(parsed, { error: { message: new RegExp(`^${subject.replace(/[[\]]/g, '\\$&')} has a field outside`) } });
      t.notMatch(JSON.stringify(parsed), /zcanary|__proto__/);
    }
  }
  const optional = [
    'questions[0].yes',
    'questions[0].no',
    'questions[1].options[0].description',
    'temperature',
    'prompt_format_version',
  ];
  const fields = objectsIn(FULL_DECISIONS).flatMap((at) => {
    const object = at.reduce<unknown>(
      (value, step) => (value as Record<string, unknown>)[String(step)],
      FULL_DECISIONS,
    );
    return Object.keys(object as object).map((name) => [...at, name]);
  });
  for (const at of fields) {
    const path = pathText(at);
    if (optional.includes(path)) t.equal(put(at, undefined).kind, 'ok', path);
    else t.match(put(at, undefined), { error: { message: `${path} is required`, param: path } });
  }
  t.end();
});

t.test('fields of another type are unknown', (t) => {
  t.match(put(['questions', 0, 'options'], []), { error: { param: 'questions[0]' } });
  t.match(put(['questions', 1, 'levels'], []), { error: { param: 'questions[1]' } });
  t.match(put(['questions', 2, 'yes'], 'x'), { error: { param: 'questions[2]' } });
  t.end();
});

t.test('ids are unique', (t) => {
  t.match(put(['questions', 2, 'id'], 'a'), {
    error: { message: 'questions[2].id must not be the id of an earlier question', param: 'questions[2].id' },
  });
  t.equal(put(['questions', 2, 'id'], 'A').kind, 'ok', 'as they are written');
  t.end();
});

t.test('option names are folded as far as Unicode goes', (t) => {
  for (const [one, other] of [
    ['straße', 'STRASSE'],
    ['ẞ', 'ss'],
    ['σ', 'ς'],
    ['É', 'é'],
    ['Ω', '\u2126'],
    ['\ufeffa', 'A'],
  ] as const) {
    const parsed = put(['questions', 1, 'options'], [{ name: one }, { name: other }]);
    t.match(parsed, { error: { param: 'questions[1].options[1].name' } }, `${one} ${other}`);
  }
  t.equal(put(['questions', 1, 'options'], [{ name: 'a b' }, { name: 'a  b' }]).kind, 'ok');
  t.end();
});

t.test('a body that is no object', (t) => {
  for (const body of ['[]', '1', 'null', '"x"']) {
    t.match(parse(body), { error: { message: 'the body must be an object', param: null } });
  }
  t.match(parse('{"model":"m","model":"m"}'), {
    error: { message: 'the body must not repeat a name within one object' },
  });
  t.match(parse('\ufeff{}'), { error: { message: 'the body must not begin with a byte order mark' } });
  t.match(parse(''), { error: { message: 'the body must be JSON' } });
  t.end();
});
