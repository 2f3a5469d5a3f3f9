/** Values compared as Python compares them. */
import type { Value } from './jinja-library.js';
import { isList } from './jinja-values.js';

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
