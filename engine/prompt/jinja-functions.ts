/** Jinja's filters, tests and methods. The library sorts mappings. */
import {
  type Arguments,
  compared,
  Float,
  identityOf,
  isList,
  isSet,
  itemsOf,
  List,
  plainText,
  takes,
  toValue,
  wholeOf,
  contains,
  equal,
  isNested,
} from './jinja-values.js';
import {
  capitalized,
  fixed,
  lengthOf,
  percentFormat,
  pythonJson,
  stripped,
  withReplaced,
  braceFormat,
  charactersBefore,
  linesOf,
  splitText,
} from './jinja-texts.js';
import type { Value, Token } from './jinja-library.js';

/** Applies another filter, which one that is applied to each item needs. */
type Apply = (operand: Value, name: string, args: Arguments) => Value;
type Filter = (operand: Value, args: Arguments, apply: Apply) => Value;

/** A filter's value; undefined if it is as the library has it, or there is none with the name. */
export function filtered(operand: Value, name: string, args: Arguments, apply: Apply): Value | undefined {
  return Object.hasOwn(FILTERS, name) ? FILTERS[name]?.(operand, args, apply) : undefined;
}

/** A member of an item, or one of a member's: `function.name`. */
function attributeOf(item: Value, path: Value | undefined): Value {
  if (path === undefined) return item;
  return plainText(path)
    .split('.')
    .reduce<Value>((whole, name) => {
      if (isList(whole)) return whole.value[Number(name)] ?? UNDEFINED;
      return whole.value instanceof Map
        ? ((whole.value as ReadonlyMap<string, Value>).get(name) ?? UNDEFINED)
        : UNDEFINED;
    }, item);
}

const UNDEFINED = toValue(undefined);

/** A text that the change leaves as it is stays the same value, and the template's own if it was (own-text.ts). */
const text = (change: (text: string) => string): Filter =>
  takes([], (operand: Value) => {
    const changed = change(plainText(operand));
    return changed === operand.value ? operand : toValue(changed);
  });

/** What texts are compared by, unless case matters. */
function folded(value: Value, caseSensitive: Value | undefined): Value {
  return value.type === 'StringValue' && !isSet(caseSensitive) ? toValue(plainText(value).toLowerCase()) : value;
}

const extreme = (sign: number): Filter =>
  takes(['case_sensitive', 'attribute'], (operand: Value, caseSensitive, attribute) => {
    const key = (item: Value): Value => folded(attributeOf(item, attribute), caseSensitive);
    const [first, ...rest] = itemsOf(operand);
    return rest.reduce((best, item) => (sign * compared(key(item), key(best)) > 0 ? item : best), first ?? UNDEFINED);
  });

/** Items of which a test holds, or that are true without one; `expected` false: the others. `byAttribute`: of a member of each. */
const choosing =
  (expected: boolean, byAttribute: boolean): Filter =>
  (operand, { positional }) => {
    const [path, given] = byAttribute ? [positional[0], positional.slice(1)] : [undefined, positional];
    const [test, argument] = given;
    const passes = (value: Value): boolean =>
      test === undefined ? isSet(value) : holds(plainText(test), value, argument);
    return new List(itemsOf(operand).filter((item) => passes(attributeOf(item, path)) === expected));
  };

const mapped: Filter = (operand, { positional: [name, ...positional], named }, apply) => {
  if (name !== undefined) {
    return new List(itemsOf(operand).map((item) => apply(item, plainText(name), { positional, named })));
  }
  const otherwise = named.get('default') ?? UNDEFINED;
  const member = (item: Value): Value => {
    const value = attributeOf(item, named.get('attribute'));
    return value.type === 'UndefinedValue' ? otherwise : value;
  };
  return new List(itemsOf(operand).map(member));
};

const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;

/** The number that a value is or that a text writes. */
function numberIn(value: Value): number | undefined {
  if (typeof value.value === 'number' || value.type === 'BooleanValue') return Number(value.value);
  const written = value.type === 'StringValue' ? stripped(plainText(value), 'both') : '';
  return NUMBER.test(written) ? Number(written) : undefined;
}

function indented(lines: readonly string[], width: Value | undefined, first: boolean, blank: boolean): string {
  const indent = width?.type === 'StringValue' ? plainText(width) : ' '.repeat(wholeOf(width, 4));
  return lines.map((line, at) => ((at === 0 ? first : blank || line !== '') ? indent + line : line)).join('\n');
}

function sorted(items: readonly Value[], key: (item: Value) => Value, sign: number): Value {
  return new List([...items].sort((a, b) => sign * compared(key(a), key(b))));
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&#34;',
  "'": '&#39;',
};

const escape = text((whole) => whole.replace(/[&<>"']/g, (character) => ESCAPES[character] ?? character));

const length = takes([], (operand: Value) =>
  toValue(operand.type === 'StringValue' ? lengthOf(plainText(operand)) : itemsOf(operand).length),
);

const otherwise = takes(['default_value', 'boolean'], (operand: Value, value, boolean) =>
  operand.type === 'UndefinedValue' || (isSet(boolean) && !isSet(operand)) ? (value ?? toValue('')) : operand,
);

const FILTERS: Readonly<Record<string, Filter>> = {
  abs: takes([], (operand: Value) => {
    const value = Math.abs(numberIn(operand) ?? NaN);
    return operand.type === 'FloatValue' ? new Float(value) : toValue(value);
  }),
  capitalize: text(capitalized),
  count: length,
  d: otherwise,
  default: otherwise,
  e: escape,
  escape,
  first: takes([], (operand: Value) => itemsOf(operand)[0] ?? UNDEFINED),
  float: takes(['default'], (operand: Value, value) => {
    const number = numberIn(operand);
    return number === undefined ? (value ?? new Float(0)) : new Float(number);
  }),
  format: (operand, args) => toValue(percentFormat(plainText(operand), args)),
  indent: takes(['width', 'first', 'blank'], (operand: Value, width, first, blank) =>
    toValue(indented(plainText(operand).split('\n'), width, isSet(first), isSet(blank))),
  ),
  int: takes(['default'], (operand: Value, value) => {
    if (operand.type === 'IntegerValue') return operand;
    const number = numberIn(operand);
    return number === undefined ? (value ?? toValue(0)) : toValue(Math.trunc(number));
  }),
  items: takes([], (operand: Value) => {
    if (operand.type === 'UndefinedValue') return toValue([]);
    if (operand.type !== 'ObjectValue') throw new Error(`${operand.type} has no items`);
    const members = operand.value as ReadonlyMap<string, Value>;
    return new List(Array.from(members, ([name, member]) => new List([toValue(name), member])));
  }),
  join: takes(['d', 'attribute'], (operand: Value, between, attribute) => {
    const parts = itemsOf(operand).map((item) => plainText(attributeOf(item, attribute)));
    return toValue(parts.join(between === undefined ? '' : plainText(between)));
  }),
  last: takes([], (operand: Value) => itemsOf(operand).at(-1) ?? UNDEFINED),
  length,
  list: takes([], (operand: Value) => new List([...itemsOf(operand)])),
  lower: text((whole) => whole.toLowerCase()),
  map: mapped,
  max: extreme(1),
  min: extreme(-1),
  reject: choosing(false, false),
  rejectattr: choosing(false, true),
  replace: takes(['old', 'new', 'count'], (operand: Value, old, by, count) => {
    if (old === undefined || by === undefined) throw new Error('replace has two arguments');
    const times = count === undefined || count.type === 'NullValue' ? -1 : wholeOf(count, -1);
    return toValue(withReplaced(plainText(operand), plainText(old), plainText(by), times));
  }),
  reverse: takes([], (operand: Value) => {
    const items = [...itemsOf(operand)].reverse();
    return operand.type === 'StringValue' ? toValue(items.map(plainText).join('')) : new List(items);
  }),
  round: takes(['precision', 'method'], (operand: Value, precision, method) => {
    const [value, digits] = [numberIn(operand) ?? NaN, wholeOf(precision, 0)];
    const by = method === undefined ? 'common' : plainText(method);
    if (by === 'common') return operand.type === 'IntegerValue' ? operand : new Float(Number(fixed(value, digits)));
    if (by !== 'ceil' && by !== 'floor') throw new Error('rounding is common, ceil or floor');
    return new Float(Math[by](value * 10 ** digits) / 10 ** digits);
  }),
  safe: takes([], (operand: Value) => operand),
  select: choosing(true, false),
  selectattr: choosing(true, true),
  sort: takes(['reverse', 'case_sensitive', 'attribute'], (operand: Value, reverse, caseSensitive, attribute) =>
    sorted(itemsOf(operand), (item) => folded(attributeOf(item, attribute), caseSensitive), isSet(reverse) ? -1 : 1),
  ),
  string: text((whole) => whole),
  sum: takes(['attribute', 'start'], (operand: Value, attribute, start) => {
    const parts = [
      ...(start === undefined ? [] : [start]),
      ...itemsOf(operand).map((item) => attributeOf(item, attribute)),
    ];
    const value = parts.reduce((sum, part) => sum + (typeof part.value === 'number' ? part.value : NaN), 0);
    if (Number.isNaN(value)) throw new Error('sum takes numbers');
    return parts.some(({ type }) => type === 'FloatValue') ? new Float(value) : toValue(value);
  }),
  tojson: takes(
    ['ensure_ascii', 'indent', 'separators', 'sort_keys'],
    (operand: Value, ascii, indent, separators, sorted) =>
      toValue(pythonJson(operand, { ascii, indent, separators, sorted })),
  ),
  // A word begins after white space, a hyphen or an opening bracket, and nowhere else.
  title: text((whole) => whole.replace(/[^-\s({[<]+/g, capitalized)),
  trim: takes(['chars'], (operand: Value, characters) =>
    toValue(stripped(plainText(operand), 'both', characters === undefined ? undefined : plainText(characters))),
  ),
  unique: takes(['case_sensitive', 'attribute'], (operand: Value, caseSensitive, attribute) => {
    const seen = new Set<string | number>();
    const isNew = (item: Value): boolean =>
      seen.size < seen.add(identityOf(folded(attributeOf(item, attribute), caseSensitive))).size;
    return new List(itemsOf(operand).filter(isNew));
  }),
  upper: text((whole) => whole.toUpperCase()),
};

/** Jinja's tests: `x is defined`, `x is eq y`, `select('in', y)`. */

type Test = (value: Value, argument: Value) => boolean;

/** Tests with an argument, by all their names. */
const COMPARING: Readonly<Record<string, Test>> = {
  divisibleby: (value, argument) => numberOf(value) % numberOf(argument) === 0,
  in: (value, argument) => contains(argument, value),
  sameas: (value, argument) => value.type === argument.type && value.value === argument.value,
  ...named(equal, 'eq', 'equalto', '=='),
  ...named((value, argument) => !equal(value, argument), 'ne', '!='),
  ...named((value, argument) => compared(value, argument) < 0, 'lt', 'lessthan', '<'),
  ...named((value, argument) => compared(value, argument) <= 0, 'le', '<='),
  ...named((value, argument) => compared(value, argument) > 0, 'gt', 'greaterthan', '>'),
  ...named((value, argument) => compared(value, argument) >= 0, 'ge', '>='),
};

const PLAIN: Readonly<Record<string, (value: Value) => boolean>> = {
  boolean: ({ type }) => type === 'BooleanValue',
  callable: ({ type }) => type === 'FunctionValue',
  defined: ({ type }) => type !== 'UndefinedValue',
  even: (value) => numberOf(value) % 2 === 0,
  false: ({ type, value }) => type === 'BooleanValue' && value === false,
  float: ({ type }) => type === 'FloatValue',
  integer: ({ type }) => type === 'IntegerValue',
  // Mappings can be iterated, and undefined values too.
  iterable: (value) => isNested(value) || value.type === 'StringValue' || value.type === 'UndefinedValue',
  lower: ({ value }) => typeof value === 'string' && value === value.toLowerCase() && value !== value.toUpperCase(),
  mapping: ({ type }) => type === 'ObjectValue',
  none: ({ type }) => type === 'NullValue',
  number: ({ type }) => type === 'IntegerValue' || type === 'FloatValue' || type === 'BooleanValue',
  odd: (value) => numberOf(value) % 2 !== 0,
  sequence: (value) => isNested(value) || value.type === 'StringValue' || value.type === 'UndefinedValue',
  string: ({ type }) => type === 'StringValue',
  true: ({ type, value }) => type === 'BooleanValue' && value === true,
  undefined: ({ type }) => type === 'UndefinedValue',
  upper: ({ value }) => typeof value === 'string' && value === value.toUpperCase() && value !== value.toLowerCase(),
};

function named(test: Test, ...names: readonly string[]): Record<string, Test> {
  return Object.fromEntries(names.map((name) => [name, test]));
}

function numberOf({ type, value }: Value): number {
  if (type !== 'IntegerValue' && type !== 'FloatValue') throw new Error(`${type} is no number`);
  return Number(value);
}

/** Whether a test holds. Throws for one that there is not, and without the argument that it needs. */
export function holds(name: string, value: Value, argument: Value | undefined): boolean {
  if (Object.hasOwn(PLAIN, name)) return PLAIN[name]?.(value) ?? false;
  const test = Object.hasOwn(COMPARING, name) ? COMPARING[name] : undefined;
  if (test === undefined || argument === undefined) throw new Error(`the test ${name} is not known or has no argument`);
  return test(value, argument);
}

/** What the operator of a test with an argument is called, in {@link withTestOperators}. */
const OPERATOR = /^is (not )?(.+)$/;

/** What such an operator makes of two values; undefined if it is another operator. */
export function testOperation(operator: string, left: Value, right: Value): boolean | undefined {
  const [, not, name] = OPERATOR.exec(operator) ?? [];
  return name === undefined ? undefined : holds(name, left, right) === (not === undefined);
}

/**
 * The tokens with one operator in place of each `is` and test with an argument: the library's parser knows tests without one. In
 * Jinja a test binds more tightly than `+` and `~`, which matters to no known template.
 */
export function withTestOperators(tokens: readonly Token[]): readonly Token[] {
  const out: Token[] = [];
  for (let at = 0; at < tokens.length;) {
    const not = isWord(tokens[at + 1], 'not');
    const test = tokens[at + (not ? 2 : 1)];
    if (isWord(tokens[at], 'is') && test?.type === 'Identifier' && Object.hasOwn(COMPARING, test.value)) {
      out.push({ type: 'ComparisonBinaryOperator', value: `is ${not ? 'not ' : ''}${test.value}` });
      at += not ? 3 : 2;
    } else {
      out.push(...tokens.slice(at, at + 1));
      at += 1;
    }
  }
  return out;
}

function isWord(token: Token | undefined, word: string): boolean {
  return token?.type === 'Identifier' && token.value === word;
}

/** Python's methods of texts, lists and mappings, where the library has none or another. */

type Method<Of> = (object: Of, args: Arguments) => Value;
type ListValue = Value & { value: Value[] };

/** An object's method; undefined if it is the library's, or there is none with the name. */
export function methodOf(object: Value, name: string): ((args: Arguments) => Value) | undefined {
  if (object.type === 'StringValue') return of(TEXT, name, plainText(object));
  if (isList(object)) return of(LIST, name, object);
  if (object.type === 'ObjectValue') return of(MAPPING, name, object.value as Map<string, Value>);
  // As in llama.cpp's interpreter; Jinja throws.
  return object.type === 'UndefinedValue' && LISTING.has(name) ? () => toValue([]) : undefined;
}

function of<Of>(methods: Readonly<Record<string, Method<Of>>>, name: string, object: Of): ReturnType<typeof methodOf> {
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  return method && ((args) => method(object, args));
}

/** Methods that list an object's members. */
const LISTING: ReadonlySet<string> = new Set(['items', 'keys', 'values']);

function textOf(value: Value | undefined): string {
  if (value?.type !== 'StringValue') throw new Error('an argument is not a text');
  return plainText(value);
}

const strip = (ends: 'both' | 'start' | 'end'): Method<string> =>
  takes(['chars'], (text: string, characters) =>
    toValue(
      stripped(
        text,
        ends,
        characters === undefined || characters.type === 'NullValue' ? undefined : textOf(characters),
      ),
    ),
  );

const find = (fromEnd: boolean, isNeeded: boolean): Method<string> =>
  takes(['sub'], (text: string, part) => {
    const at = fromEnd ? text.lastIndexOf(textOf(part)) : text.indexOf(textOf(part));
    if (isNeeded && at < 0) throw new Error('a text is not found');
    return toValue(charactersBefore(text, at));
  });

const split = (fromEnd: boolean): Method<string> =>
  takes(['sep', 'maxsplit'], (text: string, separator, times) => {
    const by = separator === undefined || separator.type === 'NullValue' ? undefined : textOf(separator);
    return toValue(splitText(text, by, wholeOf(times, -1), fromEnd));
  });

const matches = (pattern: RegExp): Method<string> => takes([], (text: string) => toValue(pattern.test(text)));

const TEXT: Readonly<Record<string, Method<string>>> = {
  capitalize: takes([], (text: string) => toValue(capitalized(text))),
  count: takes(['sub'], (text: string, part) => toValue(text.split(textOf(part)).length - 1)),
  find: find(false, false),
  format: (text, args) => toValue(braceFormat(text, args)),
  index: find(false, true),
  isalpha: matches(/^\p{L}+$/u),
  isdigit: matches(/^\p{Nd}+$/u),
  join: takes(['items'], (text: string, items) =>
    toValue(
      itemsOf(items ?? toValue(null))
        .map(textOf)
        .join(text),
    ),
  ),
  lstrip: strip('start'),
  removeprefix: takes(['prefix'], (text: string, part) =>
    toValue(text.startsWith(textOf(part)) ? text.slice(textOf(part).length) : text),
  ),
  removesuffix: takes(['suffix'], (text: string, part) =>
    toValue(text.endsWith(textOf(part)) ? text.slice(0, text.length - textOf(part).length) : text),
  ),
  rfind: find(true, false),
  rindex: find(true, true),
  rsplit: split(true),
  rstrip: strip('end'),
  split: split(false),
  splitlines: takes(['keepends'], (text: string, ends) => {
    if (isSet(ends)) throw new Error('keepends is not known');
    const lines = linesOf(text);
    return toValue(lines.at(-1) === '' ? lines.slice(0, -1) : lines);
  }),
  strip: strip('both'),
  // Unlike the filter's, a word begins after whatever is no letter.
  title: takes([], (text: string) => toValue(text.replace(/\p{L}+/gu, capitalized))),
};

const LIST: Readonly<Record<string, Method<ListValue>>> = {
  append: takes(['item'], (list: ListValue, item) => {
    if (item !== undefined) list.value.push(item);
    return toValue(null);
  }),
  count: takes(['item'], (list: ListValue, item) =>
    toValue(list.value.filter((each) => item !== undefined && equal(each, item)).length),
  ),
  index: takes(['item'], (list: ListValue, item) => {
    const at = list.value.findIndex((each) => item !== undefined && equal(each, item));
    if (at < 0) throw new Error('an item is not in the list');
    return toValue(at);
  }),
  pop: takes(['at'], (list: ListValue, at) => {
    const [item] = list.value.splice(wholeOf(at, -1), 1);
    if (item === undefined) throw new Error('there is no such item');
    return item;
  }),
};

const MAPPING: Readonly<Record<string, Method<Map<string, Value>>>> = {
  update: takes(['other'], (members: Map<string, Value>, other) => {
    if (!(other?.value instanceof Map)) throw new Error('update takes a mapping');
    for (const [name, member] of other.value as ReadonlyMap<string, Value>) members.set(name, member);
    return toValue(null);
  }),
};
