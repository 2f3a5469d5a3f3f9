/** Values compared as Python compares them. */
import type { Value } from './jinja-library.js';
import { isList, pythonText } from './jinja-values.js';

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
