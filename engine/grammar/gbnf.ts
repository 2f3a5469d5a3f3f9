/** The text of a grammar: GBNF, llama.cpp's notation. */

/** The largest grammar that is generated: compiling is linear in it. */
export const MAX_GRAMMAR_CHARACTERS = 131_072;
/** Counted repetitions (`{2,5}` counts 5) of all rules together: llama.cpp creates a rule for each. */
export const MAX_REPETITIONS = 16_384;
/** Nesting depth of brackets. */
export const MAX_BRACKETS = 32;

/** Rules for a part of a grammar, to be combined with others. */
export interface GrammarPart<R extends Rule = Rule> {
  /** The rule that matches it. */
  readonly rule: string;
  /** `rule` and all that it refers to; equal ones may be in several parts. */
  readonly rules: readonly R[];
}

/** `name ::= …`, or several lines of these. */
export type Rule = string | OptionalRule;

/** A rule that is written as it should be only where the grammar has room for it. */
export interface OptionalRule {
  readonly name: string;
  /** The rule, and those that it needs, which others may have too. */
  readonly lines: readonly string[];
  /** The same where there is no room: a rule of the same name that allows more. */
  readonly otherwise: readonly string[];
}

export type GrammarText =
  | { readonly kind: 'ok'; readonly gbnf: string }
  /** `why`: the predicate of a sentence about the problem, without any of the caller's text. */
  | { readonly kind: 'unservable'; readonly why: string };

/**
 * A grammar of `root` (GBNF, in terms of the parts' rules), with the root rule on its first line. Of the optional rules each
 * is written for which there is still room after those before it. `beside`: GBNF that will stand in one grammar with it.
 */
export function grammarText(root: string, parts: readonly GrammarPart[], beside = ''): GrammarText {
  const lines = new Set([`root ::= ${root}`]);
  const optional = new Set<OptionalRule>();
  for (const { rules } of parts)
    for (const rule of rules) {
      if (typeof rule === 'string') lines.add(rule);
      else optional.add(rule);
    }
  const others = [...optional].flatMap(({ otherwise }) => otherwise);
  const least = [...new Set([...lines, ...others]), ...(beside === '' ? [] : [beside])].join('\n');
  let characters = MAX_GRAMMAR_CHARACTERS - least.length;
  if (characters < 0 || !isBounded(least))
    return { kind: 'unservable', why: 'is too large to be compiled to a grammar.' };
  let repetitions = MAX_REPETITIONS - repetitionsOf(least);
  for (const rule of optional) {
    const text = rule.lines.filter((line) => !lines.has(line)).join('\n');
    const more = { characters: text.length + '\n'.length, repetitions: repetitionsOf(text) };
    const fits = more.characters <= characters && more.repetitions <= repetitions;
    for (const line of fits ? rule.lines : rule.otherwise) lines.add(line);
    if (!fits) continue;
    characters -= more.characters;
    repetitions -= more.repetitions;
  }
  return { kind: 'ok', gbnf: [...lines].join('\n') };
}

/** White space beside a mark. */
const GAP = '[ \\n]{0,2}';

/**
 * The grammar of any text up to and including `after`, at its first place, and from there on of what `gbnf` allows. `gbnf`
 * as {@link grammarText} makes it, `after` not empty. Between the two a blank or two lines may end, since models know their
 * markers together with those as one token.
 */
export function grammarAfter(after: string, gbnf: string): string {
  const rules = textUpTo(after, 'free', 'constrained');
  return [`root ::= free-0`, ...rules, gbnf.replace(/^root ::= (.*)/, `constrained ::= ${GAP} ($1)`)].join('\n');
}

/** What a model puts before the constrained part of its reply. */
export interface TurnHead {
  /** May come first: its opening mark, the end mark, and what begins the next part, or '' where nothing does. */
  readonly thought?: { readonly start: string; readonly end: string; readonly turn: string };
  /** Stands before the constrained part. */
  readonly header?: string;
}

/** The grammar of what `gbnf` allows after such a head. `gbnf` as {@link grammarText} makes it. */
export function grammarAfterHead(gbnf: string, { thought, header = '' }: TurnHead): string {
  if (thought === undefined && header === '') return gbnf;
  const head = header === '' ? 'constrained' : `${literal(header)} constrained`;
  // Without a thought and a header the constrained part is all of the reply, with nothing in front of it.
  const alone = thought?.turn === '';
  const constrained = gbnf.replace(/^root ::= (.*)/, `constrained ::= ${alone ? '' : `${GAP} `}($1)`);
  if (thought === undefined) return `root ::= ${head}\n${constrained}`;
  const root = `root ::= ${alone ? `${GAP} ` : ''}${literal(thought.start)} thought-0 | ${head}`;
  const turn = `thought-end ::= ${alone ? GAP : literal(thought.turn)} ${head}`;
  return [root, ...textUpTo(thought.end, 'thought', 'thought-end'), turn, constrained].join('\n');
}

/**
 * Rules of any text up to and including `end`, at its first place, and of the rule `then` after it; the one to start with
 * is `PREFIX-0`. An automaton (Knuth-Morris-Pratt) whose states are rules. `end`: not empty.
 */
export function textUpTo(end: string, prefix: string, then: string): string[] {
  const characters = Array.from(end);
  const state = (matched: number): string => (matched === characters.length ? then : `${prefix}-${matched}`);
  return characters.map((_, matched) => {
    const onward = [...new Set(characters)]
      .map((next) => ({ next, reached: overlap([...characters.slice(0, matched), next], characters) }))
      .filter(({ reached }) => reached > 0);
    const other = `[^${onward.map(({ next }) => inClass(next)).join('')}] ${state(0)}`;
    const alternatives = [...onward.map(({ next, reached }) => `${literal(next)} ${state(reached)}`), other];
    return `${state(matched)} ::= ${alternatives.join(' | ')}`;
  });
}

/** Length of the longest beginning of `wanted` that `read` ends with. */
function overlap(read: readonly string[], wanted: readonly string[]): number {
  let length = read.length;
  while (!read.slice(read.length - length).every((character, i) => character === wanted[i])) length -= 1;
  return length;
}

const ESCAPES: Readonly<Record<string, string>> = { '"': '\\"', '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** Exactly this text. A lone surrogate, which UTF-8 does not have, stands for U+FFFD. */
export function literal(text: string): string {
  return `"${text.toWellFormed().replace(/["\\\n\r\t\0]/g, (unit) => ESCAPES[unit] ?? '\\x00')}"`;
}

/** One character as it is written in a class, whatever it means there otherwise. */
export function inClass(character: string): string {
  return `\\U${(character.codePointAt(0) ?? 0).toString(16).padStart(8, '0')}`;
}

const LITERALS_AND_CLASSES = /"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]/g;

/**
 * Whether llama.cpp can safely parse this text, valid or not: it creates a rule for each counted repetition, endlessly
 * if the bounds are reversed, and parses brackets by recursion.
 */
export function isBounded(gbnf: string): boolean {
  let open = 0;
  let depth = 0;
  for (const bracket of structureOf(gbnf).match(/[()]/g) ?? []) {
    open += bracket === '(' ? 1 : -1;
    depth = Math.max(depth, open);
  }
  return repetitionsOf(gbnf) <= MAX_REPETITIONS && depth <= MAX_BRACKETS;
}

function repetitionsOf(gbnf: string): number {
  let repetitions = 0;
  for (const [, least, most] of structureOf(gbnf).matchAll(/\{(\d+)(?:,(\d*))?\}/g)) {
    const counted = Number(most === undefined || most === '' ? least : most);
    repetitions += counted < Number(least) ? Infinity : counted;
  }
  return repetitions;
}

function structureOf(gbnf: string): string {
  return gbnf.replace(LITERALS_AND_CLASSES, '');
}
