/** The library's syntax tree, as far as it is looked into. */
import type { Arguments } from './jinja-arguments.js';
import type { Statement, Value } from './jinja-library.js';

/** A node for a value that is already evaluated. */
export type Known = {
  readonly type: 'Known';
  readonly known: Value;
};

export type Loop = {
  readonly type: 'For';
  readonly loopvar: Statement;
  /** A SelectExpression where the loop has a condition: `for x in y if z`. */
  readonly iterable: Statement;
  readonly body: readonly Statement[];
  readonly defaultBlock: readonly Statement[];
};

/** The library's nodes, as far as they are used here. */
export type Node =
  | Known
  | { readonly type: 'TupleLiteral'; readonly value: readonly Statement[] }
  | { readonly type: 'ObjectLiteral'; readonly value: ReadonlyMap<Statement, Statement> }
  | { readonly type: 'FilterExpression'; readonly operand: Statement; readonly filter: Node }
  | { readonly type: 'CallExpression'; readonly callee: Node; readonly args: readonly Statement[] }
  | {
      readonly type: 'MemberExpression';
      readonly object: Statement;
      readonly property: Node;
      readonly computed: boolean;
    }
  | { readonly type: 'SliceExpression' }
  | { readonly type: 'StringLiteral' }
  | Loop
  | { readonly type: 'Break' | 'Continue' }
  | { readonly type: 'Macro'; readonly name: { readonly value: string } }
  | {
      readonly type: 'Set';
      readonly assignee: Node;
      readonly value: Statement | null;
      readonly body: readonly Statement[];
    }
  | { readonly type: 'FilterStatement'; readonly filter: Node; readonly body: readonly Statement[] }
  | {
      readonly type: 'TestExpression';
      readonly operand: Statement;
      readonly negate: boolean;
      readonly test: { readonly value: string };
    }
  | {
      readonly type: 'BinaryExpression';
      readonly operator: { readonly value: string };
      readonly left: Statement;
      readonly right: Statement;
    }
  | { readonly type: 'Identifier'; readonly value: string };

/** A copy of a node with some of its own parts replaced; no part is added, so all copies have one hidden class. */
export function replaced(node: Statement, parts: Readonly<Record<string, unknown>>): Statement {
  const copy = { ...node };
  return Object.assign(copy, parts);
}

export function asNode(known: Value): Known {
  return { type: 'Known', known };
}

/** A call with arguments that are already evaluated. */
export function callNode(name: string, { positional, named }: Arguments): Statement {
  const keywords = Array.from(named, ([key, value]) => ({
    type: 'KeywordArgumentExpression',
    key: { type: 'Identifier', value: key },
    value: asNode(value),
  }));
  return {
    type: 'CallExpression',
    callee: { type: 'Identifier', value: name },
    args: [...positional.map(asNode), ...keywords],
  };
}
