/**
 * The grammar of arguments in a notation close to JSON (BareArguments, KeywordArguments), by their schema. The schema
 * is first compiled for JSON, which finds whether it can be served, and at how many places a text can be.
 */
import { choiceRule } from './choice.js';
import { literal, type GrammarPart } from './gbnf.js';
import { anyValueRules, MARKS, OTHER_NAME, type Marks, type Notation } from './loose-notation.js';
import { listOf, type ParameterList } from './parameters.js';
import { itemsOf } from './rope.js';
import { MAX_COUNTED, overCounted } from './scalar-rules.js';
import { schemaGrammar, type SchemaGrammar } from './schema.js';
import { isRecord, saysNothing, type Range, type Schema, type Shape } from './shape.js';
import { Shapes } from './shapes.js';
import { Unservable, unlessUnservable, type WorkBudget } from './work.js';

/** Steps of a rule, as in schema.ts. */
const RULE_STEPS = 12;
/** Names that can stand without quotes. */
const NAME = /^[\p{L}\p{N}_$.-]+$/u;

/** The arguments of one function. `prefix`: what its rules' names begin with. `work`: what is left of the request's. */
export function looseGrammar(parameters: unknown, notation: Notation, prefix: string, work: WorkBudget): SchemaGrammar {
  const json = schemaGrammar(parameters, `${prefix}-j`, work);
  if (json.kind === 'unservable') return json;
  return unlessUnservable(
    () => ({
      kind: 'ok',
      stacks: json.stacks,
      ...new LooseRules(parameters, notation, prefix, work, json.rules).make(),
    }),
    parameters,
  );
}

class LooseRules {
  readonly #root: unknown;
  readonly #notation: Notation;
  readonly #prefix: string;
  readonly #work: WorkBudget;
  readonly #shapes: Shapes;
  readonly #rules: Set<string>;
  /** Rules of values by their schema; undefined: it has none. */
  readonly #values = new Map<unknown, string | undefined>();
  /** Schemas by the numbers of those that they join. */
  readonly #joined = new Map<string, Schema>();
  readonly #numbers = new Map<Schema, number>();
  #made = 0;

  constructor(root: unknown, notation: Notation, prefix: string, work: WorkBudget, json: readonly string[]) {
    this.#root = root;
    this.#notation = notation;
    this.#prefix = prefix;
    this.#work = work;
    this.#shapes = new Shapes(root, work);
    this.#rules = new Set([...json, ...anyValueRules(notation)]);
  }

  make(): GrammarPart {
    const objects = this.#shapes
      .of([this.#root as Schema])
      .filter((shape) => shape.types.includes('object') && shape.values === undefined);
    const ways = objects.flatMap((shape) => this.#object(shape, MARKS[this.#notation.kind].braces) ?? []);
    if (ways.length === 0) throw new Unservable('allows no value.');
    return { rule: this.#rule(ways.join(' | ')), rules: [...this.#rules] };
  }

  /** undefined: one that is required can have no value. */
  #object(shape: Shape, [open, close]: Marks['braces']): string | undefined {
    const list = listOf(shape, this.#shapes, this.#work);
    const additional = itemsOf(shape.objects, () => this.#work.spend(1)).map((object) => object.additional);
    const members = this.#members(list, list.length === 0 && !additional.includes(false) ? additional : undefined);
    return members === undefined ? undefined : `${open} ${members} ${close}`;
  }

  /** From the last to the first, as objectRules does. `others`: what undeclared members are; absent: there are none. */
  #members(list: ParameterList, others: readonly Schema[] | undefined): string | undefined {
    const { between } = MARKS[this.#notation.kind];
    if (others) {
      const value = this.#value(this.#allOf(others));
      if (value === undefined) return '""';
      const member = this.#rule(`${OTHER_NAME} ${between} ${value} json-ws`);
      return this.#rule(`"" | ${member} ("," json-ws ${member})*`);
    }
    let after = this.#rule('""');
    let first = after;
    for (const { name, required, schema } of [...list].reverse()) {
      const value = this.#value(schema);
      if (value === undefined && required) return undefined;
      if (value === undefined) continue;
      if (!NAME.test(name)) throw new Unservable('has a parameter whose name cannot be written to this model.');
      const member = `${literal(name)} ${between} ${value} json-ws ${after}`;
      const next = this.#rule(`"," json-ws ${member}${required ? '' : ` | ${after}`}`);
      first = this.#rule(`${member}${required ? '' : ` | ${first}`}`);
      after = next;
    }
    return first;
  }

  /** What is valid against each of these: the same object for the same ones, since a value's rule is found by it. */
  #allOf(all: readonly Schema[]): Schema {
    const own = [...new Set(all)].filter((schema) => !saysNothing(schema));
    const [first = true] = own;
    if (own.length < 2) return first;
    const key = own.map((schema) => this.#numberOf(schema)).join();
    const known = this.#joined.get(key) ?? { allOf: own };
    this.#joined.set(key, known);
    return known;
  }

  #numberOf(schema: Schema): number {
    const number = this.#numbers.get(schema) ?? this.#numbers.size;
    this.#numbers.set(schema, number);
    return number;
  }

  #value(schema: Schema): string | undefined {
    if (saysNothing(schema)) return 'loose-value';
    if (this.#values.has(schema)) return this.#values.get(schema);
    const name = this.#newName();
    this.#values.set(schema, name);
    const ways = this.#shapes.of([schema]).flatMap((shape) => this.#shape(shape));
    const scalars = this.#scalars(schema);
    if (scalars !== undefined) ways.push(scalars);
    if (ways.length === 0) this.#values.set(schema, undefined);
    if (ways.length === 0) return undefined;
    this.#rules.add(`${name} ::= ${[...new Set(ways)].join(' | ')}`);
    return name;
  }

  /** Numbers, booleans and null as JSON has them, and objects and arrays where they are JSON. */
  #scalars(schema: Schema): string | undefined {
    const nested = this.#notation.kind === 'keywords' ? ['object', 'array'] : [];
    const type = ['number', 'boolean', 'null', ...nested];
    const part = schemaGrammar({ allOf: [schema], type }, `${this.#prefix}-s${this.#made++}`, this.#work, this.#root);
    if (part.kind === 'unservable') {
      if (part.why === 'allows no value.') return undefined;
      throw new Unservable(part.why, part.path);
    }
    for (const rule of part.rules) this.#rules.add(rule);
    return part.rule;
  }

  #shape(shape: Shape): string[] {
    if (shape.values) return this.#enum([...shape.values.values()]);
    return shape.types.flatMap((type) => {
      if (type === 'string') return this.#text(shape.length);
      if (this.#notation.kind === 'keywords') {
        if (type === 'boolean') return ['loose-boolean'];
        return type === 'null' ? ['loose-null'] : [];
      }
      if (type === 'object') return this.#object(shape, MARKS.bare.braces) ?? [];
      return type === 'array' ? this.#array(shape) : [];
    });
  }

  #enum(values: readonly unknown[]): string[] {
    const texts = values.filter((value) => typeof value === 'string' || (isNested(value) && this.#isBare));
    if (texts.length === 0) return [];
    const written = texts.map((value) => this.#write(value));
    for (const text of written) this.#work.spendText(text.length);
    return [choiceRule([...new Set(written)], (text) => this.#rule(text))];
  }

  get #isBare(): boolean {
    return this.#notation.kind === 'bare';
  }

  #write(value: unknown): string {
    const notation = this.#notation;
    if (notation.kind === 'keywords' || !(typeof value === 'string' || isNested(value))) return JSON.stringify(value);
    if (typeof value === 'string') return notation.quote + value + notation.quote;
    if (Array.isArray(value)) return `[${value.map((each) => this.#write(each)).join(',')}]`;
    const members = Object.entries(value as object).map(([name, member]) => `${name}:${this.#write(member)}`);
    return `{${members.join(',')}}`;
  }

  #text({ least, most }: Range): string[] {
    if (least > most) return [];
    if (least === 0 && most > MAX_COUNTED) return ['loose-string'];
    const times = `{${Math.min(least, MAX_COUNTED)},${most > MAX_COUNTED ? '' : most}}`;
    const notation = this.#notation;
    if (notation.kind === 'keywords') return [`"\\"" json-char${times} "\\""`];
    const quote = literal(notation.quote);
    return [`${quote} [^${notation.quote[0] ?? ''}]${times} ${quote}`];
  }

  #array(shape: Shape): string[] {
    const { least, most } = shape.items;
    if (least > MAX_COUNTED) throw overCounted('minItems');
    const arrays = itemsOf(shape.arrays, () => this.#work.spend(1));
    const prefix = Math.max(0, ...arrays.map((each) => each.prefix.length));
    const at = (i: number): string | undefined => {
      const all = arrays.map((each) => each.prefix[i] ?? each.rest);
      return this.#value(this.#allOf(all));
    };
    let behind = '""';
    const rest = at(prefix);
    const room = most - prefix;
    if (rest !== undefined && room > 0) {
      const upTo = room > MAX_COUNTED ? '' : `${room}`;
      behind = `(${prefix === 0 ? '' : '"," json-ws '}${rest} json-ws)`;
      const more = `("," json-ws ${rest} json-ws)`;
      const from = Math.max(0, least - prefix);
      behind =
        prefix === 0
          ? `(${rest} json-ws ${more}{${Math.max(0, from - 1)},${upTo === '' ? '' : room - 1}})${from === 0 ? '?' : ''}`
          : `${more}{${from},${upTo}}`;
    } else if (least > prefix) return [];
    for (let i = Math.min(prefix, most) - 1; i >= 0; i--) {
      const value = at(i);
      if (value === undefined) return i < least ? [] : ['"[" json-ws "]"'];
      const item = `${i === 0 ? '' : '"," json-ws '}${value} json-ws ${behind}`;
      behind = this.#rule(i >= least ? `"" | ${item}` : item);
    }
    return [`"[" json-ws ${behind} "]"`];
  }

  #rule(text: string): string {
    const name = this.#newName();
    this.#rules.add(`${name} ::= ${text}`);
    return name;
  }

  #newName(): string {
    this.#work.spend(RULE_STEPS);
    return `${this.#prefix}-l${this.#made++}`;
  }
}

function isNested(value: unknown): boolean {
  return Array.isArray(value) || isRecord(value);
}
