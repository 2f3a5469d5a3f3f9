/** Rules of the strings whose texts an automaton allows: as JSON has them, or as they are. */
import { inClass, literal } from './gbnf.js';
import type { RuleMaker } from './rule-maker.js';
import type { Alternative } from './rules.js';
import type { Automaton, State } from './text-automaton.js';
import { merged, type Span } from './text-language.js';
import { complement, LAST_CODE_POINT } from './text-pattern.js';

/** Characters that JSON writes as an escape, by how they are written here; of a few more there are none in such texts. */
const ESCAPED: Readonly<Record<string, string>> = {
  '"': '\\"',
  '\\': '\\\\',
  '\b': '\\b',
  '\f': '\\f',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
};
/** What is not written as it is. */
const UNPLAIN: readonly Span[] = [
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
  [0x7f, 0x7f],
];
/** What no string that stands as it is has: control characters but tabs and line ends. */
const UNWRITTEN: readonly Span[] = [
  [0, 0x08],
  [0x0b, 0x1f],
  [0x7f, 0x7f],
];
const ANYTHING: Span = [0, LAST_CODE_POINT];

/** The alternatives of a string, quotes included; none: there is none. Each state is a rule. */
export function textRules(automaton: Automaton, maker: RuleMaker): readonly Alternative[] {
  if (automaton.length === 0) return [];
  const names = automaton.map(() => maker.newName());
  automaton.forEach((state, i) => maker.set(names[i] ?? '', rulesOf(state, i, names)));
  return [['"\\""', { rule: names[0] ?? '' }]];
}

/** The same of a string that stands without quotes and escapes. */
export function unquotedTextRules(automaton: Automaton, maker: RuleMaker): readonly Alternative[] {
  if (automaton.length === 0) return [];
  const names = automaton.map(() => maker.newName());
  for (const [i, { ends, next }] of automaton.entries()) {
    const onward = next.flatMap(({ spans, to }): Alternative[] => {
      const plain = complement([...complement(spans), ...UNWRITTEN]);
      return plain.length > 0 ? [[classOf(plain), { rule: names[to] ?? '' }]] : [];
    });
    maker.set(names[i] ?? '', ends ? [...onward, []] : onward);
  }
  return [[{ rule: names[0] ?? '' }]];
}

function rulesOf({ ends, next }: State, own: number, names: readonly string[]): Alternative[] {
  const [only] = next;
  const free = next.length === 1 && ends && only?.to === own && isAnything(only.spans);
  if (free) return [['json-char* "\\""']];
  return [
    ...next.flatMap(({ spans, to }) => written(spans).map((text): Alternative => [text, { rule: names[to] ?? '' }])),
    ...(ends ? [['"\\""']] : []),
  ];
}

function isAnything(spans: readonly Span[]): boolean {
  const [first, ...others] = merged(spans);
  return others.length === 0 && first?.[0] === ANYTHING[0] && first[1] === ANYTHING[1];
}

/** One character of these as JSON writes it: as it is, or as an escape. */
function written(spans: readonly Span[]): string[] {
  const plain = complement([...complement(spans), ...UNPLAIN]);
  const has = (point: number): boolean => spans.some(([low, high]) => low <= point && point <= high);
  const escapes = Object.entries(ESCAPED).filter(([character]) => has(character.charCodeAt(0)));
  return [...(plain.length > 0 ? [classOf(plain)] : []), ...escapes.map(([, escape]) => literal(escape))];
}

/** The shorter of the class and of its complement. */
function classOf(spans: readonly Span[]): string {
  const others = complement(spans);
  const [first] = spans;
  if (spans.length === 1 && first && first[0] === first[1]) return `[${member(first[0])}]`;
  return others.length < spans.length ? `[^${others.map(members).join('')}]` : `[${spans.map(members).join('')}]`;
}

function members([low, high]: Span): string {
  return low === high ? member(low) : `${member(low)}-${member(high)}`;
}

function member(point: number): string {
  const character = String.fromCodePoint(point);
  return /[A-Za-z0-9]/.test(character) ? character : inClass(character);
}
