import { choice } from './choice.js';
import type { GrammarPart } from './gbnf.js';
import { JSON_RULES } from './json.js';
import { extraKeyRules, objectRules, type Property } from './object-rules.js';
import { Rules, type Alternative, type Item } from './rules.js';
import { itemsOf, type Rope } from './rope.js';
import { Sames } from './sames.js';
import { saysNothing, type All, type Range, type Schema, type Shape, type Type } from './shape.js';
import { Shapes } from './shapes.js';
import { BEHIND_VALUE, MAX_STACKS, stacks, TEXT_STACKS, type Container } from './stacks.js';
import { Unservable, unlessUnservable, Work, type NoGrammar } from './work.js';

export type SchemaGrammar =
  /** `stacks`: the most places in the grammar that a text can be at simultaneously. */
  ({ readonly kind: 'ok'; readonly stacks: number } & GrammarPart) | NoGrammar;

/** Bound of counted items and characters. Beyond it: at least this many, or any number. */
export const MAX_COUNTED = 256;
/** Rules made for one schema before those that match nothing are left out. */
export const MAX_RULES = 10_000;
/** Values of one enum. */
export const MAX_VALUES = 2048;
/** Characters of one enum: its tree is made by looking at each of them once a level. */
export const MAX_ENUM_CHARACTERS = 65_536;

/** Steps of creating a rule, and of requesting the rule of one schema among those that apply together. */
const RULE_STEPS = 12;
const VALUE_STEPS = 8;

/**
 * The rules for a JSON text that is valid against a JSON schema; their names begin with `prefix` (letters, digits, `-`),
 * but for those that all schemas share.
 *
 * Properties come in the schema's order, other ones behind them; optional ones may be left out. oneOf is anyOf. What only
 * narrows a value (pattern, format, minimum …) constrains nothing but its type, and keywords that are not known here are
 * not read. A schema without a type that has the keywords of objects, or of arrays, is one of those.
 *
 * `work`: shared by all schemas of one request; a schema that takes more than is left of it is unservable. `root`: what
 * references point into, where `schema` is a part of it.
 */
export function schemaGrammar(schema: unknown, prefix = 'value', work = new Work(), root = schema): SchemaGrammar {
  return unlessUnservable(() => new Compiler(root, prefix, work).compile(schema as Schema));
}

const SCALARS: Readonly<Partial<Record<Type, Item>>> = {
  number: { rule: 'json-number' },
  integer: { rule: 'json-integer' },
  boolean: '("true" | "false")',
  null: '"null"',
};

const TEXT: Container = { places: TEXT_STACKS, values: [] };

/** A rule for each set of schemas that some value must satisfy, made once, from the outside in. */
class Compiler {
  readonly #prefix: string;
  readonly #work: Work;
  readonly #shapes: Shapes;
  readonly #rules = new Rules();
  /** Names by what the rule is to match. */
  readonly #names = new Map<string, string>();
  readonly #sames = new Sames();
  /** Names of rules by what they allow: what is written twice is one rule. */
  readonly #written = new Map<string, string>();
  readonly #open: { readonly name: string; readonly all: All }[] = [];
  readonly #containers = new Map<string, readonly (readonly Container[])[]>();
  #made = 0;

  constructor(root: unknown, prefix: string, work: Work) {
    this.#prefix = prefix;
    this.#work = work;
    this.#shapes = new Shapes(root, work);
  }

  compile(schema: Schema): SchemaGrammar {
    const root = this.#value([schema]);
    // An array hands out what is added to it on the way.
    for (const { name, all } of this.#open) this.#define(name, all);
    const most = stacks(root, this.#containers, (steps) => this.#work.spend(steps));
    if (most > MAX_STACKS)
      throw new Unservable('has too many alternatives, or consecutive optional properties, with a common prefix.');
    const lines = this.#rules.lines(root, (steps) => this.#work.spend(steps));
    if (!lines) throw new Unservable('allows no value.');
    return { kind: 'ok', rule: root, rules: [...JSON_RULES, ...lines], stacks: most };
  }

  /** The name of the rule for a value that satisfies all of these. */
  #value(all: All): string {
    this.#work.spend(VALUE_STEPS * all.length);
    const told = [...new Set(all.filter((schema) => !saysNothing(schema)))];
    if (told.length === 0) return 'json-value';
    const key = [...new Set(told.map((schema) => this.#sames.id(schema)))].sort().join(' ');
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
    const seen = new Set<string>();
    for (const shape of this.#shapes.of(all)) {
      if (shape.values) {
        this.#work.spend(shape.values.size);
        for (const [text, value] of shape.values) {
          if (typeof value === 'string') this.#work.spendText(value.length);
          if (fits(value, shape)) values.add(text);
        }
        continue;
      }
      for (const type of shape.types) {
        if (type === 'object') alternatives.push(...this.#object(shape, objects, seen));
        else if (type === 'array') alternatives.push(...this.#array(shape, arrays, seen));
        else if (type === 'string') alternatives.push(...this.#add(stringOf(shape.length), seen, strings, TEXT));
        else alternatives.push([SCALARS[type] ?? '']);
      }
    }
    if (values.size > MAX_VALUES) throw new Unservable(`has an enum of over ${MAX_VALUES} values.`);
    let characters = 0;
    for (const value of values) characters += value.length;
    if (characters > MAX_ENUM_CHARACTERS)
      throw new Unservable(`has an enum of over ${MAX_ENUM_CHARACTERS} characters.`);
    // The tree is made by looking at each character once.
    this.#work.spendText(characters);
    if (values.size > 0) {
      let places = 1;
      const newRule = (rest: readonly Alternative[]): string => {
        places = Math.max(places, rest.length);
        return this.#newRule(rest);
      };
      alternatives.push([choice([...values], newRule)]);
      // They may begin as any other value does.
      for (const kind of [objects, arrays, strings]) kind.push({ places, values: [] });
    }
    this.#rules.set(name, alternatives);
    this.#containers.set(name, [objects, arrays, strings]);
  }

  #object(shape: Shape, containers: Container[], seen: Set<string>): Alternative[] {
    const objects = this.#items(shape.objects);
    const required = new Set<string>();
    for (const names of this.#items(shape.required)) {
      this.#work.spend(names.length);
      for (const name of names) required.add(name);
    }
    for (const { properties } of objects) this.#work.spend(properties.size);
    const declared = new Set([...objects.flatMap(({ properties }) => [...properties.keys()]), ...required]);
    const properties = [...declared].map((name) => {
      this.#work.spend(objects.length);
      this.#work.spendText(name.length);
      return {
        name,
        required: required.has(name),
        rule: this.#value(objects.map(({ properties, additional }) => properties.get(name) ?? additional)),
      };
    });
    const others = this.#value(objects.map(({ additional }) => additional));
    const newRule = (alternatives: readonly Alternative[]): string => this.#newRule(alternatives);
    let keys = TEXT_STACKS;
    const extraKey = extraKeyRules([...declared], (alternatives) => {
      keys = Math.max(keys, alternatives.length);
      return this.#newRule(alternatives);
    });
    const other = extraKey === undefined ? undefined : { key: extraKey, rule: others };
    const between = objectRules(properties, other, newRule);
    const places = placesOf(properties) + Math.max(keys, BEHIND_VALUE);
    const container = { places, values: [...properties.map(({ rule }) => rule), others] };
    return this.#add([['"{" json-ws', between, '"}"']], seen, containers, container);
  }

  /** Written from the last item to the first: each rule goes on with the one behind it. */
  #array(shape: Shape, containers: Container[], seen: Set<string>): Alternative[] {
    const { items } = shape;
    const arrays = this.#items(shape.arrays);
    if (items.least > MAX_COUNTED) throw new Unservable(`asks for more than ${MAX_COUNTED} items.`);
    if (items.least > items.most) return [];
    const most = items.most > MAX_COUNTED ? Infinity : items.most;
    const prefix = Math.max(0, ...arrays.map(({ prefix }) => prefix.length));
    const at = (i: number): string => this.#value(arrays.map(({ prefix, rest }) => prefix[i] ?? rest));
    const rules = Array.from({ length: prefix + 1 }, (_, i) => at(i));
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
    const container = { places: BEHIND_VALUE, values: rules };
    return this.#add([['"[" json-ws', { rule: this.#newRule(behind) }, '"]"']], seen, containers, container);
  }

  #newRule(alternatives: readonly Alternative[]): string {
    this.#work.spend(RULE_STEPS * (1 + alternatives.length));
    const key = JSON.stringify(alternatives);
    const known = this.#written.get(key);
    if (known !== undefined) return known;
    const name = this.#newName();
    this.#written.set(key, name);
    this.#rules.set(name, alternatives);
    return name;
  }

  #items<T>(rope: Rope<T>): T[] {
    return itemsOf(rope, () => this.#work.spend(1));
  }

  #newName(): string {
    if (this.#made >= MAX_RULES) throw new Unservable('is too large to be compiled to a grammar.');
    return `${this.#prefix}-${this.#made++}`;
  }

  /** Alternatives that are equal count once, as do their containers. */
  #add(made: readonly Alternative[], seen: Set<string>, containers: Container[], container: Container): Alternative[] {
    const others = made.filter((alternative) => !seen.has(JSON.stringify(alternative)));
    for (const alternative of others) seen.add(JSON.stringify(alternative));
    containers.push(...others.map(() => container));
    return others;
  }
}

/** The places where the properties in order can continue at once: the next required one or any before it. */
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
