/**
 * Statements with scopes of their own, as Jinja has them: what a loop's iteration or a block sets ends with it, and a macro knows the
 * names around its definition, not those around its call.
 */
import { itemsOf } from './jinja-items.js';
import { Environment, type Evaluator, type Scope, type Statement, type Value } from './jinja-library.js';
import type { Loop } from './jinja-nodes.js';
import { Callable, isList, Mapping, toValue } from './jinja-values.js';
import { newWriting, type OwnText } from './own-text.js';

/** Thrown by `break` and `continue`. */
export class LoopControl extends Error {
  readonly kind: 'Break' | 'Continue';
  /** What the iteration had written until then. */
  written = toValue('');

  constructor(kind: 'Break' | 'Continue') {
    super(kind);
    this.kind = kind;
  }
}

/** What a loop writes, as the texts of its iterations are `own`. */
export function loopText(
  { loopvar, iterable, body, defaultBlock }: Loop,
  scope: Scope,
  by: Evaluator,
  own: OwnText,
): Value {
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
export function defineMacro(name: string, defined: Scope): void {
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
