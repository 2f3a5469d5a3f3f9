/**
 * `@huggingface/jinja` as typed here: its own declarations import files without their endings, which the compiler's NodeNext
 * resolution does not find, so that all but `Template` arrive without types.
 */
import * as library from '@huggingface/jinja';

/** A value at run time: its kind, what it holds (lists: values; objects: a Map of values), and what can be called on it. */
export interface Value {
  readonly type: string;
  readonly value: unknown;
  readonly builtins: ReadonlyMap<string, Value>;
  toString(): string;
  /** Whether it is true. */
  __bool__(): { readonly value: boolean };
}

/** A syntax tree's node, of whatever kind. */
export interface Statement {
  readonly type: string;
  readonly [part: string]: unknown;
}

/** A piece of a template's source, as the library's parser takes it. */
export interface Token {
  readonly type: string;
  readonly value: string;
}

export interface Scope {
  /** Those declared in it. */
  readonly variables: ReadonlyMap<string, Value>;
  /** Declares a variable from plain JSON values and functions; returns it in the library's form. */
  set(name: string, value: unknown): Value;
  /** Declares a variable, once a scope; returns it. */
  declareVariable(name: string, value: Value): Value;
  /** Declares a variable, or gives it another value in this scope. */
  setVariable(name: string, value: Value): Value;
  /** The variable of this scope or of the nearest around it that has one; undefined, as a value, without. */
  lookupVariable(name: string): Value;
  /** The scope that has the variable, this or one around it. Throws when none has, which then is caught and means undefined. */
  resolve(name: string): Scope;
}

/** Evaluates a tree. Every node goes through `evaluate`, the nodes within it too. */
export interface Evaluator {
  run(program: Statement): Value;
  evaluate(statement: Statement | undefined, scope: Scope): Value;
  /** The arguments of a call by place and by name. */
  evaluateArguments(args: readonly Statement[], scope: Scope): readonly [Value[], Map<string, Value>];
  /** What these write, as a text's value. */
  evaluateBlock(statements: readonly Statement[], scope: Scope): Value;
}

interface Library {
  readonly Environment: new (around?: Scope) => Scope;
  readonly Interpreter: new (scope: Scope) => Evaluator;
  readonly parse: (tokens: readonly Token[]) => Statement;
  readonly tokenize: (source: string) => readonly Token[];
}

export const { Environment, Interpreter, parse, tokenize } = library as unknown as Library;
