import * as fc from 'fast-check';
import t from 'tap';
import {
  grammarText,
  grammarAfter,
  literal,
  MAX_BRACKETS,
  MAX_GRAMMAR_CHARACTERS,
  MAX_REPETITIONS,
  type OptionalRule,
} from '../../../engine/grammar/gbnf.js';
import { Gbnf, seeded } from '../../support/gbnf.js';
import { rounds } from '../../support/long-form.js';
import { anyText } from '../../support/texts.js';

t.test('a literal matches its text and no other', (t) => {
  fc.assert(
    fc.property(anyText({ minLength: 1 }), (text) => {
      const grammar = new Gbnf(`root ::= ${literal(text)}`);
      return grammar.reads(text) === 'whole' && grammar.reads(text.slice(0, -1)) !== 'whole';
    }),
  );
  for (const text of ['"', '\\', '\n', '\r\n', '\t', '\0', '[]-^', '\\n', '\\"', '🎉', '\u2028']) {
    t.equal(new Gbnf(`root ::= ${literal(text)}`).reads(text), 'whole', encodeURIComponent(text));
  }
  t.equal(literal('\ud83c'), literal('\ufffd'), 'a lone surrogate, which no text of a model contains');
  t.end();
});

t.test('a grammar is assembled with each rule once and its root first', (t) => {
  const part = { rule: 'a', rules: ['a ::= "x"'] };
  t.same(grammarText('a b', [part, part, { rule: 'b', rules: ['a ::= "x"', 'b ::= "y"'] }]), {
    kind: 'ok',
    gbnf: 'root ::= a b\na ::= "x"\nb ::= "y"',
  });
  t.end();
});

t.test('an optional rule is written where there is room for it beside all others', (t) => {
  const optional = (name: string, line: string): OptionalRule => ({
    name,
    lines: [`${name} ::= ${line}`, 'c ::= "c"'],
    otherwise: [`${name} ::= "o"`],
  });
  const half = `"${'x'.repeat(MAX_GRAMMAR_CHARACTERS / 2)}"`;
  const counted = `c{${MAX_REPETITIONS / 2}}`;
  const rules = [optional('a', half), optional('b', half), optional('d', counted), 'e ::= "e"', optional('f', counted)];
  const made = (beside?: string): string => {
    const text = grammarText('a', [{ rule: 'a', rules }], beside);
    return text.kind === 'ok' ? text.gbnf : text.kind;
  };
  t.equal(made(), `root ::= a\ne ::= "e"\na ::= ${half}\nc ::= "c"\nb ::= "o"\nd ::= ${counted}\nf ::= ${counted}`);
  const without = made(`g ::= ${half} "g"{1}`);
  t.equal(without, `root ::= a\ne ::= "e"\na ::= "o"\nb ::= "o"\nd ::= ${counted}\nc ::= "c"\nf ::= "o"`);
  t.equal(made(`g ::= ${half} ${half}`), 'unservable');
  t.end();
});

t.test('a grammar has a maximum of characters, repetitions and brackets', (t) => {
  const sized = (characters: number): string => grammarText(`"${'x'.repeat(characters - 11)}"`, []).kind;
  t.equal(sized(MAX_GRAMMAR_CHARACTERS), 'ok');
  t.equal(sized(MAX_GRAMMAR_CHARACTERS + 1), 'unservable');
  const half = MAX_REPETITIONS / 2;
  const counted = (...counts: string[]): string =>
    grammarText(counts.map((count) => `"x"{${count}}`).join(' '), []).kind;
  t.equal(counted(`0,${half}`, `${half}`), 'ok');
  t.equal(counted(`0,${half}`, `${half},`, '1'), 'unservable');
  t.equal(counted('5,2'), 'unservable', 'bounds in the wrong order');
  const nested = (depth: number): string => grammarText(`${'('.repeat(depth)}"x"${')'.repeat(depth)}`, []).kind;
  t.same([nested(MAX_BRACKETS), nested(MAX_BRACKETS + 1)], ['ok', 'unservable']);
  t.equal(grammarText(`"{${MAX_REPETITIONS + 1}}" [{${MAX_REPETITIONS + 1}}]`, []).kind, 'ok', 'what is only text');
  t.end();
});

t.test('after a given text the reply is constrained, before it free', (t) => {
  const held = new Gbnf(grammarAfter('</think>', 'root ::= "a" | "b"'));
  for (const [text, verdict] of [
    ['</think>a', 'whole'],
    ['free\n<</think>b', 'whole'],
    ['</thi</think>a', 'whole'],
    ['</think>\n\nb', 'whole'],
    ['</think>', 'begun'],
    ['a', 'begun'],
    ['</think>\n\n\na', 'no'],
    ['</think></think>a', 'no'],
  ] as const) {
    t.equal(held.reads(text), verdict, text);
  }
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 6 }),
      fc.integer(),
      (after, seed) => {
        const grammar = new Gbnf(grammarAfter(after, 'root ::= "!"'));
        const free = new Gbnf('root ::= [ab]{0,12}').write(seeded(seed));
        const first = (free + after).indexOf(after) + after.length;
        const exact = `${(free + after).slice(0, first)}!`;
        return (
          grammar.reads(exact) === 'whole' &&
          (first === free.length + after.length || grammar.reads(`${free}${after}!`) === 'no')
        );
      },
    ),
    { numRuns: rounds({ short: 30, long: 500 }) },
  );
  t.end();
});
