/** The library's values: made, read, written, iterated, passed to functions, and compared as Python does. */
import { Environment, type Value } from './jinja-library.js';
import { pythonFloat, WrittenNumber } from './written-number.js';

/** A plain value in the library's own form. */
const madeByLibrary = (value: unknown): Value => new Environment().set('value', value);

const [TRUE, FALSE, NULL, UNDEFINED] = [true, false, null, undefined].map(madeByLibrary) as [
  Value,
  Value,
  Value,
  Value,
];

/** A null within arguments or a schema, which is printed as None. One that a message has in place of its text is not printed. */
export const NONE = madeByLibrary(null);

/** Depths of a variable at which a null is a message's or a tool's own member: the list, its items, their members. */
const OWN_MEMBERS = 2;

type Kind = new (value: unknown) => Value;

/** Makes values of the library's kind. Its constructors define each field anew, which takes most of the time of a short rendering. */
function kindOf(sample: unknown): Kind {
  const { type, constructor } = madeByLibrary(sample);
  const kind = function (this: { type: string; value: unknown }, value: unknown): void {
    this.type = type;
    this.value = value;
  };
  kind.prototype = constructor.prototype as object;
  return kind as unknown as Kind;
}

/** The library's kinds of values that are made here. */
const [Text, Integer, Float, List, Mapping, Callable] = ['', 1, 0.5, [], {}, () => null].map((sample) =>
  kindOf(sample),
) as [Kind, Kind, Kind, Kind, Kind, Kind];
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
 * The library's form of a plain value, {@link WrittenNumber}s among them. Of true, false, undefined, null and {@link NONE} there is one each: nothing
 * changes them. `depth`: lists and mappings around it.
 */
export function toValue(value: unknown, depth = 0): Value {
  if (typeof value === 'string') return new Text(value);
  if (typeof value === 'boolean') return value ? TRUE : FALSE;
  if (typeof value === 'number') return Number.isInteger(value) ? new Integer(value) : new Float(value);
  if (value === undefined) return UNDEFINED;
  if (value === null) return depth > OWN_MEMBERS ? NONE : NULL;
  if (typeof value !== 'object') return madeByLibrary(value);
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

/** A list's items, a mapping's names, a text's characters. Nothing is in what is not defined. Throws for other values. */
export function itemsOf(value: Value): readonly Value[] {
  if (isList(value)) return value.value;
  switch (value.type) {
    case 'ObjectValue':
      return Array.from((value.value as ReadonlyMap<string, Value>).keys(), (name) => toValue(name));
    case 'StringValue':
      return Array.from(value.value as string, (character) => toValue(character));
    case 'UndefinedValue':
      return [];
    default:
      throw new Error(`${value.type} cannot be iterated`);
  }
}

/* What a template calls filters, tests and methods with. */

export interface Arguments {
  readonly positional: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;
}

export const NO_ARGUMENTS: Arguments = { positional: [], named: new Map() };

/** Wraps a function of these parameters, each of which may be given by place or by name, or be left out. */
export function takes<Operand>(
  names: readonly string[],
  apply: (operand: Operand, ...given: readonly (Value | undefined)[]) => Value,
): (operand: Operand, args: Arguments) => Value {
  return (operand, { positional, named }) => {
    const unknown = Array.from(named.keys()).find((name) => !names.includes(name));
    if (unknown !== undefined) throw new Error(`there is no parameter ${unknown}`);
    if (positional.length > names.length) throw new Error(`there are more than ${names.length} arguments`);
    return apply(operand, ...names.map((name, at) => positional[at] ?? named.get(name)));
  };
}

export function isSet(flag: Value | undefined): boolean {
  return flag?.__bool__().value ?? false;
}

/** A whole number that is given. Throws if it is another value. */
export function wholeOf(value: Value | undefined, otherwise: number): number {
  if (value === undefined) return otherwise;
  if (value.type !== 'IntegerValue') throw new Error('an argument is not a whole number');
  return Number(value.value);
}

/* Values compared as Python compares them. */

/** Lists and mappings are equal if what they hold is; true and false are equal to 1 and 0; none is equal to none alone. */
export function equal(left: Value, right: Value): boolean {
  if (isList(left)) {
    return isList(right) && left.value.length === right.value.length && left.value.every(equalAt(right.value));
  }
  if (left.type === 'ObjectValue') {
    const [own, other] = [left.value as ReadonlyMap<string, Value>, right.value as ReadonlyMap<string, Value>];
    return right.type === left.type && own.size === other.size && [...own].every(equalIn(other));
  }
  const number = numberOf(left);
  return number === undefined ? left.type === right.type && left.value === right.value : number === numberOf(right);
}

const equalAt =
  (others: readonly Value[]) =>
  (item: Value, at: number): boolean => {
    const other = others[at];
    return other !== undefined && equal(item, other);
  };

const equalIn =
  (others: ReadonlyMap<string, Value>) =>
  ([name, member]: readonly [string, Value]): boolean => {
    const other = others.get(name);
    return other !== undefined && equal(member, other);
  };

function numberOf(value: Value): number | undefined {
  return NUMBERS.has(value.type) ? Number(value.value) : undefined;
}

const NUMBERS: ReadonlySet<string> = new Set(['IntegerValue', 'FloatValue', 'BooleanValue']);

/** Less than 0, 0 or more than 0, as in a sort. Throws for what Python does not compare. */
export function compared(left: Value, right: Value): number {
  const [a, b] = [numberOf(left), numberOf(right)];
  if (a !== undefined && b !== undefined) return a - b;
  if (left.type === 'StringValue' && right.type === 'StringValue') {
    const [text, other] = [left.value as string, right.value as string];
    return text < other ? -1 : Number(text > other);
  }
  if (!isList(left) || !isList(right)) throw new Error(`${left.type} and ${right.type} have no order`);
  for (const [at, item] of left.value.entries()) {
    const other = right.value[at];
    if (other === undefined) return 1;
    if (!equal(item, other)) return compared(item, other);
  }
  return left.value.length - right.value.length;
}

/** What equal values have in common and others have not. */
export function identityOf(value: Value): string | number {
  return numberOf(value) ?? pythonText(value);
}

/** Whether a value is an item, a member's name or a part of a text. Nothing is in what is not defined. */
export function contains(whole: Value, value: Value): boolean {
  if (isList(whole)) return whole.value.some((item) => equal(item, value));
  switch (whole.type) {
    case 'UndefinedValue':
      return false;
    case 'ObjectValue':
      // Names that were written as numbers are kept as texts.
      return NAMES.has(value.type) && (whole.value as ReadonlyMap<string, Value>).has(value.toString());
    case 'StringValue':
      if (value.type === 'StringValue') return (whole.value as string).includes(value.value as string);
      break;
    default:
  }
  throw new Error(`${value.type} cannot be in ${whole.type}`);
}

const NAMES: ReadonlySet<string> = new Set(['StringValue', 'IntegerValue']);
