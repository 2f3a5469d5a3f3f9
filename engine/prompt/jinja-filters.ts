/** Jinja's filters. The library sorts mappings. */
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
} from './jinja-values.js';
import { capitalized, fixed, lengthOf, percentFormat, pythonJson, stripped, withReplaced } from './jinja-texts.js';
import type { Value } from './jinja-library.js';
import { holds } from './jinja-tests.js';

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
