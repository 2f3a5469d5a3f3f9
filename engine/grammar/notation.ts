/**
 * The notations of arguments, as data: what stands around the members of an object, the items of a list, strings, and other values.
 * schema.ts compiles a schema for any of them.
 */
import type { CallSyntax, TaggedArguments } from '../protocol/reply-format.js';
import { literal, textUpTo, grammarText, type GrammarPart } from './gbnf.js';
import type { Item } from './rules.js';
import { isRecord, type Type } from './shape.js';
import { Unservable } from './work.js';

export interface Notation {
  /** Unlike that of any other notation of the same grammar. */
  readonly name: string;
  /** The types that it writes in its own way. */
  readonly own: readonly Type[];
  /** The types that it writes as JSON; of one of `own`, JSON is another way. */
  readonly json: readonly Type[];
  /** The rule of any value. Undefined if the rule of the empty schema is used. */
  readonly any: string | undefined;
  /** Rules that the items here refer to, beside those of JSON. */
  readonly rules: readonly string[];
  readonly object: ObjectMarks;
  readonly list: ListMarks;
  readonly strings: QuotedStrings | MarkedStrings;
  /** GBNF of these values, where they are its own. */
  readonly boolean: string;
  readonly null: string;
  /** What stands before values of these types. A type is in one of the groups. */
  readonly groups: readonly Group[];
  /** What stands after a value that is written as JSON. */
  readonly after: readonly Item[];
  /**
   * The texts for a value, given as JSON, that a schema lists. None: it is not written in this notation's own way, or cannot be written.
   */
  readonly listed: (json: string) => readonly string[];
  /** How the values of members and items are written. Absent: in this notation. */
  readonly inner?: Notation;
}

export interface ObjectMarks {
  readonly open: readonly Item[];
  readonly close: readonly Item[];
  /** Between two members. */
  readonly comma: readonly Item[];
  readonly member: (key: Item, value: Item) => readonly Item[];
  /** The key of a member that a schema declares. Throws Unservable if the notation cannot write it. */
  readonly key: (name: string) => Item;
  /**
   * GBNF of the name of any other member, which is offered only where none is declared; '': it is never offered. Absent: as JSON has them.
   */
  readonly otherName?: string;
  /** The same where a list may stand in the object's place. */
  readonly otherNameBesideList?: string;
}

export interface ListMarks {
  readonly open: readonly Item[];
  readonly close: readonly Item[];
  readonly comma: readonly Item[];
  readonly item: (value: Item) => readonly Item[];
  /** An item has the form of an object's member of this name. Absent: it has a form of its own. */
  readonly itemName?: string;
}

/** Strings in JSON's quotes and escapes. */
export interface QuotedStrings {
  readonly kind: 'quoted';
  /** Other quotes in which a string may stand too, and the rule of one character between them. */
  readonly others: readonly { readonly quote: string; readonly character: string }[];
}

/** Strings that stand as they are, without escapes, up to a mark. */
export interface MarkedStrings {
  readonly kind: 'marked';
  readonly open: readonly Item[];
  /** What ends a string, and is in none. */
  readonly mark: string;
  /** The mark with the line end in front of it that belongs to it. */
  readonly close: readonly Item[];
  /** No mark opens them: only a value's text shows whether it is a string. */
  readonly unquoted: boolean;
  /** White space beside the marks may not belong to the string: one of which characters are counted has no line ends. */
  readonly trimmed: boolean;
}

interface Group {
  readonly types: readonly Type[];
  readonly before: readonly Item[];
}

/** The name of a member that no schema declares. */
const OTHER_NAME = '[A-Za-z0-9_]{1,64}';
/** The same, but for names that begin as `item` does. */
const OTHER_NAME_BUT_ITEM = '[A-Za-hj-z0-9_] [A-Za-z0-9_]{0,63}';

/** The rule of any text up to and with the mark of {@link MarkedStrings}, which a notation with such strings has. */
export const TEXT_TO_MARK = 'marked-0';

const ALL: readonly Type[] = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
const SCALARS: readonly Type[] = ['number', 'integer', 'boolean', 'null'];
const COMMA = ['"," json-ws'];

export const JSON_NOTATION: Notation = {
  name: 'json',
  own: ALL,
  json: [],
  any: 'json-value',
  rules: [],
  object: {
    open: ['"{" json-ws'],
    close: ['"}"'],
    comma: COMMA,
    member: (key, value) => [key, '":" json-ws', value, 'json-ws'],
    key: (name) => literal(JSON.stringify(name)),
  },
  list: { open: ['"[" json-ws'], close: ['"]"'], comma: COMMA, item: (value) => [value, 'json-ws'] },
  strings: { kind: 'quoted', others: [] },
  boolean: '("true" | "false")',
  null: '"null"',
  groups: [],
  after: [],
  listed: (json) => [json],
};

/** The notation of arguments, which are an object. */
export function notationOf(notation: CallSyntax['arguments']): Notation {
  switch (notation?.kind) {
    case undefined:
      return JSON_NOTATION;
    case 'bare':
      return bare(notation.quote);
    case 'keywords':
      return KEYWORDS;
    case 'tagged':
      return tagged(notation);
    case 'nested':
      return nested(notation.prefix);
  }
}

/** The same notation, but that arguments that no schema declares are not offered. */
export function withoutUnnamed(notation: Notation): Notation {
  return { ...notation, object: { ...notation.object, otherName: '' } };
}

/** JSON but for keys without quotes, and strings between two marks. */
function bare(quote: string): Notation {
  const mark = literal(quote);
  const values: Notation = {
    ...JSON_NOTATION,
    name: 'bare',
    own: ['object', 'array', 'string'],
    json: SCALARS,
    any: 'bare-value',
    rules: [
      ...marked(quote),
      `bare-string ::= ${mark} ${TEXT_TO_MARK}`,
      `bare-member ::= ${OTHER_NAME} ":" json-ws bare-value json-ws`,
      'bare-object ::= "{" json-ws (bare-member ("," json-ws bare-member)*)? "}"',
      'bare-array ::= "[" json-ws (bare-value json-ws ("," json-ws bare-value json-ws)*)? "]"',
      'bare-value ::= bare-object | bare-array | bare-string | json-number | "true" | "false" | "null"',
    ],
    object: { ...JSON_NOTATION.object, key: keyLike(/^[\p{L}\p{N}_$.-]+$/u), otherName: OTHER_NAME },
    strings: { kind: 'marked', open: [mark], mark: quote, close: [mark], unquoted: false, trimmed: false },
    groups: [{ types: ALL, before: [] }],
    listed: (json) => bareTexts(JSON.parse(json), quote),
  };
  return { ...ARGUMENTS, rules: values.rules, object: values.object, inner: values };
}

/** Its text; none: a string in it has the mark that ends strings. */
function bareTexts(value: unknown, quote: string): string[] {
  if (typeof value === 'string') return value.includes(quote) ? [] : [quote + value + quote];
  if (!Array.isArray(value) && !isRecord(value)) return [JSON.stringify(value)];
  const members = Object.entries(value as object);
  const texts = members.flatMap(([name, member]) =>
    bareTexts(member, quote).map((text) => (Array.isArray(value) ? text : `${name}:${text}`)),
  );
  if (texts.length < members.length) return [];
  return [Array.isArray(value) ? `[${texts.join(',')}]` : `{${texts.join(',')}}`];
}

/** The values of keyword arguments. LFM2.5's template writes line ends and tabs in texts as they are. */
const PYTHON: Notation = {
  ...JSON_NOTATION,
  name: 'python',
  own: ['string', 'boolean', 'null'],
  json: ['object', 'array', ...SCALARS],
  any: 'python-value',
  rules: [
    String.raw`python-char ::= [^'\\\x00-\x08\x0B-\x1F\x7F] | "\\" ['"\\nt]`,
    'python-boolean ::= "True" | "False" | "true" | "false"',
    'python-null ::= "None" | "null"',
    `python-value ::= json-string | "'" python-char* "'" | json-object | json-array | json-number | python-boolean | python-null`,
  ],
  strings: { kind: 'quoted', others: [{ quote: `"'"`, character: 'python-char' }] },
  boolean: 'python-boolean',
  null: 'python-null',
  groups: [{ types: ALL, before: [] }],
  // As JSON, and between single quotes where that needs no escape.
  listed: (json) => {
    const value = JSON.parse(json) as unknown;
    if (typeof value !== 'string') return [];
    return [json, ...(/['\\\p{Cc}]/u.test(value) ? [] : [`'${value}'`])];
  },
};

/** A notation whose only value of its own is the object of all arguments. */
const ARGUMENTS: Notation = { ...JSON_NOTATION, name: 'arguments', own: ['object'], listed: () => [] };

const KEYWORDS: Notation = {
  ...ARGUMENTS,
  rules: PYTHON.rules,
  object: {
    open: [],
    close: [],
    comma: COMMA,
    member: (key, value) => [key, '"="', value, 'json-ws'],
    key: keyLike(/^[\p{L}\p{N}_$.-]+$/u),
    otherName: OTHER_NAME,
  },
  inner: PYTHON,
};

/** Each argument between marks, which may depend on its type. Objects and arrays are JSON. */
function tagged({ open, between, close }: TaggedArguments): Notation {
  const mark = close.trim();
  const lead = between.string.trimEnd();
  const types = (text: string): Type[] => ALL.filter((type) => between[type === 'integer' ? 'number' : type] === text);
  const values: Notation = {
    ...JSON_NOTATION,
    name: 'tagged',
    any: undefined,
    own: ['string'],
    json: ['object', 'array', ...SCALARS],
    rules: marked(mark),
    strings: {
      kind: 'marked',
      open: [...spacedItem(lead), ...exactly(between.string.slice(lead.length))],
      mark,
      close: [...exactly(close.slice(0, close.length - close.trimStart().length)), literal(mark)],
      unquoted: true,
      trimmed: true,
    },
    groups: [...new Set(Object.values(between))].map((text) => ({ types: types(text), before: spacedItem(text) })),
    after: ['call-gap', ...spacedItem(close)],
    listed: textsWithout(mark),
  };
  return {
    ...ARGUMENTS,
    rules: values.rules,
    object: {
      open: [],
      close: ['call-gap'],
      comma: [],
      member: (key, value) => ['call-gap', ...spacedItem(open), key, value],
      key: keyLike(/^[^<>"=\s]+$/),
      otherName: OTHER_NAME,
    },
    inner: values,
  };
}

/** An element for each member and each item. What is in an element ends with the prefix of the tag that closes it. */
function nested(prefix: string): Notation {
  const element = (name: Item, value: Item): readonly Item[] => [
    'call-gap',
    literal(`${prefix}<`),
    name,
    '">"',
    value,
    '"</"',
    name,
    '">"',
  ];
  const end = ['call-gap', literal(prefix)];
  const object: ObjectMarks = {
    open: [],
    close: end,
    comma: [],
    member: element,
    key: keyLike(/^(?!\/)[^<>"=\s]+$/),
    otherName: OTHER_NAME,
    otherNameBesideList: OTHER_NAME_BUT_ITEM,
  };
  const values: Notation = {
    ...JSON_NOTATION,
    name: 'nested',
    any: undefined,
    own: ['object', 'array', 'string'],
    json: SCALARS,
    rules: marked(prefix),
    object,
    list: { open: [], close: end, comma: [], item: (value) => element('"item"', value), itemName: 'item' },
    strings: { kind: 'marked', open: [], mark: prefix, close: [literal(prefix)], unquoted: true, trimmed: false },
    groups: [{ types: ALL, before: [] }],
    after: end,
    listed: textsWithout(prefix),
  };
  return { ...ARGUMENTS, rules: values.rules, object: { ...object, close: ['call-gap'] }, inner: values };
}

function keyLike(writable: RegExp): ObjectMarks['key'] {
  return (name) => {
    if (!writable.test(name)) throw unwritableName();
    return literal(name);
  };
}

export function unwritableName(): Unservable {
  return new Unservable('has a parameter whose name cannot be written to this model.');
}

/** Strings alone, as they are. */
function textsWithout(mark: string): Notation['listed'] {
  return (json) => {
    const value = JSON.parse(json) as unknown;
    return typeof value === 'string' && !value.includes(mark) ? [value] : [];
  };
}

function marked(mark: string): string[] {
  return [...textUpTo(mark, 'marked', 'marked-end'), 'marked-end ::= ""'];
}

function exactly(text: string): Item[] {
  return text === '' ? [] : [literal(text)];
}

function spacedItem(text: string): Item[] {
  return text === '' ? [] : [spaced(text)];
}

/** Rules that {@link spaced} refers to. */
export const SPACED_RULES: readonly string[] = [
  'call-gap ::= | " " | "\\n"{1,2} [ \\t]{0,20}',
  'call-id ::= [A-Za-z0-9]{1,9}',
];

/**
 * A text of a syntax: white space may be there or not, but for what parts two words, also after what opens JSON; U+0000 is an id, U+0001 a
 * function's name.
 */
export function spaced(text: string): string {
  const parts = text.replace(/([{,]|":)(?=["{[])/g, '$1 ').split(/((?<!\w)\s+|\s+(?!\w)|[\0\x01])/);
  return parts
    .filter((part) => part !== '')
    .map((part) =>
      part === '\0' ? 'call-id' : part === '\x01' ? 'call-name' : part.trim() === '' ? 'call-gap' : literal(part),
    )
    .join(' ');
}

/**
 * Any JSON (RFC 8259) with three bounds, so that a model cannot continue forever without content: white space, of which there is none
 * around the whole; digits, so that every number is a finite one; and `\u` escapes, which make no lone surrogates.
 */
const RULES: Readonly<Record<string, string>> = {
  'json-ws': String.raw`| " " | "\n" [ \t]{0,20}`,
  'json-hex': '[0-9a-fA-F]',
  'json-unit':
    '[0-9abcefABCEF] json-hex json-hex json-hex | [dD] [0-7] json-hex json-hex | ' +
    String.raw`[dD] [89abAB] json-hex json-hex "\\u" [dD] [c-fC-F] json-hex json-hex`,
  'json-plain': String.raw`[^"\\\x00-\x1F\x7F]`,
  'json-char': String.raw`json-plain | "\\" ["\\/bfnrt] | "\\u" json-unit`,
  'json-string': String.raw`"\"" json-char* "\""`,
  'json-integer': '"-"? ("0" | [1-9] [0-9]{0,15})',
  'json-number': 'json-integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?',
  'json-member': 'json-string ":" json-ws json-value json-ws',
  'json-object': '"{" json-ws (json-member ("," json-ws json-member)*)? "}"',
  'json-item': 'json-value json-ws',
  'json-array': '"[" json-ws (json-item ("," json-ws json-item)*)? "]"',
  'json-value': 'json-object | json-array | json-string | json-number | "true" | "false" | "null"',
};

/** `name ::= …` of every rule above, to be put beside rules that refer to them. */
export const JSON_RULES: readonly string[] = Object.entries(RULES).map(([name, rule]) => `${name} ::= ${rule}`);

/** One JSON object, with nothing before or after it. */
export const anyObject: GrammarPart<string> = { rule: 'json-object', rules: JSON_RULES };

const data = grammarText(anyObject.rule, [anyObject]);

/** The grammar of JSON mode: one valid JSON object, then the end. */
export const dataGrammar: string = data.kind === 'ok' ? data.gbnf : '';
