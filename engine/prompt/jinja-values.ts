/** The library's values, made and read. */
import { Environment, type Value } from './jinja-library.js';
import { pythonFloat, WrittenNumber } from './written-number.js';

/** The library converts where it declares: here nothing is kept. */
class Converter extends Environment {
  override declareVariable(_name: string, value: Value): Value {
    return value;
  }
}

const CONVERTER = new Converter();

const [TRUE, FALSE] = [CONVERTER.set('value', true), CONVERTER.set('value', false)];

/** A null within arguments or a schema, which is printed as None. One that a message has in place of its text is not printed. */
export const NONE = CONVERTER.set('value', null);

/** Depths of a variable at which a null is a message's or a tool's own member: the list, its items, their members. */
const OWN_MEMBERS = 2;

type Kind = new (value: unknown) => Value;

/** The library's kinds of values that are made here. */
const [Integer, Float, List, Mapping, Callable] = [1, 0.5, [], {}, () => null].map(
  (value) => CONVERTER.set('value', value).constructor as Kind,
) as [Kind, Kind, Kind, Kind, Kind];
export { Callable, Float, List, Mapping };

/** An integer past a double's digits: templates write it down, and compute with the nearest double. */
class LongInteger extends Integer {
  readonly #digits: string;

  constructor(number: WrittenNumber) {
    super(number.value);
    this.#digits = number.source;
  }

  override toString(): string {
    return this.#digits;
  }
}

/**
 * The library's form of a plain value, {@link WrittenNumber}s among them. Of true, false and {@link NONE} there is one each: nothing
 * changes them. `depth`: lists and mappings around it.
 */
export function toValue(value: unknown, depth = 0): Value {
  if (typeof value === 'boolean') return value ? TRUE : FALSE;
  if (value === null && depth > OWN_MEMBERS) return NONE;
  if (typeof value !== 'object' || value === null) return CONVERTER.set('value', value);
  if (value instanceof WrittenNumber) return value.isFloat ? new Float(value.value) : new LongInteger(value);
  if (Array.isArray(value)) return new List(value.map((item) => toValue(item, depth + 1)));
  return new Mapping(new Map(Object.entries(value).map(([name, member]) => [name, toValue(member, depth + 1)])));
}

/** Whether it is a list; its items can be changed in place. */
export function isList(value: Value): value is Value & { value: Value[] } {
  return Array.isArray(value.value);
}

/** Whether it is a list or a mapping. */
export function isNested(value: Value): boolean {
  return isList(value) || value.type === 'ObjectValue';
}

/** The members of a mapping whose keys are numbers, as a list of pairs in the keys' order. */
export function sortedByNumber(object: Value): Value {
  const members = [...(object.value as ReadonlyMap<string, Value>)].sort(([a], [b]) => Number(a) - Number(b));
  const list = toValue([]);
  if (isList(list)) {
    for (const [key, member] of members) {
      const pair = toValue([Number(key)]);
      if (isList(pair)) pair.value.push(member);
      list.value.push(pair);
    }
  }
  return list;
}

/** What Python's `str` makes of a value. */
export function plainText(value: Value): string {
  if (value.type === 'StringValue') return value.value as string;
  return value.type === 'UndefinedValue' ? '' : pythonText(value);
}

/** What a value is written as in a template's text. */
export function writtenText(value: Value): string {
  return value.type === 'NullValue' && value !== NONE ? '' : plainText(value);
}

/** Python's own notation for a value. */
export function pythonText(value: Value): string {
  switch (value.type) {
    case 'StringValue':
      return pythonString(value.value as string);
    case 'BooleanValue':
      return value.value === true ? 'True' : 'False';
    case 'FloatValue':
      return pythonFloat(value.value as number);
    case 'NullValue':
    case 'UndefinedValue':
      return 'None';
    case 'ObjectValue':
      return `{${Array.from(
        value.value as ReadonlyMap<string, Value>,
        ([name, member]) => `${pythonString(name)}: ${pythonText(member)}`,
      ).join(', ')}}`;
    default:
      return isList(value) ? `[${value.value.map(pythonText).join(', ')}]` : value.toString();
  }
}

function pythonString(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[\\\n\r\t]/g, (char) => ESCAPES[char] ?? char).replaceAll(quote, `\\${quote}`);
  return quote + escaped + quote;
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };
