/** Operators where Jinja does otherwise than the library. */
import { NO_ARGUMENTS } from './jinja-arguments.js';
import { compared, contains, equal } from './jinja-compare.js';
import { percentFormat } from './jinja-format.js';
import type { Value } from './jinja-library.js';
import { testOperation } from './jinja-tests.js';
import { Float, isList, plainText, toValue } from './jinja-values.js';

/** Longest text that is made by repeating one. */
const MAX_REPEATED = 100_000;

/** What an operator makes of two values; undefined: as the library has it. */
export function ownOperation(operator: string, left: Value, right: Value): Value | undefined {
  switch (operator) {
    case '==':
    case '!=':
      return toValue(equal(left, right) === (operator === '=='));
    case 'in':
    case 'not in':
      return toValue(contains(right, left) === (operator === 'in'));
    case '<':
      return ordered(left, right, (order) => order < 0);
    case '<=':
      return ordered(left, right, (order) => order <= 0);
    case '>':
      return ordered(left, right, (order) => order > 0);
    case '>=':
      return ordered(left, right, (order) => order >= 0);
    case '+':
      return added(left, right);
    case '*':
      return repeated(left, right) ?? repeated(right, left);
    case '%':
      return left.type === 'StringValue' ? formatted(left, right) : remainder(left, right);
    default: {
      const holds = testOperation(operator, left, right);
      return holds === undefined ? undefined : toValue(holds);
    }
  }
}

/** The parser takes `a < b < c` for `(a < b) < c`, so what is true or false has no order here. */
function ordered(left: Value, right: Value, passes: (order: number) => boolean): Value | undefined {
  if (left.type === 'BooleanValue' || right.type === 'BooleanValue') return undefined;
  return toValue(passes(compared(left, right)));
}

/** It has the sign of the divisor. */
function remainder(left: Value, right: Value): Value | undefined {
  const [dividend, divisor] = [left.value, right.value];
  if (typeof dividend !== 'number' || typeof divisor !== 'number') return undefined;
  if (divisor === 0) throw new Error('division by zero');
  const rest = dividend % divisor;
  const value = rest !== 0 && rest < 0 !== divisor < 0 ? rest + divisor : rest;
  return [left, right].some(({ type }) => type === 'FloatValue') ? new Float(value) : toValue(value);
}

function formatted(text: Value, values: Value): Value {
  const named = values.type === 'ObjectValue' ? (values.value as ReadonlyMap<string, Value>) : NO_ARGUMENTS.named;
  return toValue(percentFormat(plainText(text), { positional: isList(values) ? values.value : [values], named }));
}

/** Adding takes what is not defined for an empty text, as llama.cpp's interpreter does. */
function added(left: Value, right: Value): Value | undefined {
  if (left.type === 'UndefinedValue' && right.type === 'StringValue') return right;
  if (right.type === 'UndefinedValue' && left.type === 'StringValue') return left;
  return undefined;
}

function repeated(text: Value, times: Value): Value | undefined {
  if (text.type !== 'StringValue' || times.type !== 'IntegerValue') return undefined;
  const count = Math.max(0, Number(times.value));
  if (text.toString().length * count > MAX_REPEATED) throw new Error('a repeated text is too long');
  return toValue(text.toString().repeat(count));
}
