import { inClass, literal } from './gbnf.js';
import type { ObjectMarks } from './notation.js';
import { RULE_STEPS } from './rule-maker.js';
import { ITEM_STEPS, type Alternative, type Item } from './rules.js';
import type { Range } from './shape.js';

/** A property that the schema names. */
export interface Property {
  readonly name: string;
  readonly required: boolean;
  /** Of its value. */
  readonly rule: string;
}

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
 * not continue. Such keys hold no escapes, so that no name can be spelled another way. Undefined: the names are too long.
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
