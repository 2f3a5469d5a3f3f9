/**
 * Jinja's tests with an argument (`x is eq y`), which the library does not know: they are the operators that mean the same. The
 * filters `select` and `reject` may name tests too.
 */
import type { Token } from './jinja-library.js';

/** The operator for a test's name. */
const OPERATORS: Readonly<Record<string, string>> = {
  eq: '==',
  equalto: '==',
  sameas: '==',
  ne: '!=',
  lt: '<',
  lessthan: '<',
  le: '<=',
  gt: '>',
  greaterthan: '>',
  ge: '>=',
  in: 'in',
};

const NEGATED: Readonly<Record<string, string>> = {
  '==': '!=',
  '!=': '==',
  '<': '>=',
  '<=': '>',
  '>': '<=',
  '>=': '<',
};

/** undefined: the test has no argument, or is not known. */
export function testOperator(name: string): string | undefined {
  return Object.hasOwn(OPERATORS, name) ? OPERATORS[name] : undefined;
}

/**
 * The tokens with an operator in place of each `is` and test that there is one for. In Jinja a test binds more tightly than `+` and
 * `~`, which matters to no known template.
 */
export function withTestOperators(tokens: readonly Token[]): readonly Token[] {
  const out: Token[] = [];
  for (let at = 0; at < tokens.length;) {
    const not = isWord(tokens[at + 1], 'not');
    const test = tokens[at + (not ? 2 : 1)];
    const operator = isWord(tokens[at], 'is') && test?.type === 'Identifier' ? testOperator(test.value) : undefined;
    if (operator === undefined) {
      out.push(...tokens.slice(at, at + 1));
      at += 1;
    } else {
      if (not && operator === 'in') out.push({ type: 'Identifier', value: 'not' });
      const type = operator === 'in' ? 'Identifier' : 'ComparisonBinaryOperator';
      out.push({ type, value: not ? (NEGATED[operator] ?? operator) : operator });
      at += not ? 3 : 2;
    }
  }
  return out;
}

function isWord(token: Token | undefined, word: string): boolean {
  return token?.type === 'Identifier' && token.value === word;
}
