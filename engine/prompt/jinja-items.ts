/** What a value is made of, as Python iterates it. */
import type { Value } from './jinja-library.js';
import { isList, toValue } from './jinja-values.js';

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
