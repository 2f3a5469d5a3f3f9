/** Python's methods of texts, lists and mappings, where the library has none or another. */
import { type Arguments, equal, isList, isSet, itemsOf, plainText, takes, toValue, wholeOf } from './jinja-values.js';
import { braceFormat, capitalized, charactersBefore, linesOf, splitText, stripped } from './jinja-texts.js';
import type { Value } from './jinja-library.js';

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
