/** What a template calls filters, tests and methods with. */
import type { Value } from './jinja-library.js';

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

/** Whether a flag is given and true. */
export function isSet(flag: Value | undefined): boolean {
  return flag?.__bool__().value ?? false;
}

/** A whole number that is given. Throws if it is another value. */
export function wholeOf(value: Value | undefined, otherwise: number): number {
  if (value === undefined) return otherwise;
  if (value.type !== 'IntegerValue') throw new Error('an argument is not a whole number');
  return Number(value.value);
}
