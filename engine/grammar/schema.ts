import { choice, EnumValues } from './choice.js';
import type { GrammarPart } from './gbnf.js';
import { JSON_RULES } from './json.js';
import { itemMembers } from './member-order.js';
import { LEAST_PROPERTY_STEPS, objectRules, type Property } from './object-rules.js';
import { matching, namesOf, otherProperties } from './other-properties.js';
import { RuleMaker } from './rule-maker.js';
import { alternativeText, type Alternative, type Item } from './rules.js';
import { MAX_COUNTED, numbersOf, textsOf, overCounted, type Scalars } from './scalar-rules.js';
import { itemsOf, type Rope } from './rope.js';
import { SchemaIds } from './schema-ids.js';
import { saysNothing, type All, type Schema, type Shape } from './shape.js';
import { Shapes } from './shapes.js';
import { AFTER_VALUE, MAX_STACKS, stacks, type Container, type ValueForm } from './stacks.js';
import { Validity } from './validity.js';
import { Unservable, unlessUnservable, WorkBudget, type NoGrammar } from './work.js';

export type SchemaGrammar =
  /** `stacks`: the most places in the grammar that a text can be at simultaneously. */
  ({ readonly kind: 'ok'; readonly stacks: number } & GrammarPart) | NoGrammar;

/** Steps of requesting the rule of one schema among those that apply together. */
const VALUE_STEPS = 8;

/**
 * The rules for a JSON text that is valid against a JSON schema; their names begin with `prefix` (letters, digits, `-`),
 * but for those that all schemas share.
 *
 * Properties come in the schema's order, other ones after them; optional ones may be left out. oneOf is anyOf. Keywords
 * that are not known here are not read. A schema without a type that has the keywords of objects, or of arrays, is one of
 * those. docs/contract.md#json-schema lists what is enforced of each keyword.
 *
 * `work`: shared by all schemas of one request; a schema that takes more than is left of it is unservable. `root`: what
 * references point into, where `schema` is a part of it.
 */
export function schemaGrammar(
  schema: unknown,
  prefix = 'value',
  work = new WorkBudget(),
  root = schema,
): SchemaGrammar {
  return unlessUnservable(() => new Compiler(root, prefix, work).compile(schema as Schema), root);
}

/** A rule for each set of schemas that some value must satisfy, made once, from the outside in. */
class Compiler {
  readonly #maker: RuleMaker;
  readonly #work: WorkBudget;
  readonly #shapes: Shapes;
  /** Names by what the rule is to match. */
  readonly #names = new Map<string, string>();
  readonly #validity: Validity;
  readonly #schemaIds = new SchemaIds();
  readonly #open: { readonly name: string; readonly all: All }[] = [];
  readonly #forms = new Map<string, ValueForm>();

  constructor(root: unknown, prefix: string, work: WorkBudget) {
    this.#maker = new RuleMaker(prefix, work);
    this.#work = work;
    this.#shapes = new Shapes(root, work);
    this.#validity = new Validity(this.#shapes, work);
  }

  compile(schema: Schema): SchemaGrammar {
    const root = this.#value([schema]);
    // An array hands out what is added to it on the way.
    for (const { name, all } of this.#open) this.#define(name, all);
    const most = stacks(root, this.#forms, (steps) => this.#work.spend(steps));
    if (most > MAX_STACKS)
      throw new Unservable('has too many alternatives, or consecutive optional properties, with a common prefix.');
    const lines = this.#maker.rules.lines(root, (steps) => this.#work.spend(steps));
    if (!lines) throw new Unservable('allows no value.');
    return { kind: 'ok', rule: root, rules: [...JSON_RULES, ...lines], stacks: most };
  }

  /** The name of the rule for a value that satisfies all of these. */
  #value(all: All): string {
    this.#work.spend(VALUE_STEPS * all.length);
    const constraining = [...new Set(all.filter((schema) => !saysNothing(schema)))];
    if (constraining.length === 0) return 'json-value';
    const key = [...new Set(constraining.map((schema) => this.#schemaIds.id(schema)))].sort().join(' ');
    let name = this.#names.get(key);
    if (name === undefined) {
      name = this.#maker.newName();
      this.#names.set(key, name);
      this.#open.push({ name, all: constraining });
    }
    return name;
  }

  #define(name: string, all: All): void {
    const alternatives: Alternative[] = [];
    const values = new EnumValues(this.#shapes, this.#work);
    const objects: Container[] = [];
    const arrays: Container[] = [];
    const strings: Container[] = [];
    const numbers: Container[] = [];
    const seen = new Set<string>();
    for (const shape of this.#shapes.of(all)) {
      if (shape.values) {
        values.add(shape, shape.values);
        continue;
      }
      for (const type of shape.types) {
        if (type === 'object') alternatives.push(...this.#object(shape, objects, seen));
        else if (type === 'array') alternatives.push(...this.#array(shape, arrays, seen));
        else if (type === 'string') this.#scalars(textsOf(shape, this.#maker), seen, strings, alternatives);
        else if (type === 'boolean') alternatives.push(['("true" | "false")']);
        else if (type === 'null') alternatives.push(['"null"']);
        else this.#scalars(numbersOf(shape, type === 'integer', this.#maker), seen, numbers, alternatives);
      }
    }
    const texts = values.texts();
    const listed = alternatives.length === 0 ? new Set(texts) : undefined;
    if (texts.length > 0) {
      let places = 1;
      const newRule = (rest: readonly Alternative[]): string => {
        places = Math.max(places, rest.length);
        return this.#newRule(rest);
      };
      alternatives.push([choice(texts, newRule)]);
      // They may begin as any other value does.
      for (const kind of [objects, arrays, strings, numbers]) kind.push({ places, parts: [], others: [] });
    }
    this.#maker.rules.set(name, alternatives);
    this.#forms.set(name, { kinds: [objects, arrays, strings, numbers], texts: listed });
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
    const names = namesOf(objects);
    const stepsOfOne = 1 + (1 + VALUE_STEPS) * objects.length + LEAST_PROPERTY_STEPS;
    this.#work.foresee(stepsOfOne * (declared.size - 1));
    const properties = [...declared].map((name) => {
      this.#work.spend(objects.length);
      this.#work.spendText(name.length);
      const own = objects.map(({ properties, additional }) => properties.get(name) ?? additional);
      const patterned = objects.flatMap((object) => matching(object, name, this.#maker));
      const refused = names.length > 0 && !this.#validity.of(name, names);
      return {
        name,
        required: required.has(name),
        rule: this.#value([...own, ...patterned, ...(refused ? [false] : [])]),
      };
    });
    const { others, places: keys } = otherProperties(objects, [...declared], this.#maker, {
      value: (all) => this.#value(all),
      shapes: (all) => this.#shapes.of(all),
    });
    const between = objectRules(properties, others, (rule) => this.#newRule(rule), shape.members);
    const places = placesOf(properties) + Math.max(keys, AFTER_VALUE);
    const container = { places, parts: properties, others: others.map(({ rule }) => rule) };
    return this.#add([['"{" json-ws', between, '"}"']], seen, containers, container);
  }

  /** Written from the last item to the first: each rule continues with the one after it. */
  #array(shape: Shape, containers: Container[], seen: Set<string>): Alternative[] {
    const { items } = shape;
    const arrays = this.#items(shape.arrays);
    if (items.least > MAX_COUNTED) throw overCounted('minItems');
    if (items.least > items.most) return [];
    const most = items.most > MAX_COUNTED ? Infinity : items.most;
    const prefix = Math.max(0, ...arrays.map(({ prefix }) => prefix.length));
    const at = (i: number): string => this.#value(arrays.map(({ prefix, rest }) => prefix[i] ?? rest));
    const rules = Array.from({ length: prefix + 1 }, (_, i) => at(i));
    const counted = (i: number): Item[] => {
      const more = this.#newRule([['"," json-ws', { rule: rules[prefix] ?? '' }, 'json-ws']]);
      return [{ rule: more, least: Math.max(0, items.least - i), most: most - i }];
    };
    let tail: readonly Alternative[] = most < prefix ? [] : most === prefix ? [[]] : [counted(prefix)];
    for (let i = prefix === 0 ? 0 : prefix - 1; i >= 0; i--) {
      const value: Item[] = [...(i === 0 ? [] : ['"," json-ws']), { rule: rules[i] ?? '' }, 'json-ws'];
      const goOn: Alternative[] = [];
      if (i < most) {
        if (prefix === 0) goOn.push(most === 1 ? value : [...value, ...counted(1)]);
        else goOn.push([...value, { rule: this.#newRule(tail) }]);
      }
      tail = i >= items.least ? [[], ...goOn] : goOn;
    }
    const container = { places: AFTER_VALUE, ...itemMembers(rules) };
    return this.#add([['"[" json-ws', { rule: this.#newRule(tail) }, '"]"']], seen, containers, container);
  }

  #newRule(alternatives: readonly Alternative[]): string {
    return this.#maker.newRule(alternatives);
  }

  #items<T>(rope: Rope<T>): T[] {
    return itemsOf(rope, () => this.#work.spend(1));
  }

  #scalars(scalars: Scalars, seen: Set<string>, containers: Container[], into: Alternative[]): void {
    into.push(...this.#add(scalars.alternatives, seen, containers, scalars.container));
  }

  /** Alternatives that are equal count once, as do their containers. */
  #add(made: readonly Alternative[], seen: Set<string>, containers: Container[], container: Container): Alternative[] {
    const others = made.filter((alternative) => {
      const before = seen.size;
      return seen.add(alternativeText(alternative)).size > before;
    });
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
