import { choice, EnumValues, Validity } from './choice.js';
import { type GrammarPart, grammarText } from './gbnf.js';
import {
  JSON_RULES,
  JSON_NOTATION,
  unwritableName,
  type MarkedStrings,
  type Notation,
  anyObject,
  dataGrammar,
} from './notation.js';
import {
  AFTER_VALUE,
  itemMembers,
  MAX_STACKS,
  stacks,
  type Container,
  type Property,
  type ValueForm,
} from './stacks.js';
import { LEAST_PROPERTY_STEPS, objectRules, type Others, matching, namesOf, otherProperties } from './object-rules.js';
import { RuleMaker, alternativeText, type Alternative, type Item } from './rules.js';
import {
  markedTexts,
  MAX_COUNTED,
  numbersOf,
  overCounted,
  quotedTexts,
  type MarkedTexts,
  type Scalars,
} from './scalar-rules.js';
import {
  itemsOf,
  type Rope,
  SchemaIds,
  saysNothing,
  type All,
  type ObjectShape,
  type Range,
  type Schema,
  type Shape,
  type Type,
} from './shape.js';
import { Shapes } from './shapes.js';
import { typesOf } from './value-nodes.js';
import { Unservable, unlessUnservable, WorkBudget, type NoGrammar } from './work.js';

export type SchemaGrammar =
  /** `stacks`: the most places in the grammar that a text can be at simultaneously. */
  ({ readonly kind: 'ok'; readonly stacks: number } & GrammarPart) | NoGrammar;

/** Steps of requesting the rule of one schema among those that apply together. */
const VALUE_STEPS = 8;

/** What values of these types begin with in JSON. */
const BRACKETS: Readonly<Partial<Record<Type, string>>> = { object: '{', array: '[' };

/**
 * The rules for a text in `notation` (absent: JSON) of a value that is valid against a JSON schema; their names begin with `prefix`
 * (letters, digits, `-`), but for those that all schemas share.
 *
 * Properties come in the schema's order, other ones after them; optional ones may be left out. oneOf is anyOf. Keywords
 * that are not known here are not read. A schema without a type that has the keywords of objects, or of arrays, is one of
 * those. docs/compatible.md#json-schema lists what is enforced of each keyword.
 *
 * `work`: shared by all schemas of one request; a schema that takes more than is left of it is unservable. `root`: what
 * references point into, where `schema` is a part of it.
 */
export function schemaGrammar(
  schema: unknown,
  prefix = 'value',
  work = new WorkBudget(),
  root = schema,
  notation = JSON_NOTATION,
): SchemaGrammar {
  return unlessUnservable(() => new Compiler(root, prefix, work).compile(schema as Schema, notation), root);
}

/** A value that is still to be compiled: its rule, the schemas that it must satisfy, and how it is written. */
interface Open {
  readonly name: string;
  readonly all: All;
  readonly notation: Notation;
}

/** A rule for each set of schemas that some value must satisfy, and each notation of it, made once, from the outside in. */
class Compiler {
  readonly #maker: RuleMaker;
  readonly #work: WorkBudget;
  readonly #shapes: Shapes;
  /** Names by what the rule is to match. */
  readonly #names = new Map<string, string>();
  readonly #validity: Validity;
  readonly #schemaIds = new SchemaIds();
  readonly #open: Open[] = [];
  readonly #forms = new Map<string, ValueForm>();

  constructor(root: unknown, prefix: string, work: WorkBudget) {
    this.#maker = new RuleMaker(prefix, work);
    this.#work = work;
    this.#shapes = new Shapes(root, work);
    this.#validity = new Validity(this.#shapes, work);
  }

  compile(schema: Schema, notation: Notation): SchemaGrammar {
    const root = this.#value([schema], notation);
    // An array hands out what is added to it on the way.
    for (const open of this.#open) this.#define(open);
    const most = stacks(root, this.#forms, (steps) => this.#work.spend(steps));
    if (most > MAX_STACKS)
      throw new Unservable('has too many alternatives, or consecutive optional properties, with a common prefix.');
    const lines = this.#maker.rules.lines(root, (steps) => this.#work.spend(steps));
    if (!lines) throw new Unservable('allows no value.');
    return { kind: 'ok', rule: root, rules: [...JSON_RULES, ...notation.rules, ...lines], stacks: most };
  }

  /** The name of the rule for a value that satisfies all of these. */
  #value(all: All, notation: Notation): string {
    this.#work.spend(VALUE_STEPS * all.length);
    const constraining = [...new Set(all.filter((schema) => !saysNothing(schema)))];
    if (constraining.length === 0 && notation.any !== undefined) return notation.any;
    const ids = [...new Set(constraining.map((schema) => this.#schemaIds.id(schema)))].sort();
    const key = [notation.name, ...ids].join(' ');
    let name = this.#names.get(key);
    if (name === undefined) {
      name = this.#maker.newName();
      this.#names.set(key, name);
      this.#open.push({ name, all: constraining, notation });
    }
    return name;
  }

  #define({ name, all, notation }: Open): void {
    const { own, groups, strings } = notation;
    const shapes = this.#shapes.of(all);
    const types = notation.json.length > 0 ? typesOf(shapes) : [];
    const isJson = (type: Type): boolean => types.includes(type) && notation.json.includes(type);
    const unquoted = strings.kind === 'marked' && strings.unquoted ? strings : undefined;
    // A string without quotes that begins as one of these values does would be taken for it.
    const beside = unquoted ? (groups.find((group) => group.types.includes('string'))?.types.filter(isJson) ?? []) : [];
    const brackets = beside.flatMap((type) => BRACKETS[type] ?? []);
    const marked = strings.kind === 'marked' ? this.#markedTexts(shapes, strings, brackets) : [];
    // Where any text may stand, it stands for the scalars beside it too.
    const anyText = unquoted && marked.find(({ any }) => any);
    const alternatives: Alternative[] = [];
    const values = new EnumValues(this.#shapes, this.#work);
    const objects: Container[] = [];
    const arrays: Container[] = [];
    const texts: Container[] = [];
    const numbers: Container[] = [];
    const json: Container[] = [];
    const seen = new Set<string>();
    const isList = (shape: Shape): boolean => shape.values === undefined && shape.types.includes('array');
    const itemName = own.includes('array') && shapes.some(isList) ? notation.list.itemName : undefined;
    for (const shape of shapes) {
      const written = shape.types.filter((type) => own.includes(type));
      if (shape.values) {
        if (!anyText) values.add({ ...shape, types: written }, shape.values);
        continue;
      }
      for (const type of written) {
        if (type === 'object') alternatives.push(...this.#object(shape, notation, itemName, objects, seen));
        else if (type === 'array') alternatives.push(...this.#array(shape, notation, arrays, seen));
        else if (type === 'boolean') alternatives.push([notation.boolean]);
        else if (type === 'null') alternatives.push([notation.null]);
        else if (type !== 'string')
          this.#scalars(numbersOf(shape, type === 'integer', this.#maker), seen, numbers, alternatives);
        else if (strings.kind === 'quoted')
          this.#scalars(quotedTexts(shape, strings, this.#maker), seen, texts, alternatives);
      }
    }
    for (const text of anyText ? [anyText] : marked) this.#scalars(text, seen, texts, alternatives);
    for (const { types: group, before } of groups) {
      const isText = (type: Type): boolean =>
        anyText !== undefined && group.includes('string') && BRACKETS[type] === undefined;
      const jsonTypes = group.filter((type) => isJson(type) && !isText(type));
      if (jsonTypes.length === 0) continue;
      const rule = this.#value(jsonTypes.length < types.length ? [...all, { type: jsonTypes }] : all, JSON_NOTATION);
      alternatives.push([...before, { rule }, ...notation.after]);
      json.push({ places: 1, parts: [], others: [rule] });
    }
    const isWritten = (text: string): boolean => brackets.length === 0 || !/^\s*[[{]/.test(text);
    const listed = values.texts().flatMap(notation.listed).filter(isWritten);
    const only = alternatives.length === 0 ? new Set(listed) : undefined;
    if (listed.length > 0) {
      let places = 1;
      const newRule = (rest: readonly Alternative[]): string => {
        places = Math.max(places, rest.length);
        return this.#newRule(rest);
      };
      alternatives.push([...(unquoted?.open ?? []), choice(listed, newRule), ...(unquoted?.close ?? [])]);
      // They may begin as any other value does.
      for (const kind of [objects, arrays, texts, numbers, ...(json.length > 0 ? [json] : [])])
        kind.push({ places, parts: [], others: [] });
    }
    this.#maker.rules.set(name, alternatives);
    this.#forms.set(name, { kinds: [objects, arrays, texts, numbers, json], texts: only });
  }

  #markedTexts(shapes: readonly Shape[], strings: MarkedStrings, brackets: readonly string[]): readonly MarkedTexts[] {
    return shapes
      .filter(({ types, values }) => types.includes('string') && values === undefined)
      .map((shape) => markedTexts(shape, strings, brackets, this.#maker));
  }

  /** `itemName`: a member of this name would be taken for the item of a list. */
  #object(
    shape: Shape,
    notation: Notation,
    itemName: string | undefined,
    containers: Container[],
    seen: Set<string>,
  ): Alternative[] {
    const { object: marks, inner = notation } = notation;
    const objects = this.#items(shape.objects);
    const required = new Set<string>();
    for (const names of this.#items(shape.required)) {
      this.#work.spend(names.length);
      for (const name of names) required.add(name);
    }
    for (const { properties } of objects) this.#work.spend(properties.size);
    const declared = new Set([...objects.flatMap(({ properties }) => [...properties.keys()]), ...required]);
    if (itemName !== undefined && declared.has(itemName)) throw unwritableName();
    // Only JSON's keys are held to the schemas of names.
    const otherName = itemName === undefined ? marks.otherName : marks.otherNameBesideList;
    const names = otherName === undefined ? namesOf(objects) : [];
    const stepsOfOne = 1 + (1 + VALUE_STEPS) * objects.length + LEAST_PROPERTY_STEPS;
    this.#work.foresee(stepsOfOne * (declared.size - 1));
    const properties = [...declared].map((name) => {
      this.#work.spend(objects.length);
      this.#work.spendText(name.length);
      const own = objects.map(({ properties, additional }) => properties.get(name) ?? additional);
      const patterned = otherName === undefined ? objects.flatMap((object) => matching(object, name, this.#maker)) : [];
      const refused = names.length > 0 && !this.#validity.of(name, names);
      return {
        name,
        required: required.has(name),
        rule: this.#value([...own, ...patterned, ...(refused ? [false] : [])], inner),
      };
    });
    const { others, places: keys } =
      otherName === undefined
        ? otherProperties(objects, [...declared], this.#maker, {
            value: (all) => this.#value(all, inner),
            shapes: (all) => this.#shapes.of(all),
          })
        : { others: declared.size > 0 ? [] : this.#unnamed(objects, otherName, shape.members, inner), places: 2 };
    const between = objectRules(marks, properties, others, (rule) => this.#newRule(rule), shape.members);
    const places = placesOf(properties) + Math.max(keys, AFTER_VALUE);
    const container = { places, parts: properties, others: others.map(({ rule }) => rule) };
    return this.#add([[...marks.open, between, ...marks.close]], seen, containers, container);
  }

  /** The members of an object that declares none, in a notation whose keys are all `name`. */
  #unnamed(objects: readonly ObjectShape[], name: string, { least, most }: Range, inner: Notation): readonly Others[] {
    const all = objects.map(({ additional }) => additional);
    if (name === '' || all.includes(false) || most === 0) return [];
    if (least > MAX_COUNTED) throw overCounted('minProperties');
    return [{ key: name, rule: this.#value(all, inner) }];
  }

  /** Written from the last item to the first: each rule continues with the one after it. */
  #array(shape: Shape, notation: Notation, containers: Container[], seen: Set<string>): Alternative[] {
    const { items } = shape;
    const { list: marks, inner = notation } = notation;
    const arrays = this.#items(shape.arrays);
    if (items.least > MAX_COUNTED) throw overCounted('minItems');
    if (items.least > items.most) return [];
    const most = items.most > MAX_COUNTED ? Infinity : items.most;
    const prefix = Math.max(0, ...arrays.map(({ prefix }) => prefix.length));
    const at = (i: number): string =>
      this.#value(
        arrays.map(({ prefix, rest }) => prefix[i] ?? rest),
        inner,
      );
    const rules = Array.from({ length: prefix + 1 }, (_, i) => at(i));
    const item = (i: number): readonly Item[] => marks.item({ rule: rules[i] ?? '' });
    const counted = (i: number): Item[] => {
      const more = this.#newRule([[...marks.comma, ...item(prefix)]]);
      return [{ rule: more, least: Math.max(0, items.least - i), most: most - i }];
    };
    let tail: readonly Alternative[] = most < prefix ? [] : most === prefix ? [[]] : [counted(prefix)];
    for (let i = prefix === 0 ? 0 : prefix - 1; i >= 0; i--) {
      const value: Item[] = [...(i === 0 ? [] : marks.comma), ...item(i)];
      const goOn: Alternative[] = [];
      if (i < most) {
        if (prefix === 0) goOn.push(most === 1 ? value : [...value, ...counted(1)]);
        else goOn.push([...value, { rule: this.#newRule(tail) }]);
      }
      tail = i >= items.least ? [[], ...goOn] : goOn;
    }
    const container = { places: AFTER_VALUE, ...itemMembers(rules) };
    return this.#add([[...marks.open, { rule: this.#newRule(tail) }, ...marks.close]], seen, containers, container);
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

/** The grammar of a reply that is JSON. */
export type ReplyRules =
  | {
      readonly kind: 'ok';
      /** To be put beside the rules of calls. */
      readonly part: GrammarPart<string>;
      /** All of the reply. */
      readonly gbnf: string;
      /** The most places that a text of it can be at, all at once; absent: few. */
      readonly stacks?: number;
    }
  | NoGrammar;

/** A reply that is valid against `schema`, or without one is any JSON object. `work`: counts what it costs. */
export function replyRules(schema: object | undefined, work: WorkBudget): ReplyRules {
  if (schema === undefined) return { kind: 'ok', part: anyObject, gbnf: dataGrammar };
  const part = schemaGrammar(schema, 'reply', work);
  if (part.kind === 'unservable') return part;
  const text = grammarText(part.rule, [part]);
  if (text.kind === 'unservable') return text;
  const { gbnf } = text;
  const [, ...rules] = gbnf.split('\n');
  return { kind: 'ok', part: { rule: part.rule, rules }, gbnf, stacks: part.stacks };
}
