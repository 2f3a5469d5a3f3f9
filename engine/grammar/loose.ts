/**
 * The grammar of arguments in a notation close to JSON (BareArguments, KeywordArguments), by their schema. The schema
 * is first compiled for JSON, which finds whether it can be served, and at how many places a text can be.
 */
import { literal, type GrammarPart, type Rule } from './gbnf.js';
import { anyValueRules, MARKS, OTHER_NAME, type Marks, type Notation } from './loose-notation.js';
import { LooseTexts } from './loose-texts.js';
import { listOf, type ParameterList } from './parameters.js';
import { itemsOf } from './rope.js';
import { MAX_COUNTED, overCounted } from './scalar-rules.js';
import { schemaGrammar, type SchemaGrammar } from './schema.js';
import { saysNothing, type Range, type Schema, type Shape } from './shape.js';
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
  readonly #rules: Set<Rule>;
  readonly #texts: LooseTexts;
  /** Rules of values by their schema; undefined: it has none. */
  readonly #values = new Map<unknown, string | undefined>();
  /** Schemas by the numbers of those that they join. */
  readonly #joined = new Map<string, Schema>();
  readonly #numbers = new Map<Schema, number>();
  #made = 0;

  constructor(root: unknown, notation: Notation, prefix: string, work: WorkBudget, json: readonly Rule[]) {
    this.#root = root;
    this.#notation = notation;
    this.#prefix = prefix;
    this.#work = work;
    this.#shapes = new Shapes(root, work);
    this.#rules = new Set<Rule>([...json, ...anyValueRules(notation)]);
    this.#texts = new LooseTexts(notation, this.#shapes, work, this.#rules, (text) => this.#rule(text));
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
    const members =
      list.length === 0 && !additional.includes(false)
        ? this.#others(additional, shape.members)
        : this.#members(list, shape.members.least > 0);
    return members === undefined ? undefined : `${open} ${members} ${close}`;
  }

  /** Members that are not declared, of these schemas and so many; undefined: some must be there and can have no value. */
  #others(schemas: readonly Schema[], { least, most }: Range): string | undefined {
    if (least > MAX_COUNTED) throw overCounted('minProperties');
    const value = most === 0 ? undefined : this.#value(this.#allOf(schemas));
    if (value === undefined) return least > 0 ? undefined : '""';
    if (least > most) return undefined;
    const member = this.#rule(`${OTHER_NAME} ${MARKS[this.#notation.kind].between} ${value} json-ws`);
    const further = `("," json-ws ${member}){${Math.max(0, least - 1)},${most > MAX_COUNTED ? '' : most - 1}}`;
    return this.#rule(`${least === 0 ? '"" | ' : ''}${member} ${further}`);
  }

  /** From the last to the first, as objectRules does. `some`: there is one at least. */
  #members(list: ParameterList, some: boolean): string | undefined {
    const { between } = MARKS[this.#notation.kind];
    let after = this.#rule('""');
    let first = some ? undefined : after;
    for (const { name, required, schema } of [...list].reverse()) {
      const value = this.#value(schema);
      if (value === undefined && required) return undefined;
      if (value === undefined) continue;
      if (!NAME.test(name)) throw new Unservable('has a parameter whose name cannot be written to this model.');
      const member = `${literal(name)} ${between} ${value} json-ws ${after}`;
      const next = this.#rule(`"," json-ws ${member}${required ? '' : ` | ${after}`}`);
      first = this.#rule(`${member}${required || first === undefined ? '' : ` | ${first}`}`);
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
    if (shape.values) return this.#texts.enum(shape, shape.values);
    return shape.types.flatMap((type) => {
      if (type === 'string') return this.#texts.strings(shape);
      if (this.#notation.kind === 'keywords') {
        if (type === 'boolean') return ['loose-boolean'];
        return type === 'null' ? ['loose-null'] : [];
      }
      if (type === 'object') return this.#object(shape, MARKS.bare.braces) ?? [];
      return type === 'array' ? this.#array(shape) : [];
    });
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
    let tail = '""';
    const rest = at(prefix);
    const room = most - prefix;
    if (rest !== undefined && room > 0) {
      const upTo = room > MAX_COUNTED ? '' : `${room}`;
      tail = `(${prefix === 0 ? '' : '"," json-ws '}${rest} json-ws)`;
      const more = `("," json-ws ${rest} json-ws)`;
      const from = Math.max(0, least - prefix);
      tail =
        prefix === 0
          ? `(${rest} json-ws ${more}{${Math.max(0, from - 1)},${upTo === '' ? '' : room - 1}})${from === 0 ? '?' : ''}`
          : `${more}{${from},${upTo}}`;
    } else if (least > prefix) return [];
    for (let i = Math.min(prefix, most) - 1; i >= 0; i--) {
      const value = at(i);
      if (value === undefined) {
        if (i < least) return [];
        tail = '""';
        continue;
      }
      const item = `${i === 0 ? '' : '"," json-ws '}${value} json-ws ${tail}`;
      tail = this.#rule(i >= least ? `"" | ${item}` : item);
    }
    return [`"[" json-ws ${tail} "]"`];
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
