/**
 * The grammar of arguments that are written as nested elements (NestedArguments): the members of an object in the order of the
 * schema, optional ones there or not, an array's items one by one. A string, which stands without quotes, is constrained to its enum,
 * patterns, formats and length. Other members are offered only where none are declared and the schema allows them: with any name of
 * letters, digits and underscores. Objects and arrays of an enum are not offered.
 */
import type { NestedArguments, NestedTypes } from '../protocol/reply-format.js';
import { choice, EnumValues } from './choice.js';
import { inClass, literal, textUpTo, type GrammarPart, type Rule } from './gbnf.js';
import { JSON_RULES } from './json.js';
import { OTHER_NAME } from './loose-notation.js';
import { itemMembers } from './member-order.js';
import { NestedNodes } from './nested-nodes.js';
import type { Property } from './object-rules.js';
import { listedStrings, listOf, type ParameterList } from './parameters.js';
import { itemsOf } from './rope.js';
import { RuleMaker } from './rule-maker.js';
import type { Alternative, Item } from './rules.js';
import { SchemaIds } from './schema-ids.js';
import { counted, MAX_COUNTED, overCounted } from './scalar-rules.js';
import { schemaGrammar } from './schema.js';
import { saysNothing, type Range, type Schema, type Shape } from './shape.js';
import { SharedTexts, type TextRule } from './shared-texts.js';
import { allOf, Shapes } from './shapes.js';
import { AFTER_VALUE, MAX_STACKS, stacks, TEXT_STACKS, type Container, type ValueForm } from './stacks.js';
import { isAnyText, unquotedText } from './unquoted-text.js';
import { Unservable, unlessUnservable, type NoGrammar, type WorkBudget } from './work.js';

export type NestedGrammar =
  ({ readonly kind: 'ok'; readonly stacks: number; readonly nodes: readonly NestedTypes[] } & GrammarPart) | NoGrammar;

/** {@link OTHER_NAME} where an array may stand too: not the name of its items. */
const OTHER_NAME_BUT_ITEM = '[A-Za-hj-z0-9_] [A-Za-z0-9_]{0,63}';

/** Any text up to and with the next tag's prefix. */
const TEXT = 'nested-text';

/** The arguments of one function. `prefix`: what its rules' names begin with. `work`: what is left of the request's. */
export function nestedGrammar(
  parameters: unknown,
  { prefix: tagPrefix }: NestedArguments,
  prefix: string,
  work: WorkBudget,
): NestedGrammar {
  return unlessUnservable(() => new NestedRules(parameters, tagPrefix, prefix, work).make(), parameters);
}

class NestedRules {
  readonly #root: unknown;
  readonly #tagPrefix: string;
  readonly #prefix: string;
  readonly #work: WorkBudget;
  readonly #shapes: Shapes;
  readonly #schemaIds = new SchemaIds();
  readonly #maker: RuleMaker;
  /** Rules of values by their schema, and those that are still to be made. */
  readonly #names = new Map<string, string>();
  readonly #open: { readonly name: string; readonly schema: Schema }[] = [];
  readonly #forms = new Map<string, ValueForm>();
  /** Rules of scalars, as they are written. */
  readonly #scalars = new Set<Rule>();
  #scalarStacks = 1;
  #made = 0;

  constructor(root: unknown, tagPrefix: string, prefix: string, work: WorkBudget) {
    this.#root = root;
    this.#tagPrefix = tagPrefix;
    this.#prefix = prefix;
    this.#work = work;
    this.#shapes = new Shapes(root, work);
    this.#maker = new RuleMaker(`${prefix}-n`, work);
  }

  make(): NestedGrammar {
    const root = this.#maker.newName();
    const objects = this.#shapes
      .of([this.#root as Schema])
      .filter((shape) => shape.types.includes('object') && shape.values === undefined);
    const containers: Container[] = [];
    this.#maker.set(
      root,
      objects.map((shape) => [...this.#object(shape, OTHER_NAME, containers), 'call-gap']),
    );
    this.#forms.set(root, { kinds: [containers] });
    // An array hands out what is added to it on the way.
    for (const { name, schema } of this.#open) this.#define(name, schema);
    const spend = (steps: number): void => {
      this.#work.spend(steps);
    };
    const most = Math.max(stacks(root, this.#forms, spend), this.#scalarStacks);
    if (most > MAX_STACKS)
      throw new Unservable('has too many alternatives, or consecutive optional properties, with a common prefix.');
    const lines = this.#maker.rules.lines(root, spend);
    if (!lines) throw new Unservable('allows no value.');
    const text = [...textUpTo(this.#tagPrefix, TEXT, `${TEXT}-end`), `${TEXT}-end ::= ""`];
    const nodes = new NestedNodes(this.#root, this.#shapes, this.#work).all();
    return { kind: 'ok', rule: root, rules: [...JSON_RULES, ...text, ...lines, ...this.#scalars], stacks: most, nodes };
  }

  /** The rule of a value, up to and with the prefix of the tag that closes it. */
  #value(schema: Schema): string {
    const key = saysNothing(schema) ? '' : `${this.#schemaIds.id(schema)}`;
    const known = this.#names.get(key);
    if (known !== undefined) return known;
    const name = this.#maker.newName();
    this.#names.set(key, name);
    this.#open.push({ name, schema: key === '' ? true : schema });
    return name;
  }

  #define(name: string, schema: Schema): void {
    const shapes = this.#shapes.of([schema]);
    const objects: Container[] = [];
    const lists: Container[] = [];
    const alternatives: Alternative[] = [];
    const isFree = (shape: Shape): boolean => shape.values === undefined;
    const arrays = shapes.filter((shape) => isFree(shape) && shape.types.includes('array'));
    for (const shape of shapes.filter((each) => isFree(each) && each.types.includes('object'))) {
      const other = arrays.length > 0 ? OTHER_NAME_BUT_ITEM : OTHER_NAME;
      if (arrays.length > 0) this.#refuseItem(shape);
      alternatives.push([...this.#object(shape, other, objects), ...this.#closing]);
    }
    for (const shape of arrays) alternatives.push(...this.#array(shape, lists));
    alternatives.push(...this.#texts(shapes, schema));
    this.#maker.set(name, alternatives);
    const texts = Array.from({ length: alternatives.length }, () => ({ places: TEXT_STACKS, parts: [], others: [] }));
    // Tags have other names in an object than in an array.
    this.#forms.set(name, { kinds: [objects, lists, texts], texts: listedStrings(shapes) });
  }

  /** What stands between the last element of a value and its closing tag's name. */
  get #closing(): readonly Item[] {
    return ['call-gap', literal(this.#tagPrefix)];
  }

  /** A member of this name would be taken for an array's item. */
  #refuseItem(shape: Shape): void {
    if (listOf(shape, this.#shapes, this.#work).some(({ name }) => name === 'item')) throw unwritable();
  }

  /** The elements of its members. */
  #object(shape: Shape, otherName: string, containers: Container[]): Alternative {
    const list = listOf(shape, this.#shapes, this.#work);
    if (list.length > 0) return this.#members(list, shape.members.least > 0, containers);
    const additional = itemsOf(shape.objects, () => this.#work.spend(1)).map((object) => object.additional);
    const { least, most } = shape.members;
    if (additional.includes(false) || most === 0) return least > 0 ? [{ rule: this.#maker.newRule([]) }] : [];
    if (least > MAX_COUNTED) throw overCounted('minProperties');
    const value = this.#value(allOf(additional));
    const open = literal(`${this.#tagPrefix}<`);
    const one = this.#maker.newRule([['call-gap', open, otherName, '">"', { rule: value }, '"</"', otherName, '">"']]);
    containers.push({ places: 2 + AFTER_VALUE, parts: [], others: [value] });
    return [{ rule: one, least, most: most > MAX_COUNTED ? Infinity : most }];
  }

  /** From the last to the first. `some`: there is one at least. */
  #members(list: ParameterList, some: boolean, containers: Container[]): Alternative {
    let next = this.#maker.newRule([[]]);
    let first = some ? this.#maker.newRule([]) : next;
    let row = 1;
    let most = 1;
    const parts: Property[] = [];
    for (const { name, required, schema } of [...list].reverse()) {
      if (/[<>"=\s]|^$|^\//.test(name)) throw unwritable();
      const value = this.#value(schema);
      parts.unshift({ name, required, rule: value });
      row = required ? 1 : row + 1;
      most = Math.max(most, row);
      const element: Alternative = [...this.#element(name, value), { rule: next }];
      next = this.#maker.newRule([element, ...(required ? [] : [[{ rule: next }]])]);
      first = some ? this.#maker.newRule([element, ...(required ? [] : [[{ rule: first }]])]) : next;
    }
    containers.push({ places: most + AFTER_VALUE, parts, others: [] });
    return [{ rule: first }];
  }

  #element(name: string, value: string): Alternative {
    return ['call-gap', literal(`${this.#tagPrefix}<${name}>`), { rule: value }, literal(`</${name}>`)];
  }

  /** Written from the last item to the first, as schema.ts does. */
  #array(shape: Shape, containers: Container[]): Alternative[] {
    const { least, most } = shape.items;
    if (least > MAX_COUNTED) throw overCounted('minItems');
    if (least > most) return [];
    const arrays = itemsOf(shape.arrays, () => this.#work.spend(1));
    const prefix = Math.max(0, ...arrays.map((each) => each.prefix.length));
    const values = Array.from({ length: prefix + 1 }, (_, i) =>
      this.#value(allOf(arrays.map((each) => each.prefix[i] ?? each.rest))),
    );
    const item = (i: number): Item => ({ rule: this.#maker.newRule([this.#element('item', values[i] ?? '')]) });
    const rest = item(prefix) as Exclude<Item, string>;
    const room = { least: Math.max(0, least - prefix), most: most > MAX_COUNTED ? Infinity : most - prefix };
    let after: readonly Alternative[] = most <= prefix ? [[]] : [[{ ...rest, ...room }]];
    for (let i = Math.min(prefix, most) - 1; i >= 0; i--) {
      const more = [item(i), { rule: this.#maker.newRule(after) }];
      after = i >= least ? [[], more] : [more];
    }
    containers.push({ places: AFTER_VALUE, ...itemMembers(values) });
    return [[{ rule: this.#maker.newRule(after) }, ...this.#closing]];
  }

  /** Strings, and other scalars as JSON has them. */
  #texts(shapes: readonly Shape[], schema: Schema): Alternative[] {
    const strings = shapes.filter(({ types }) => types.includes('string'));
    const free = strings.filter(({ values }) => values === undefined);
    const end = literal(this.#tagPrefix);
    const patterns = free.map((shape) => unquotedText(shape, this.#work, this.#tagPrefix));
    // Where any text may stand, it stands for other scalars too.
    if (free.some((shape, i) => isAnyText(shape, patterns[i]))) return [[`${TEXT}-0`]];
    const values = new EnumValues(this.#shapes, this.#work);
    for (const shape of strings) if (shape.values) values.add({ ...shape, types: ['string'] }, shape.values);
    const texts = values.texts().map((text) => JSON.parse(text) as string);
    const written = texts.filter((text) => !text.includes(this.#tagPrefix));
    const mayBeOther = shapes.some(({ types }) => types.some((type) => type !== 'string'));
    const scalar = mayBeOther ? this.#scalar(schema) : undefined;
    return [
      ...free.flatMap(({ length }, i) => this.#constrainedText(length, patterns[i], end)),
      ...(written.length > 0 ? [[choice(written, (rest) => this.#maker.newRule(rest)), end]] : []),
      ...(scalar === undefined ? [] : [[scalar, 'call-gap', end]]),
    ];
  }

  #constrainedText(length: Range, pattern: TextRule | undefined, end: string): Alternative[] {
    if (pattern === 'none' || length.least > length.most) return [];
    if (pattern) return [[this.#maker.shared(pattern), end]];
    const { least, most } = counted(length);
    const character = `[^${inClass(this.#tagPrefix[0] ?? '')}]`;
    const times = { least, most: most === Infinity ? least : most };
    const text = this.#maker.shared(SharedTexts.of(this.#work).counted(character, times));
    return [[text, most === Infinity ? `${TEXT}-0` : end]];
  }

  #scalar(schema: Schema): string | undefined {
    const type = ['number', 'boolean', 'null'];
    const part = schemaGrammar({ allOf: [schema], type }, `${this.#prefix}-v${this.#made++}`, this.#work, this.#root);
    if (part.kind === 'unservable') {
      if (part.why === 'allows no value.') return undefined;
      throw new Unservable(part.why, part.path);
    }
    for (const rule of part.rules) this.#scalars.add(rule);
    this.#scalarStacks = Math.max(this.#scalarStacks, part.stacks);
    return part.rule;
  }
}

function unwritable(): Unservable {
  return new Unservable('has a parameter whose name cannot be written to this model.');
}
