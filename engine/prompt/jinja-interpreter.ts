/**
 * `@huggingface/jinja`'s interpreter, with additions for features that real models' templates use. All additions are in
 * front of its public method `evaluate`: other nodes are passed on to the library, with parts that were evaluated here
 * replaced by their values.
 */
import { Environment, Interpreter, type Scope, type Statement, type Value } from './jinja-library.js';
import { asNode, replaced, type Known, type Node } from './jinja-nodes.js';
import { ownFilter, ownOperation, OWN_OPERATORS } from './jinja-operations.js';
import { defineMacro, LoopControl, loopText } from './jinja-scopes.js';
import { testOperator } from './jinja-tests.js';
import { isList, isNested, NONE, pythonText, stripped, toValue } from './jinja-values.js';

/** A template's texts as values. */
export type Literals = WeakMap<Statement, Value>;

/** Evaluates a template with the additions; `literals` are kept from one rendering to the next. */
export class FullInterpreter extends Interpreter {
  /** Objects written with numbers for keys. */
  readonly #numbered = new WeakSet<Value>();
  readonly #literals: Literals;

  constructor(scope: Scope, literals: Literals) {
    super(scope);
    this.#literals = literals;
  }

  override evaluate(statement: Statement | undefined, scope: Scope): Value {
    const node = statement as Node | undefined;
    switch (node?.type) {
      case 'Known':
        return node.known;
      case 'StringLiteral':
        return this.#literal(node, scope);
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
        return loopText(node, scope, this);
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
        return this.#test(node, scope);
      case 'BinaryExpression':
        return this.#binary(node, scope);
      default:
        return super.evaluate(statement, scope);
    }
  }

  /** The library writes true and false where Jinja and llama.cpp write True and False, and nothing for None. */
  override evaluateBlock(statements: readonly Statement[], scope: Scope): Value {
    let text = '';
    try {
      for (const statement of statements) {
        const value = this.evaluate(statement, scope);
        if (value.type === 'BooleanValue') text += value.value === true ? 'True' : 'False';
        else if (value === NONE || isNested(value)) text += pythonText(value);
        else if (value.type !== 'NullValue' && value.type !== 'UndefinedValue') text += value.toString();
      }
    } catch (error) {
      if (error instanceof LoopControl) error.text = text + error.text;
      throw error;
    }
    return toValue(text);
  }

  #literal(node: Node & { type: 'StringLiteral' }, scope: Scope): Value {
    const known = this.#literals.get(node);
    if (known !== undefined) return known;
    const value = super.evaluate(node, scope);
    this.#literals.set(node, value);
    return value;
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
    const name = filter.type === 'Identifier' ? filter.value : undefined;
    const chosen = isList(operand) ? this.#chosen(operand.value, filter, scope) : undefined;
    if (chosen !== undefined) return chosen;
    return (
      ownFilter(operand, name, this.#numbered.has(operand)) ??
      super.evaluate({ type: 'FilterExpression', operand: asNode(operand), filter }, scope)
    );
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

  /** The items of which a test holds, or that are true without one, or the others; undefined: it is another filter. */
  #chosen(items: readonly Value[], filter: Node, scope: Scope): Value | undefined {
    const [named, args] = filter.type === 'CallExpression' ? [filter.callee, filter.args] : [filter, []];
    const name = named.type === 'Identifier' ? named.value : undefined;
    if (name !== 'select' && name !== 'reject') return undefined;
    const [test, argument] = args.map((each) => this.evaluate(each, scope));
    const passes = (item: Value): boolean =>
      test === undefined ? item.__bool__().value : this.#passes(item, test.toString(), argument, scope);
    const chosen = items.filter((item) => passes(item) === (name === 'select'));
    return this.evaluate({ type: 'ArrayLiteral', value: chosen.map(asNode) }, scope);
  }

  /** Whether a test holds of an item. */
  #passes(item: Value, test: string, argument: Value | undefined, scope: Scope): boolean {
    const operator = argument === undefined ? undefined : testOperator(test);
    const node =
      operator === undefined || argument === undefined
        ? { type: 'TestExpression', operand: asNode(item), negate: false, test: { value: test } }
        : { type: 'BinaryExpression', operator: { value: operator }, left: asNode(item), right: asNode(argument) };
    return this.evaluate(node, scope).value === true;
  }

  #call(node: Node & { type: 'CallExpression' }, scope: Scope): Value {
    const { callee } = node;
    if (callee.type !== 'MemberExpression' || callee.computed || callee.property.type !== 'Identifier') {
      return super.evaluate(node, scope);
    }
    const object = this.evaluate(callee.object, scope);
    const name = callee.property.value;
    const own = this.#ownMethod(object, name, node.args, scope);
    if (own !== undefined) return own;
    // A method takes precedence over a member with its name when it is called: a schema's `properties.items()`.
    const method = object.type === 'ObjectValue' ? object.builtins.get(name) : undefined;
    const known = method === undefined ? replaced(callee, { object: asNode(object) }) : asNode(method);
    return super.evaluate(replaced(node, { callee: known }), scope);
  }

  #ownMethod(object: Value, name: string, args: readonly Statement[], scope: Scope): Value | undefined {
    if (isList(object) && (name === 'append' || name === 'pop')) {
      const [arg] = args.map((each) => this.evaluate(each, scope));
      if (name === 'append' && arg !== undefined) {
        object.value.push(arg);
        return toValue(null);
      }
      const at = name === 'pop' ? Number(arg?.value ?? -1) : NaN;
      return object.value.splice(at, 1)[0];
    }
    if (object.type === 'StringValue' && (name === 'format' || name in STRIPS)) {
      const texts = args.map((each) => this.evaluate(each, scope).toString());
      const text = object.value as string;
      if (name === 'format') return toValue(text.replaceAll('{}', () => texts.shift() ?? ''));
      const [characters] = texts;
      return characters === undefined ? undefined : toValue(stripped(text, characters, STRIPS[name] ?? 'both'));
    }
    // As in llama.cpp's interpreter; Jinja throws.
    if (object.type === 'UndefinedValue' && LISTING.has(name)) return toValue([]);
    return undefined;
  }

  #member(node: Node & { type: 'MemberExpression' }, scope: Scope): Value {
    if (!node.computed || node.property.type === 'SliceExpression') return super.evaluate(node, scope);
    const object = this.evaluate(node.object, scope);
    const name = this.evaluate(node.property, scope);
    // A missing name is undefined, and no error.
    if (name.type === 'UndefinedValue') return name;
    const property = this.#numbered.has(object) ? toValue(name.toString()) : name;
    return super.evaluate(replaced(node, { object: asNode(object), property: asNode(property) }), scope);
  }

  /** As in Jinja, mappings can be iterated, and undefined values too. */
  #test(node: Node & { type: 'TestExpression' }, scope: Scope): Value {
    if (node.test.value !== 'iterable') return super.evaluate(node, scope);
    const operand = this.evaluate(node.operand, scope);
    const iterable = isNested(operand) || ['StringValue', 'UndefinedValue'].includes(operand.type);
    return toValue(iterable !== node.negate);
  }

  #binary(node: Node & { type: 'BinaryExpression' }, scope: Scope): Value {
    const operator = node.operator.value;
    if (!OWN_OPERATORS.has(operator)) return super.evaluate(node, scope);
    const [left, right] = [this.evaluate(node.left, scope), this.evaluate(node.right, scope)];
    return (
      ownOperation(operator, left, right) ??
      super.evaluate(replaced(node, { left: asNode(left), right: asNode(right) }), scope)
    );
  }
}

/** Methods that take characters off a text's ends: the library takes white space off, whatever they name. */
const STRIPS: Readonly<Record<string, 'both' | 'start' | 'end'>> = { strip: 'both', lstrip: 'start', rstrip: 'end' };

/** Methods that list an object's members. */
const LISTING: ReadonlySet<string> = new Set(['items', 'keys', 'values']);
