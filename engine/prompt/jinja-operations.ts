/** Filters and operators where Jinja does otherwise than the library, with what is none, not defined, or nested. */
import { equal } from './jinja-compare.js';
import type { Value } from './jinja-library.js';
import { isList, isNested, pythonText, sortedByNumber, toValue } from './jinja-values.js';

/** Longest text that is made by repeating one. */
const MAX_REPEATED = 100_000;

/** Filters of texts, for which what is not defined is an empty one. */
const TEXT_FILTERS: ReadonlySet<string> = new Set(['trim', 'string', 'upper', 'lower', 'capitalize', 'title']);

/** Of these, those that write a value of another type down first. */
const CASE_FILTERS: ReadonlySet<string> = new Set(['upper', 'lower']);

function cased(text: string, filter: string): Value {
  return toValue(filter === 'upper' ? text.toUpperCase() : text.toLowerCase());
}

/** A filter's value; undefined: as the library has it. `numbered`: the operand's keys were written as numbers. */
export function ownFilter(operand: Value, filter: string | undefined, numbered: boolean): Value | undefined {
  if (filter === undefined) return undefined;
  if (operand.type === 'UndefinedValue') {
    if (TEXT_FILTERS.has(filter)) return toValue('');
    if (filter === 'items') return toValue([]);
    if (filter === 'length') return toValue(0);
  }
  if (isNested(operand) && CASE_FILTERS.has(filter)) return cased(pythonText(operand), filter);
  switch (filter) {
    case 'string':
      return isNested(operand) || ['NullValue', 'BooleanValue'].includes(operand.type)
        ? toValue(pythonText(operand))
        : undefined;
    case 'min':
    case 'max': {
      if (!isList(operand)) return undefined;
      const numbers = operand.value.map(({ value }) => Number(value));
      return toValue(filter === 'min' ? Math.min(...numbers) : Math.max(...numbers));
    }
    case 'dictsort':
      return numbered ? sortedByNumber(operand) : undefined;
    default:
      return undefined;
  }
}

/** Those that {@link ownOperation} looks at. */
export const OWN_OPERATORS: ReadonlySet<string> = new Set(['==', '!=', '+', '~', '*', 'in', 'not in']);

/** What an operator makes of two values; undefined: as the library has it. */
export function ownOperation(operator: string, left: Value, right: Value): Value | undefined {
  switch (operator) {
    case '==':
    case '!=':
      return toValue(equal(left, right) === (operator === '=='));
    case '+':
    case '~':
      return joined(operator, left, right);
    case '*':
      return repeated(left, right) ?? repeated(right, left);
    default: {
      const found = isIn(left, right);
      return found === undefined ? undefined : toValue(found === (operator === 'in'));
    }
  }
}

/** Joining takes what is not defined for an empty text, as llama.cpp's interpreter does. */
function joined(operator: string, left: Value, right: Value): Value | undefined {
  if (left.type === 'UndefinedValue' && right.type === 'StringValue') return right;
  if (right.type === 'UndefinedValue' && left.type === 'StringValue') return left;
  if (operator === '~' && (isNested(left) || isNested(right))) {
    return toValue([left, right].map((value) => (isNested(value) ? pythonText(value) : value.toString())).join(''));
  }
  const literals = ['BooleanValue', 'NullValue'];
  const literal = [left, right].some(({ type }) => literals.includes(type));
  const plain = [left, right].every(({ type }) => type === 'StringValue' || literals.includes(type));
  if (operator === '+' || !literal || !plain) return undefined;
  return toValue(
    [left, right].map((value) => (value.type === 'StringValue' ? value.toString() : pythonText(value))).join(''),
  );
}

function repeated(text: Value, times: Value): Value | undefined {
  if (text.type !== 'StringValue' || times.type !== 'IntegerValue') return undefined;
  const count = Math.max(0, Number(times.value));
  if (text.toString().length * count > MAX_REPEATED) throw new Error('a repeated text is too long');
  return toValue(text.toString().repeat(count));
}

/** Nothing is in what is not defined; none and what is not defined can be asked for. undefined: as the library has it. */
function isIn(left: Value, right: Value): boolean | undefined {
  if (right.type === 'UndefinedValue') return false;
  if (isList(right)) return right.value.some((item) => equal(item, left));
  return right.type === 'ObjectValue' && ['NullValue', 'UndefinedValue'].includes(left.type) ? false : undefined;
}
