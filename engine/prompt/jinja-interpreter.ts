/**
 * `@huggingface/jinja`'s interpreter, with additions for features that real models' templates use. All additions are in
 * front of its public method `evaluate`: other nodes are passed on to the library, with parts that were evaluated here
 * replaced by their values.
 */
import type { Arguments } from './jinja-arguments.js';
import { filtered } from './jinja-filters.js';
import { Environment, Interpreter, type Scope, type Statement, type Value } from './jinja-library.js';
import { methodOf } from './jinja-methods.js';
import { asNode, callNode, replaced, type Known, type Node } from './jinja-nodes.js';
import { ownOperation } from './jinja-operations.js';
import { defineMacro, LoopControl, loopText } from './jinja-scopes.js';
import { holds } from './jinja-tests.js';
import { characterAt } from './jinja-texts.js';
import { plainText, sortedByNumber, toValue, writtenText } from './jinja-values.js';
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
        return this.#filter(node, scope);
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

  #filter(node: Node & { type: 'FilterExpression' }, scope: Scope): Value {
    return this.#filtered(this.evaluate(node.operand, scope), node.filter, scope);
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
    if (!node.computed) return super.evaluate(node, scope);
    const object = this.evaluate(node.object, scope);
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

/** Operators that make a text of a text and what is not. */
const MAKING_TEXT: ReadonlySet<string> = new Set(['*', '%']);
