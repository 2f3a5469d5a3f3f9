/**
 * `@huggingface/jinja`'s interpreter, with additions for features that real models' templates use. All additions are in
 * front of its public method `evaluate`: other nodes are passed on to the library, with parts that were evaluated here
 * replaced by their values.
 */
import { filtered, methodOf, holds, testOperation } from './jinja-functions.js';
import { Environment, type Evaluator, Interpreter, type Scope, type Statement, type Value } from './jinja-library.js';
import { characterAt, percentFormat } from './jinja-texts.js';
import {
  type Arguments,
  Callable,
  compared,
  contains,
  equal,
  Float,
  isList,
  itemsOf,
  Mapping,
  NO_ARGUMENTS,
  plainText,
  sortedByNumber,
  toValue,
  writtenText,
} from './jinja-values.js';
import { newWriting, type OwnText } from './own-text.js';

/** Evaluates a template with the additions; `own` is kept from one rendering to the next. */
export class FullInterpreter extends Interpreter {
  /** Objects written with numbers for keys. */
  readonly #numbered = new WeakSet<Value>();
  readonly #own: OwnText;

  constructor(scope: Scope, own: OwnText) {
    super(scope);
    this.#own = own;
  }

  override evaluate(statement: Statement | undefined, scope: Scope): Value {
    const node = statement as Node | undefined;
    switch (node?.type) {
      case 'Known':
        return node.known;
      case 'StringLiteral':
        return this.#own.literal(node, () => super.evaluate(node, scope));
      // The library cannot unpack tuples in a loop, but it can unpack lists.
      case 'TupleLiteral':
        return super.evaluate({ type: 'ArrayLiteral', value: node.value }, scope);
      case 'ObjectLiteral':
        return this.#object(node, scope);
      case 'FilterExpression':
        return this.#filtered(this.evaluate(node.operand, scope), node.filter, scope);
      case 'CallExpression':
        return this.#call(node, scope);
      case 'MemberExpression':
        return this.#member(node, scope);
      case 'For':
        return loopText(node, scope, this, this.#own);
      case 'Break':
      case 'Continue':
        throw new LoopControl(node.type);
      case 'Macro':
        super.evaluate(node, scope);
        defineMacro(node.name.value, scope);
        return toValue(null);
      case 'Set':
        return this.#set(node, scope);
      case 'FilterStatement':
        return this.#filtered(this.evaluateBlock(node.body, new Environment(scope)), node.filter, scope);
      case 'TestExpression':
        return toValue(holds(node.test.value, this.evaluate(node.operand, scope), undefined) !== node.negate);
      case 'BinaryExpression':
        return this.#binary(node, scope);
      default:
        return super.evaluate(statement, scope);
    }
  }

  /** The library writes true and false where Jinja and llama.cpp write True and False, and nothing for None. */
  override evaluateBlock(statements: readonly Statement[], scope: Scope): Value {
    const writing = newWriting();
    try {
      for (const statement of statements) {
        const value = this.evaluate(statement, scope);
        this.#own.write(writing, writtenText(value), value);
      }
    } catch (error) {
      if (error instanceof LoopControl) error.written = this.#own.joined(this.#own.written(writing), error.written);
      throw error;
    }
    return this.#own.written(writing);
  }

  /** Keys may be numbers. */
  #object(node: Node & { type: 'ObjectLiteral' }, scope: Scope): Value {
    const pairs = Array.from(node.value, ([key, value]): [Known, Statement] => {
      const known = this.evaluate(key, scope);
      return [asNode(known.type === 'IntegerValue' ? toValue(known.toString()) : known), value];
    });
    const object = super.evaluate(replaced(node, { value: new Map(pairs) }), scope);
    if (Array.from(node.value.keys()).some(({ type }) => type === 'IntegerLiteral')) this.#numbered.add(object);
    return object;
  }

  #filtered(operand: Value, filter: Node, scope: Scope): Value {
    const [named, args] = filter.type === 'CallExpression' ? [filter.callee, filter.args] : [filter, []];
    const name = named.type === 'Identifier' ? named.value : '';
    return this.#applied(operand, name, this.#arguments(args, scope), scope);
  }

  #applied(operand: Value, name: string, args: Arguments, scope: Scope): Value {
    if (name === 'dictsort' && this.#numbered.has(operand)) return sortedByNumber(operand);
    const apply = (item: Value, other: string, others: Arguments): Value => this.#applied(item, other, others, scope);
    return this.#made(operand, args, (by, others) => {
      const node = { type: 'FilterExpression', operand: asNode(by), filter: callNode(name, others) };
      return filtered(by, name, others, apply) ?? super.evaluate(node, scope);
    });
  }

  /** What a filter or method makes of its operand and arguments. */
  #made(operand: Value, args: Arguments, make: (operand: Value, args: Arguments) => Value): Value {
    const { positional, named } = args;
    return this.#own.made([operand, ...positional, ...named.values()], ([by = operand, ...others]) => {
      const further = others.slice(positional.length);
      return make(by, {
        positional: others.slice(0, positional.length),
        named: new Map(Array.from(named.keys(), (key, i) => [key, further[i] as Value])),
      });
    });
  }

  #arguments(args: readonly Statement[], scope: Scope): Arguments {
    const [positional, named] = this.evaluateArguments(args, scope);
    return { positional, named };
  }

  /** A block's text may go through filters: `{% set x | trim %}`. */
  #set(node: Node & { type: 'Set' }, scope: Scope): Value {
    if (node.value !== null) return super.evaluate(node, scope);
    const filters: Node[] = [];
    let assignee = node.assignee;
    for (; assignee.type === 'FilterExpression'; assignee = assignee.operand as Node) filters.unshift(assignee.filter);
    const text = this.evaluateBlock(node.body, new Environment(scope));
    const value = filters.reduce((before, filter) => this.#filtered(before, filter, scope), text);
    return super.evaluate(replaced(node, { assignee, value: asNode(value) }), scope);
  }

  #call(node: Node & { type: 'CallExpression' }, scope: Scope): Value {
    const { callee } = node;
    if (callee.type !== 'MemberExpression' || callee.computed || callee.property.type !== 'Identifier') {
      return super.evaluate(node, scope);
    }
    const object = this.evaluate(callee.object, scope);
    const name = callee.property.value;
    if (object.type === 'StringValue') return this.#textMethod(object, name, node, scope);
    const own = methodOf(object, name);
    if (own !== undefined) return own(this.#arguments(node.args, scope));
    // A method takes precedence over a member with its name when it is called: a schema's `properties.items()`.
    const method = object.type === 'ObjectValue' ? object.builtins.get(name) : undefined;
    const known = method === undefined ? replaced(callee, { object: asNode(object) }) : asNode(method);
    return super.evaluate(replaced(node, { callee: known }), scope);
  }

  #textMethod(text: Value, name: string, node: Node & { type: 'CallExpression' }, scope: Scope): Value {
    return this.#made(text, this.#arguments(node.args, scope), (by, args) => {
      const own = methodOf(by, name);
      if (own !== undefined) return own(args);
      const callee = replaced(node.callee, { object: asNode(by) });
      return super.evaluate(replaced(callNode('', args), { callee }), scope);
    });
  }

  #member(node: Node & { type: 'MemberExpression' }, scope: Scope): Value {
    const { property: named } = node;
    if (!node.computed && named.type !== 'Identifier') return super.evaluate(node, scope);
    const object = this.evaluate(node.object, scope);
    if (!node.computed && named.type === 'Identifier') return memberOf(object, named.value);
    if (node.property.type === 'SliceExpression')
      return this.#own.made([object], ([by = object]) => super.evaluate(replaced(node, { object: asNode(by) }), scope));
    const name = this.evaluate(node.property, scope);
    // A missing name is undefined, and no error.
    if (name.type === 'UndefinedValue') return name;
    if (object.type === 'StringValue' && name.type === 'IntegerValue') {
      return this.#own.made([object], ([by = object]) => toValue(characterAt(plainText(by), Number(name.value))));
    }
    const property = this.#numbered.has(object) ? toValue(name.toString()) : name;
    return super.evaluate(replaced(node, { object: asNode(object), property: asNode(property) }), scope);
  }

  #binary(node: Node & { type: 'BinaryExpression' }, scope: Scope): Value {
    const operator = node.operator.value;
    // These do not evaluate both sides in each case.
    if (operator === 'and' || operator === 'or') return super.evaluate(node, scope);
    const [left, right] = [this.evaluate(node.left, scope), this.evaluate(node.right, scope)];
    const texts = left.type === 'StringValue' && right.type === 'StringValue';
    if (operator === '~' || (operator === '+' && texts)) return this.#own.joined(left, right);
    const made = ([one = left, other = right]: readonly Value[]): Value =>
      ownOperation(operator, one, other) ??
      super.evaluate(replaced(node, { left: asNode(one), right: asNode(other) }), scope);
    return MAKING_TEXT.has(operator) ? this.#own.made([left, right], made) : made([left, right]);
  }
}

/** A member by its name, as the library finds it, but without its methods' values where a mapping has none of that name. */
function memberOf(object: Value, name: string): Value {
  const own = object.value instanceof Map ? (object.value as ReadonlyMap<string, Value>).get(name) : undefined;
  const isMethod = object.type !== 'ObjectValue' || METHODS.has(name);
  return own ?? (isMethod ? object.builtins.get(name) : undefined) ?? toValue(undefined);
}

const METHODS: ReadonlySet<string> = new Set(new Mapping(new Map()).builtins.keys());

/** Operators that make a text of a text and what is not. */
const MAKING_TEXT: ReadonlySet<string> = new Set(['*', '%']);

/* Operators where Jinja does otherwise than the library. */

/** Longest text that is made by repeating one. */
const MAX_REPEATED = 100_000;

const OPERATIONS = new Map<string, (left: Value, right: Value) => Value | undefined>([
  ['==', (left, right) => toValue(equal(left, right))],
  ['!=', (left, right) => toValue(!equal(left, right))],
  ['in', (left, right) => toValue(contains(right, left))],
  ['not in', (left, right) => toValue(!contains(right, left))],
  ['<', (left, right) => ordered(left, right, (order) => order < 0)],
  ['<=', (left, right) => ordered(left, right, (order) => order <= 0)],
  ['>', (left, right) => ordered(left, right, (order) => order > 0)],
  ['>=', (left, right) => ordered(left, right, (order) => order >= 0)],
  ['+', added],
  ['*', (left, right) => repeated(left, right) ?? repeated(right, left)],
  ['%', (left, right) => (left.type === 'StringValue' ? formatted(left, right) : remainder(left, right))],
]);

/** What an operator makes of two values; undefined if it is as the library has it. */
function ownOperation(operator: string, left: Value, right: Value): Value | undefined {
  const operation = OPERATIONS.get(operator);
  if (operation) return operation(left, right);
  const holds = testOperation(operator, left, right);
  return holds === undefined ? undefined : toValue(holds);
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

/*
 * Statements with scopes of their own, as Jinja has them: what a loop's iteration or a block sets ends with it, and a macro knows the
 * names around its definition, not those around its call.
 */

/** Thrown by `break` and `continue`. */
class LoopControl extends Error {
  readonly kind: 'Break' | 'Continue';
  /** What the iteration had written until then. */
  written = toValue('');

  constructor(kind: 'Break' | 'Continue') {
    super(kind);
    this.kind = kind;
  }
}

/** What a loop writes, as the texts of its iterations are `own`. */
function loopText({ loopvar, iterable, body, defaultBlock }: Loop, scope: Scope, by: Evaluator, own: OwnText): Value {
  const condition = iterable.type === 'SelectExpression' ? (iterable['test'] as Statement) : undefined;
  const all = itemsOf(by.evaluate(condition === undefined ? iterable : (iterable['lhs'] as Statement), scope));
  const items =
    condition === undefined
      ? all
      : all.filter((item) => by.evaluate(condition, assigned(loopvar, item, new Environment(scope))).__bool__().value);
  const writing = newWriting();
  const write = (value: Value): void => own.write(writing, value.toString(), value);
  let finished = false;
  for (const [at, item] of items.entries()) {
    const within = assigned(loopvar, item, new Environment(scope));
    within.setVariable('loop', position(at, items));
    try {
      write(by.evaluateBlock(body, within));
      finished = true;
    } catch (error) {
      if (!(error instanceof LoopControl)) throw error;
      write(error.written);
      if (error.kind === 'Break') break;
    }
  }
  // Jinja renders it too where no iteration reached its end.
  if (!finished) write(by.evaluateBlock(defaultBlock, new Environment(scope)));
  return own.written(writing);
}

/** The scope with the loop's variables, one or a tuple of them. */
function assigned(target: Statement, item: Value, scope: Scope): Scope {
  const names = target.type === 'TupleLiteral' ? (target['value'] as readonly Statement[]) : undefined;
  if (names === undefined) {
    scope.setVariable(String(target['value']), item);
    return scope;
  }
  const parts = isList(item) ? item.value : [];
  if (parts.length !== names.length) throw new Error(`an item does not have ${names.length} parts`);
  for (const [at, part] of parts.entries()) assigned(names[at] as Statement, part, scope);
  return scope;
}

/** The variable `loop`. */
function position(at: number, items: readonly Value[]): Value {
  const { length } = items;
  const [before, after] = [items[at - 1], items[at + 1]];
  const members = new Map([
    ['index', toValue(at + 1)],
    ['index0', toValue(at)],
    ['revindex', toValue(length - at)],
    ['revindex0', toValue(length - at - 1)],
    ['first', toValue(at === 0)],
    ['last', toValue(at === length - 1)],
    ['length', toValue(length)],
  ]);
  if (before !== undefined) members.set('previtem', before);
  if (after !== undefined) members.set('nextitem', after);
  return new Mapping(members);
}

/** The library's macro, which evaluates its body in the scope that it is called with, called with its definition's. */
function defineMacro(name: string, defined: Scope): void {
  const body = defined.lookupVariable(name).value as (args: Value[], scope: Scope) => Value;
  const call = (args: Value[], calling: Scope): Value => {
    const scope = new Environment(defined);
    // A `call` block gives itself in a scope made for that.
    const caller = calling.variables.get('caller');
    if (caller !== undefined) scope.setVariable('caller', caller);
    return body(args, scope);
  };
  defined.setVariable(name, new Callable(call));
}

/* The library's syntax nodes, as far as they are looked into. */

/** A node for a value that is already evaluated. */
type Known = {
  readonly type: 'Known';
  readonly known: Value;
};

type Loop = {
  readonly type: 'For';
  readonly loopvar: Statement;
  /** A SelectExpression where the loop has a condition: `for x in y if z`. */
  readonly iterable: Statement;
  readonly body: readonly Statement[];
  readonly defaultBlock: readonly Statement[];
};

/** The library's nodes, as far as they are used here. */
type Node =
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
function replaced(node: Statement, parts: Readonly<Record<string, unknown>>): Statement {
  return Object.assign({ ...node }, parts);
}

function asNode(known: Value): Known {
  return { type: 'Known', known };
}

/** A call with arguments that are already evaluated. */
function callNode(name: string, { positional, named }: Arguments): Statement {
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
