/** Patterns as automata, compared with JavaScript’s regular expressions, and formats compared with ajv’s. */
import addFormats from 'ajv-formats';
import { Ajv } from 'ajv';
import fc from 'fast-check';
import t from 'tap';
import { formatPattern, isText, textAutomaton } from '../../../engine/grammar/text-automaton.js';
import { schemaGrammar } from '../../../engine/grammar/schema.js';
import { MAX_PATTERN_WORK, MAX_WORK, WorkBudget } from '../../../engine/grammar/work.js';
import { grammarText } from '../../../engine/grammar/gbnf.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';

const ANY = { patterns: [], formats: [], least: 0, most: Infinity } as const;

/** For each, the automaton’s texts must be exactly the expression’s. */
const PATTERNS = [
  ...['^a+$', 'b', '^a|b$', '^(a|b)*c?$', '^$', '', '^[^a]$', '^[a-c]{2,3}$', 'a{2}', '^a??b$', 'a|', '^(?:ab)+$'],
  ...[
    '^\\w+\\s\\d$',
    '^[\\d-]+$',
    '^[\\]b-]$',
    '^\\x61\\u0062$',
    '^[\\u{1f600}a]$',
    '^(?<x>a)b$',
    '^a.c$',
    '(^|b)a($|c)',
  ],
  ...['^(?!a)', '^(?=.*b)(?!.*c)[abc]+$', 'a(?!b)', '^(?:a|(?!ab)b(?=c))c', '^(?!^a)b', '^(?:(?!.*a)(?=b)(b)?c?)$'],
  ...['^{a$', '^a]$', '^a{b$', '\\.', '^[.]$', '^\\/$', '^[\\s\\S]$', '^[\\w.-]+$', '^ab\\b'],
];
const UNKNOWN = [
  '^(a)\\1$',
  '^(?<=a)b$',
  '\\bword',
  '\\p{L}',
  '(?:(?!a)b)*',
  'a{300}',
  '^\\ud83d',
  '(',
  'a{2,1}',
  '\\c',
];
const texts = fc.string({ unit: fc.constantFrom(...Array.from('abc1 .-]{\n\\/😀é')), maxLength: 6 });

/** As JSON Schema reads it: by code points, unless the expression is invalid then. */
function expressionOf(pattern: string): RegExp {
  try {
    return new RegExp(pattern, 'u');
  } catch {
    return new RegExp(pattern);
  }
}

t.test('an automaton allows the texts that the expression matches', (t) => {
  for (const pattern of PATTERNS) {
    const expression = expressionOf(pattern);
    const work = new WorkBudget();
    const form = { ...ANY, patterns: [pattern] };
    if (pattern.includes('\\b')) {
      t.equal(textAutomaton(form, work), undefined, `${pattern} is not known`);
      continue;
    }
    t.ok(textAutomaton(form, work), `${pattern} is known`);
    fc.assert(
      fc.property(texts, (text) => isText(text, form, new WorkBudget()) === expression.test(text)),
      { numRuns: rounds({ short: 20, long: 400 }) },
    );
  }
  t.end();
});

t.test('expressions that are not regular, or not supported, are not enforced', (t) => {
  for (const pattern of UNKNOWN)
    t.equal(textAutomaton({ ...ANY, patterns: [pattern] }, new WorkBudget()), undefined, pattern);
  t.end();
});

t.test('a count of one class is enforced, whatever the class', (t) => {
  const cases: readonly (readonly [pattern: string, valid: string, invalid: string])[] = [
    ['^\\S{1,128}$', 'x'.repeat(128), 'a b'],
    ['^[^\\\\/:*?"<>|]{1,255}$', 'x'.repeat(255), 'a/b'],
    ['^.{0,255}$', 'é'.repeat(255), 'x'.repeat(256)],
    ['^.{1,250}$', 'x', ''],
    ['^(a|b|c|d|e|f|g|-){1,200}$', 'a-b', 'a b'],
  ];
  for (const [pattern, valid, invalid] of cases) {
    const form = { ...ANY, patterns: [pattern] };
    const work = new WorkBudget();
    t.strictSame([isText(valid, form, work), isText(invalid, form, work)], [true, false], pattern);
    const made = schemaGrammar({ type: 'string', pattern });
    const text = made.kind === 'ok' ? grammarText(made.rule, [made]) : made;
    if (text.kind === 'unservable') throw new Error(text.why);
    t.ok(text.gbnf.length < 2000, `${pattern}: ${text.gbnf.length} characters`);
    const grammar = new Gbnf(text.gbnf);
    const read = [valid, invalid].map((value) => grammar.reads(JSON.stringify(value)));
    t.strictSame(read, ['whole', 'no'], pattern);
  }
  t.end();
});

t.test('of several formats all are enforced', (t) => {
  const both = { ...ANY, formats: ['time', 'date-time'] };
  t.notOk(isText('00:39:43.520Z', both, new WorkBudget()));
  t.strictSame(textAutomaton(both, new WorkBudget()), [], 'there is no such text');
  const form = { ...ANY, formats: ['hostname', 'ipv4', 'unknown'] };
  t.ok(isText('10.0.0.1', form, new WorkBudget()));
  t.notOk(isText('a.example', form, new WorkBudget()));
  t.end();
});

t.test('lengths, excluded texts, and patterns that must not match', (t) => {
  const form = { ...ANY, patterns: ['^[ab]+$'], least: 2, most: 3, excludedTexts: ['ab'], excludedPatterns: ['bb'] };
  const allowed = ['a', 'aa', 'ab', 'ba', 'bb', 'aba', 'abb', 'aaaa', 'ac'].filter((text) =>
    isText(text, form, new WorkBudget()),
  );
  t.strictSame(allowed, ['aa', 'ba', 'aba']);
  t.strictSame(textAutomaton({ ...ANY, patterns: ['^a$'], least: 2 }, new WorkBudget()), [], 'none at all');
  t.end();
});

t.test('texts of a format are valid by ajv, and its samples are allowed', (t) => {
  const ajv = new Ajv({ strict: false });
  (addFormats as unknown as (ajv: Ajv) => void)(ajv);
  const samples: Readonly<Record<string, readonly string[]>> = {
    date: ['2024-02-29', '1999-12-31'],
    time: ['23:59:59Z', '00:00:00.5+01:00'],
    'date-time': ['2026-11-24T06:33:00Z', '2000-02-29T23:00:00.123456-05:30'],
    duration: ['P3D', 'PT1H30M', 'P1Y2M3DT4H', 'P2W'],
    uuid: ['01234567-89ab-cdef-0123-456789ABCDEF'],
    ipv4: ['0.0.0.0', '255.10.1.99'],
    ipv6: ['2001:db8:0:0:0:0:0:1', '2001:db8::1', '::1'],
    email: ['ada.lovelace+x@mail.example.org'],
    hostname: ['a.example', 'localhost'],
    uri: ['https://example.org:8080/a?b=c#d', 'mailto:a@b.c', 'urn:isbn:1'],
  };
  for (const [format, allowed] of Object.entries(samples)) {
    const made = schemaGrammar({ type: 'string', format });
    if (made.kind === 'unservable') throw new Error(made.why);
    const text = grammarText(made.rule, [made]);
    const gbnf = new Gbnf(text.kind === 'ok' ? text.gbnf : '');
    for (const sample of allowed) t.equal(gbnf.reads(JSON.stringify(sample)), 'whole', `${format}: ${sample}`);
    const check = ajv.compile({ type: 'string', format });
    const random = seeded(format.length);
    for (let i = 0; i < rounds({ short: 8, long: 1000 }); i++) {
      const written: unknown = JSON.parse(gbnf.write(random));
      if (!check(written)) t.fail(`${format}: ${String(written)}`);
    }
  }
  for (const date of ['2023-02-29', '1900-02-29', '2024-13-01', '2024-04-31']) {
    t.notOk(isText(date, { ...ANY, formats: ['date'] }, new WorkBudget()), date);
  }
  t.equal(formatPattern('password'), undefined);
  t.equal(formatPattern('constructor'), undefined);
  t.end();
});

t.test('every pattern has a bounded number of steps, and no request is refused for one', (t) => {
  const hostile = [
    ...['.*a.{200}', '(a*)*b', '(a|aa|aaa){200}$', '^(.*a.{10})(.*b.{10})(.*c.{10})$', '^([a-z]{1,200}-){200}$'],
    ...['((((a{1,250}){1,250}){1,250}){1,250})', `${'('.repeat(30)}a${')*'.repeat(30)}`, `${'a|'.repeat(500)}b`],
    `${'('.repeat(500)}a${')'.repeat(500)}`,
  ];
  const property = (pattern: string, i: number): [string, object] => [
    `p${i}`,
    { type: 'string', pattern, minLength: i, maxLength: 200 + i },
  ];
  const work = new WorkBudget();
  const all = Array.from({ length: 10 }, () => hostile).flat();
  const made = schemaGrammar({ type: 'object', properties: Object.fromEntries(all.map(property)) }, 'v', work);
  t.equal(made.kind, 'ok');
  t.ok(work.patterns <= MAX_PATTERN_WORK && work.spent <= MAX_WORK);
  t.end();
});
