import { inClass, literal } from './gbnf.js';
import type { ObjectMarks } from './notation.js';
import { RULE_STEPS, ITEM_STEPS, type Alternative, type Item, type RuleMaker } from './rules.js';
import type { Range, All, ObjectShape, Schema, Shape } from './shape.js';
import { counted, keysOf, textForm } from './scalar-rules.js';
import { SharedTexts } from './text-rules.js';
import { TEXT_STACKS, type Property } from './stacks.js';
import { textAutomaton, isText, type TextForm } from './text-automaton.js';
import type { WorkBudget } from './work.js';

/** All others: their keys, and the rule of their values. */
export interface Others {
  readonly key: Item;
  readonly rule: string;
}

/** Makes a rule and returns its name. */
type NewRule = (alternatives: readonly Alternative[]) => string;

/** Characters of one object's declared names over which no other property is offered: each costs a rule. */
const MAX_NAME_CHARACTERS = 1024;

/** Steps of each declared property but the first, at least: a rule of one alternative of six items. */
export const LEAST_PROPERTY_STEPS = RULE_STEPS * 2 + ITEM_STEPS * 7;

/** Counted properties. Beyond it: at least this many, or any number. */
const MAX_MEMBERS = 256;

/**
 * What stands between an object's braces: the properties in order, each optional one there or not, then any number of
 * others. For each place in that order one rule to continue after a property (with a comma), and one for when there is none
 * yet; written from the last place to the first. `count`: of all properties; where there are declared ones it is only held
 * that there is one. Throws Unservable where the notation cannot write a name.
 */
export function objectRules(
  { comma, member, key: keyOf }: ObjectMarks,
  properties: readonly Property[],
  others: readonly Others[],
  newRule: NewRule,
  count: Range,
): Item {
  const declared = properties.length > 0;
  const least = Math.min(count.least, declared ? 1 : MAX_MEMBERS);
  const most = declared || count.most > MAX_MEMBERS ? Infinity : count.most;
  const other = others.length > 0 && most > 0 ? newRule(others.map(({ key, rule }) => member(key, { rule }))) : '';
  const more = other === '' ? '' : newRule([[...comma, { rule: other }]]);
  let after = newRule([more === '' ? [] : [{ rule: more, least: 0 }]]);
  const leader = properties.findIndex(({ required }) => required);
  // There may be none before this place: up to the first one that is required, which is written for itself.
  const leading = leader < 0 ? properties.length : leader;
  let first = '';
  if (leader < 0) {
    const counted = { rule: more, least: Math.max(0, least - 1), most: most - 1 };
    first = newRule([
      ...(least === 0 ? [[]] : []),
      ...(other === '' ? [] : [[{ rule: other }, ...(most === 1 ? [] : [counted])]]),
    ]);
  }
  for (let i = properties.length - 1; i >= 0; i--) {
    const { name, required, rule } = properties[i] as Property;
    const written = [...member(keyOf(name), { rule }), { rule: after }];
    if (i <= leading) first = newRule([written, ...(required ? [] : [[{ rule: first }]])]);
    if (i > 0) after = newRule([[...comma, ...written], ...(required ? [] : [[{ rule: after }]])]);
  }
  return { rule: first };
}

/** One character of a key that is written as it is. */
const PLAIN = String.raw`\\"\x00-\x1F\x7F`;

interface Node {
  /** A declared name ends here. */
  ends: boolean;
  readonly next: Map<string, Node>;
}

/**
 * The rule of a key, quotes included, that is none of these names: the tree of the names, left at any place where they do
 * not continue. Such keys hold no escapes, so that no name can be spelled another way. Undefined if the names are too long.
 */
export function extraKeyRules(names: readonly string[], newRule: NewRule): string | undefined {
  const root: Node = { ends: false, next: new Map() };
  const spelledPlainly = names.filter((name) => JSON.stringify(name) === `"${name}"` && !name.includes('\x7f'));
  if (spelledPlainly.reduce((sum, name) => sum + name.length, 0) > MAX_NAME_CHARACTERS) return undefined;
  if (names.length === 0) return 'json-string';
  for (const name of spelledPlainly) {
    let node = root;
    for (const character of name) {
      let next = node.next.get(character);
      if (!next) node.next.set(character, (next = { ends: false, next: new Map() }));
      node = next;
    }
    node.ends = true;
  }
  return newRule([['"\\""', { rule: keyFrom(root, newRule) }]]);
}

/** Depth: the longest name, so at most {@link MAX_NAME_CHARACTERS}. */
function keyFrom(node: Node, newRule: NewRule): string {
  const onward = [...node.next].map(([character, next]) => [literal(character), { rule: keyFrom(next, newRule) }]);
  const elsewhere = `[^${PLAIN}${[...node.next.keys()].map(inClass).join('')}] json-plain* "\\""`;
  return newRule([...onward, [elsewhere], ...(node.ends ? [] : [['"\\""']])]);
}

/** Patterns of one object whose names are enforced; with more, a further property may satisfy any of the patterns' schemas. */
const MAX_PATTERNS = 4;

const ANY_TEXT = { patterns: [], formats: [], least: 0, most: Infinity } as const;

/** The functions of the compiler that these rules need. */
export interface ValueRules {
  /** The rule of a value that satisfies all of these. */
  value(all: All): string;
  shapes(all: All): readonly Shape[];
}

/**
 * Rules of the properties that no schema of an object names: their keys, and their values. `declared`: names that have rules of their
 * own, which these keys are none of.
 */
export function otherProperties(
  objects: readonly ObjectShape[],
  declared: readonly string[],
  maker: RuleMaker,
  rules: ValueRules,
): { readonly others: readonly Others[]; readonly places: number } {
  const patterned = objects.filter(({ byPattern }) => byPattern.length > 0);
  const value = (of: (object: ObjectShape) => Schema): string => rules.value(objects.map(of));
  const names = namesOf(objects);
  const allowed = names.length > 0 ? namesForm(rules.shapes(names), maker) : undefined;
  if (Array.isArray(allowed)) {
    const listed = allowed.filter((name) => !declared.includes(name));
    return { others: listedProperties(listed, objects, maker, rules), places: Math.max(12, listed.length) };
  }
  const [only, ...more] = patterned;
  if (only && more.length === 0 && only.byPattern.length <= MAX_PATTERNS) {
    const enforced = byPattern(only, { ...ANY_TEXT, ...allowed, excludedTexts: declared }, maker, (schema) =>
      value((object) => (object === only ? schema : object.additional)),
    );
    if (enforced) return { others: enforced, places: 12 * enforced.length };
  }
  if (objects.some(({ additional }) => additional === false)) return { others: [], places: TEXT_STACKS };
  const keys = allowed && keyRule({ ...allowed, excludedTexts: declared }, maker);
  if (keys !== undefined) {
    return {
      others: keys === '' ? [] : [{ key: { rule: keys }, rule: value(({ additional }) => additional) }],
      places: 12,
    };
  }
  let places = TEXT_STACKS;
  const key = extraKeyRules(declared, (alternatives) => {
    places = Math.max(places, alternatives.length);
    return maker.newRule(alternatives);
  });
  return {
    others: key === undefined ? [] : [{ key: { rule: key }, rule: value(({ additional }) => additional) }],
    places,
  };
}

/** What the patterns of an object add to a property of this name. */
export function matching({ byPattern }: ObjectShape, name: string, { work }: RuleMaker): readonly Schema[] {
  return byPattern.flatMap(([pattern, schema]) =>
    isText(name, { ...ANY_TEXT, patterns: [pattern] }, work) && isEnforced(pattern, work) ? [schema] : [],
  );
}

function isEnforced(pattern: string, work: WorkBudget): boolean {
  return textAutomaton({ ...ANY_TEXT, patterns: [pattern] }, work) !== undefined;
}

/** What an object says of a property of this name that it does not declare. */
function undeclared(object: ObjectShape, name: string, maker: RuleMaker): readonly Schema[] {
  const { byPattern, additional, unmatched } = object;
  const found = matching(object, name, maker);
  const matchesNone = byPattern.length > 0 && found.length === 0;
  return matchesNone && byPattern.every(([pattern]) => isEnforced(pattern, maker.work))
    ? [unmatched]
    : [additional, ...found];
}

/** What these objects say of the names of their properties. */
export function namesOf(objects: readonly ObjectShape[]): readonly Schema[] {
  return objects.flatMap(({ names }) => (names === undefined ? [] : [names]));
}

/** Properties of these names: those of one rule together. */
function listedProperties(
  names: readonly string[],
  objects: readonly ObjectShape[],
  maker: RuleMaker,
  rules: ValueRules,
): readonly Others[] {
  const byRule = new Map<string, string[]>();
  for (const name of names) {
    const all = objects.flatMap((object) => undeclared(object, name, maker));
    if (all.includes(false)) continue;
    const rule = rules.value(all);
    byRule.set(rule, [...(byRule.get(rule) ?? []), name]);
  }
  return [...byRule].map(([rule, all]) => ({ key: { rule: keysOf(all, maker) }, rule }));
}

/** For each pattern, names that match it alone, and those that match none. Undefined if some patterns are not enforced. */
function byPattern(
  { byPattern: all, unmatched }: ObjectShape,
  names: TextForm,
  maker: RuleMaker,
  value: (schema: Schema) => string,
): Others[] | undefined {
  const patterns = all.map(([pattern]) => pattern);
  const forms: (readonly [TextForm, Schema])[] = all.map(([pattern, schema]) => [
    {
      ...names,
      patterns: [...names.patterns, pattern],
      excludedPatterns: patterns.filter((other) => other !== pattern),
    },
    schema,
  ]);
  forms.push([{ ...names, excludedPatterns: patterns }, unmatched]);
  const others: Others[] = [];
  for (const [form, schema] of forms) {
    if (schema === false) continue;
    const key = keyRule(form, maker);
    if (key === undefined) return undefined;
    if (key !== '') others.push({ key: { rule: key }, rule: value(schema) });
  }
  return others;
}

/** The names that a schema of names allows, as a list or a form; undefined if any may come, as far as it is enforced. */
function namesForm(shapes: readonly Shape[], maker: RuleMaker): string[] | TextForm | undefined {
  const [shape, ...more] = shapes.filter(({ types }) => types.includes('string'));
  if (shape === undefined) return [];
  if (more.length > 0) return undefined;
  if (shape.values) return [...shape.values.values()].filter((value) => typeof value === 'string');
  const form = counted(textForm(shape, maker.work));
  if (form.least > form.most) return [];
  const says = form.patterns.length + form.formats.length > 0 || form.least > 0 || form.most < Infinity;
  return says ? form : undefined;
}

function keyRule(form: TextForm, maker: RuleMaker): string | undefined {
  const text = SharedTexts.of(maker.work).json(form);
  if (text === undefined || text === 'none') return text && '';
  return maker.newRule([['"\\""', maker.needed(text)]]);
}
