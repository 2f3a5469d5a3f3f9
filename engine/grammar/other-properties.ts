/** Rules of the properties of an object that its schema does not name: their keys, and what they are. */
import { extraKeyRules, type Others } from './object-rules.js';
import type { RuleMaker } from './rule-maker.js';
import { counted, keysOf, textForm } from './scalar-rules.js';
import type { All, ObjectShape, Schema, Shape } from './shape.js';
import { SharedTexts } from './shared-texts.js';
import { TEXT_STACKS } from './stacks.js';
import { textAutomaton, isText, type TextForm } from './text-automaton.js';
import type { WorkBudget } from './work.js';

/**
 * Patterns of one object whose names are enforced; with more, a further property may satisfy any of the patterns'
 * schemas.
 */
const MAX_PATTERNS = 4;

const ANY_TEXT = { patterns: [], formats: [], least: 0, most: Infinity } as const;

/** The functions of the compiler that these rules need. */
export interface ValueRules {
  /** The rule of a value that satisfies all of these. */
  value(all: All): string;
  /** Their alternatives. */
  shapes(all: All): readonly Shape[];
}

export interface OtherProperties {
  readonly others: readonly Others[];
  /** Places in a key. */
  readonly places: number;
}

/** `declared`: names that have rules of their own, which these keys are none of. */
export function otherProperties(
  objects: readonly ObjectShape[],
  declared: readonly string[],
  maker: RuleMaker,
  rules: ValueRules,
): OtherProperties {
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
    const enforced = byPattern(only, { ...ANY_TEXT, ...allowed, without: declared }, maker, (schema) =>
      value((object) => (object === only ? schema : object.additional)),
    );
    if (enforced) return { others: enforced, places: 12 * enforced.length };
  }
  if (objects.some(({ additional }) => additional === false)) return { others: [], places: TEXT_STACKS };
  const keys = allowed && keyRule({ ...allowed, without: declared }, maker);
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

/**
 * For each pattern, names that match it alone, and those that match none. Undefined: some patterns are not enforced.
 */
function byPattern(
  { byPattern: all, unmatched }: ObjectShape,
  names: TextForm,
  maker: RuleMaker,
  value: (schema: Schema) => string,
): Others[] | undefined {
  const patterns = all.map(([pattern]) => pattern);
  const forms: (readonly [TextForm, Schema])[] = all.map(([pattern, schema]) => [
    { ...names, patterns: [...names.patterns, pattern], unlike: patterns.filter((other) => other !== pattern) },
    schema,
  ]);
  forms.push([{ ...names, unlike: patterns }, unmatched]);
  const others: Others[] = [];
  for (const [form, schema] of forms) {
    if (schema === false) continue;
    const key = keyRule(form, maker);
    if (key === undefined) return undefined;
    if (key !== '') others.push({ key: { rule: key }, rule: value(schema) });
  }
  return others;
}

/** The names that a schema of names allows, as a list or a form; undefined: any, as far as it is enforced. */
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
