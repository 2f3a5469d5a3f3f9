import { choice } from './choice.js';
import type { GrammarPart } from './gbnf.js';
import { JSON_RULES } from './json.js';
import { extraKeyRules, objectRules, type Property } from './object-rules.js';
import { Rules, type Alternative, type Item } from './rules.js';
import { saysNothing, Shapes, Unservable, type All, type Range, type Schema, type Shape, type Type } from './shapes.js';
import { stacks, type Container } from './stacks.js';

export type SchemaGrammar =
  /** `stacks`: the most places that a text of it can be at, all at once. */
  | ({ readonly kind: 'ok'; readonly stacks: number } & GrammarPart)
  /** `why`: what is wrong with the schema, to follow its name, without any of the caller's text. */
  | { readonly kind: 'unservable'; readonly why: string };

/** Items and characters that are counted. More than that: at least these, or any number. */
export const MAX_COUNTED = 256;
/** Rules made for one schema before those that match nothing are left out. */
export const MAX_RULES = 10_000;
/** Places in a grammar that one text can be at, all at once; each costs at every token. */
export const MAX_STACKS = 256;
/** Values of one enum. */
export const MAX_VALUES = 2048;
/** Characters of one enum: its tree is made by looking at each of them once a level. */
export const MAX_ENUM_CHARACTERS = 65_536;
/** Properties times objects that declare them, of one combination. */
export const MAX_LOOKUPS = 16_384;

/**
 * The rules for a JSON text that is valid against a JSON schema; their names begin with `prefix` (letters, digits, `-`),
 * but for those that all schemas share.
 *
 * Properties come in the schema's order, other ones behind them; optional ones may be left out. oneOf is anyOf. What only
 * narrows a value (pattern, format, minimum …) constrains nothing but its type, and keywords that are not known here are
 * not read. A schema without a type that has the keywords of objects, or of arrays, is one of those.
 */
export function schemaGrammar(schema: unknown, prefix = 'value'): SchemaGrammar {
  try {
    return new Compiler(schema, prefix).compile(schema as Schema);
  } catch (error) {
    if (error instanceof Unservable) return { kind: 'unservable', why: error.message };
    throw error;
  }
}

const SCALARS: Readonly<Partial<Record<Type, Item>>> = {
  number: { rule: 'json-number' },
  integer: { rule: 'json-integer' },
  boolean: '("true" | "false")',
  null: '"null"',
};

/** A rule for each set of schemas that some value must be valid against, made once, from the outside in. */
class Compiler {
  readonly #prefix: string;
  readonly #shapes: Shapes;
  readonly #rules = new Rules();
  /** Names by what the rule is to match. */
  readonly #names = new Map<string, string>();
  readonly #ids = new Map<unknown, number>();
  readonly #open: { readonly name: string; readonly all: All }[] = [];
  readonly #containers = new Map<string, readonly (readonly Container[])[]>();
  #made = 0;

  constructor(root: unknown, prefix: string) {
    this.#prefix = prefix;
    this.#shapes = new Shapes(root);
  }

  compile(schema: Schema): SchemaGrammar {
    const root = this.#value([schema]);
    for (let next = this.#open.shift(); next; next = this.#open.shift()) this.#define(next.name, next.all);
    const most = stacks(root, this.#containers);
    if (most > MAX_STACKS)
      throw new Unservable('has too many alternatives, or optional properties in a row, that begin alike.');
    const lines = this.#rules.lines(root);
    if (!lines) throw new Unservable('allows no value.');
    return { kind: 'ok', rule: root, rules: [...JSON_RULES, ...lines], stacks: most };
  }

  /** The name of the rule for a value of which all of these hold. */
  #value(all: All): string {
    const told = [...new Set(all.filter((schema) => !saysNothing(schema)))];
    if (told.length === 0) return 'json-value';
    const key = told
      .map((schema) => this.#id(schema))
      .sort()
      .join(' ');
    let name = this.#names.get(key);
    if (name === undefined) {
      name = this.#newName();
      this.#names.set(key, name);
      this.#open.push({ name, all: told });
    }
    return name;
  }

  #define(name: string, all: All): void {
    const alternatives: Alternative[] = [];
    const values = new Set<string>();
    const objects: Container[] = [];
    const arrays: Container[] = [];
    const strings: Container[] = [];
    for (const shape of this.#shapes.of(all)) {
      if (shape.values) {
        for (const value of shape.values) if (fits(value, shape)) values.add(JSON.stringify(value));
        continue;
      }
      for (const type of shape.types) {
        if (type === 'object') alternatives.push(this.#object(shape, objects));
        else if (type === 'array') alternatives.push(...this.#array(shape, arrays));
        else if (type === 'string') {
          const texts = stringOf(shape.length);
          alternatives.push(...texts);
          strings.push(...texts.map(() => ({ places: 1, values: [] })));
        } else alternatives.push([SCALARS[type] ?? '']);
      }
    }
    if (values.size > MAX_VALUES) throw new Unservable(`has an enum of over ${MAX_VALUES} values.`);
    let characters = 0;
    for (const value of values) characters += value.length;
    if (characters > MAX_ENUM_CHARACTERS)
      throw new Unservable(`has an enum of over ${MAX_ENUM_CHARACTERS} characters.`);
    if (values.size > 0) alternatives.push([choice([...values], (rest) => this.#newRule(rest))]);
    this.#rules.set(name, alternatives);
    this.#containers.set(name, [objects, arrays, strings]);
  }

  #object({ objects, required }: Shape, containers: Container[]): Alternative {
    const declared = new Set([...objects.flatMap(({ properties }) => [...properties.keys()]), ...required]);
    // Before the work: each declared property is looked up in each of the objects that are one.
    if (declared.size * objects.length > MAX_LOOKUPS)
      throw new Unservable('combines too many objects with too many properties.');
    const properties = [...declared].map((name) => ({
      name,
      required: required.has(name),
      rule: this.#value(objects.map(({ properties, additional }) => properties.get(name) ?? additional)),
    }));
    const others = this.#value(objects.map(({ additional }) => additional));
    containers.push({ places: placesOf(properties), values: [...properties.map(({ rule }) => rule), others] });
    const newRule = (alternatives: readonly Alternative[]): string => this.#newRule(alternatives);
    const extraKey = extraKeyRules([...declared], newRule);
    return [
      '"{" json-ws',
      objectRules(properties, extraKey === undefined ? undefined : { key: extraKey, rule: others }, newRule),
      '"}"',
    ];
  }

  /** Written from the last item to the first: each rule goes on with the one behind it. */
  #array({ arrays, items }: Shape, containers: Container[]): Alternative[] {
    if (items.least > MAX_COUNTED) throw new Unservable(`asks for more than ${MAX_COUNTED} items.`);
    if (items.least > items.most) return [];
    const most = items.most > MAX_COUNTED ? Infinity : items.most;
    const prefix = Math.max(0, ...arrays.map(({ prefix }) => prefix.length));
    const at = (i: number): string => this.#value(arrays.map(({ prefix, rest }) => prefix[i] ?? rest));
    const rules = Array.from({ length: prefix + 1 }, (_, i) => at(i));
    containers.push({ places: 1, values: rules });
    const counted = (i: number): Item[] => {
      const more = this.#newRule([['"," json-ws', { rule: rules[prefix] ?? '' }, 'json-ws']]);
      return [{ rule: more, least: Math.max(0, items.least - i), most: most - i }];
    };
    let behind: readonly Alternative[] = most < prefix ? [] : most === prefix ? [[]] : [counted(prefix)];
    for (let i = prefix === 0 ? 0 : prefix - 1; i >= 0; i--) {
      const value: Item[] = [...(i === 0 ? [] : ['"," json-ws']), { rule: rules[i] ?? '' }, 'json-ws'];
      const goOn: Alternative[] = [];
      if (i < most) {
        if (prefix === 0) goOn.push(most === 1 ? value : [...value, ...counted(1)]);
        else goOn.push([...value, { rule: this.#newRule(behind) }]);
      }
      behind = i >= items.least ? [[], ...goOn] : goOn;
    }
    return [['"[" json-ws', { rule: this.#newRule(behind) }, '"]"']];
  }

  #newRule(alternatives: readonly Alternative[]): string {
    const name = this.#newName();
    this.#rules.set(name, alternatives);
    return name;
  }

  #newName(): string {
    if (this.#made >= MAX_RULES) throw new Unservable('is too large to hold a reply to.');
    return `${this.#prefix}-${this.#made++}`;
  }

  #id(schema: unknown): number {
    const id = this.#ids.get(schema) ?? this.#ids.size;
    this.#ids.set(schema, id);
    return id;
  }
}

/** Where the properties in order can go on at once: with the next one that is required or any before it. */
function placesOf(properties: readonly Property[]): number {
  let most = 1;
  let row = 1;
  for (const { required } of properties) {
    row = required ? 1 : row + 1;
    most = Math.max(most, row);
  }
  return most;
}

function stringOf({ least, most }: Range): Alternative[] {
  if (least > most) return [];
  if (least === 0 && most > MAX_COUNTED) return [[{ rule: 'json-string' }]];
  const upTo = most > MAX_COUNTED ? Infinity : most;
  return [['"\\""', { rule: 'json-char', least: Math.min(least, MAX_COUNTED), most: upTo }, '"\\""']];
}

/** Whether one of an enum's values is of the shape's types, and a text of its length. */
function fits(value: unknown, { types, length }: Shape): boolean {
  switch (typeof value) {
    case 'string': {
      const characters = Array.from(value).length;
      return types.includes('string') && length.least <= characters && characters <= length.most;
    }
    case 'number':
      return types.includes('number') || (types.includes('integer') && Number.isInteger(value));
    case 'boolean':
      return types.includes('boolean');
    default:
      return types.includes(value === null ? 'null' : Array.isArray(value) ? 'array' : 'object');
  }
}
