/** Jinja's tests: `x is defined`, `x is eq y`, `select('in', y)`. */
import { compared, contains, equal, isNested } from './jinja-values.js';
import type { Token, Value } from './jinja-library.js';

type Test = (value: Value, argument: Value) => boolean;

/** Tests with an argument, by all their names. */
const COMPARING: Readonly<Record<string, Test>> = {
  divisibleby: (value, argument) => numberOf(value) % numberOf(argument) === 0,
  in: (value, argument) => contains(argument, value),
  sameas: (value, argument) => value.type === argument.type && value.value === argument.value,
  ...named(equal, 'eq', 'equalto', '=='),
  ...named((value, argument) => !equal(value, argument), 'ne', '!='),
  ...named((value, argument) => compared(value, argument) < 0, 'lt', 'lessthan', '<'),
  ...named((value, argument) => compared(value, argument) <= 0, 'le', '<='),
  ...named((value, argument) => compared(value, argument) > 0, 'gt', 'greaterthan', '>'),
  ...named((value, argument) => compared(value, argument) >= 0, 'ge', '>='),
};

const PLAIN: Readonly<Record<string, (value: Value) => boolean>> = {
  boolean: ({ type }) => type === 'BooleanValue',
  callable: ({ type }) => type === 'FunctionValue',
  defined: ({ type }) => type !== 'UndefinedValue',
  even: (value) => numberOf(value) % 2 === 0,
  false: ({ type, value }) => type === 'BooleanValue' && value === false,
  float: ({ type }) => type === 'FloatValue',
  integer: ({ type }) => type === 'IntegerValue',
  // Mappings can be iterated, and undefined values too.
  iterable: (value) => isNested(value) || value.type === 'StringValue' || value.type === 'UndefinedValue',
  lower: ({ value }) => typeof value === 'string' && value === value.toLowerCase() && value !== value.toUpperCase(),
  mapping: ({ type }) => type === 'ObjectValue',
  none: ({ type }) => type === 'NullValue',
  number: ({ type }) => type === 'IntegerValue' || type === 'FloatValue' || type === 'BooleanValue',
  odd: (value) => numberOf(value) % 2 !== 0,
  sequence: (value) => isNested(value) || value.type === 'StringValue' || value.type === 'UndefinedValue',
  string: ({ type }) => type === 'StringValue',
  true: ({ type, value }) => type === 'BooleanValue' && value === true,
  undefined: ({ type }) => type === 'UndefinedValue',
  upper: ({ value }) => typeof value === 'string' && value === value.toUpperCase() && value !== value.toLowerCase(),
};

function named(test: Test, ...names: readonly string[]): Record<string, Test> {
  return Object.fromEntries(names.map((name) => [name, test]));
}

function numberOf({ type, value }: Value): number {
  if (type !== 'IntegerValue' && type !== 'FloatValue') throw new Error(`${type} is no number`);
  return Number(value);
}

/** Whether a test holds. Throws for one that there is not, and without the argument that it needs. */
export function holds(name: string, value: Value, argument: Value | undefined): boolean {
  if (Object.hasOwn(PLAIN, name)) return PLAIN[name]?.(value) ?? false;
  const test = Object.hasOwn(COMPARING, name) ? COMPARING[name] : undefined;
  if (test === undefined || argument === undefined) throw new Error(`the test ${name} is not known or has no argument`);
  return test(value, argument);
}

/** What the operator of a test with an argument is called, in {@link withTestOperators}. */
const OPERATOR = /^is (not )?(.+)$/;

/** What such an operator makes of two values; undefined if it is another operator. */
export function testOperation(operator: string, left: Value, right: Value): boolean | undefined {
  const [, not, name] = OPERATOR.exec(operator) ?? [];
  return name === undefined ? undefined : holds(name, left, right) === (not === undefined);
}

/**
 * The tokens with one operator in place of each `is` and test with an argument: the library's parser knows tests without one. In
 * Jinja a test binds more tightly than `+` and `~`, which matters to no known template.
 */
export function withTestOperators(tokens: readonly Token[]): readonly Token[] {
  const out: Token[] = [];
  for (let at = 0; at < tokens.length;) {
    const not = isWord(tokens[at + 1], 'not');
    const test = tokens[at + (not ? 2 : 1)];
    if (isWord(tokens[at], 'is') && test?.type === 'Identifier' && Object.hasOwn(COMPARING, test.value)) {
      out.push({ type: 'ComparisonBinaryOperator', value: `is ${not ? 'not ' : ''}${test.value}` });
      at += not ? 3 : 2;
    } else {
      out.push(...tokens.slice(at, at + 1));
      at += 1;
    }
  }
  return out;
}

function isWord(token: Token | undefined, word: string): boolean {
  return token?.type === 'Identifier' && token.value === word;
}
