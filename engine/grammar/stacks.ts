/**
 * How many places in a grammar one text can be at simultaneously. llama.cpp keeps one stack for each and checks each
 * against every token, so a schema whose alternatives share prefixes at every level could take it forever.
 */
/** The most simultaneous places: each costs time at every token. A schema with more is rejected. */
export const MAX_STACKS = 2048;

/** Places in any JSON value: a number in an array may continue in six ways, end, or be followed by white space. */
const JSON_STACKS = 12;
/** Places after a value beside those of what may follow: the value's own, if it is a number, and white space. */
export const AFTER_VALUE = 9;
/** Places in a text: a character, an escape of two kinds, and its end. */
export const TEXT_STACKS = 4;
/** Levels of recursion for which the alternatives are counted that continue beside a recursive one at each level. */
const MAX_LEVELS = 16;

/** An object, an array or a text as one alternative of a rule, with the values in it. */
export interface Container extends Members {
  /** Places that it has at once itself. */
  readonly places: number;
}

/** The alternatives of a rule. */
export interface ValueForm {
  /** Those that are objects, those that are arrays, and those that are texts. */
  readonly kinds: readonly (readonly Container[])[];
  /** All texts that it allows, where these are listed. */
  readonly texts?: ReadonlySet<string> | undefined;
}

/** The most simultaneous places below `root`. Infinity: the number has no bound. `spend`: as {@link together}. */
export function stacks(root: string, forms: ReadonlyMap<string, ValueForm>, spend: (steps: number) => void): number {
  const counter = new Counter(forms, spend);
  counter.visit(root);
  return counter.known.get(root) ?? Infinity;
}

/** Counts the places of each group of rules that refer to each other, after those of the rules that the group refers to. */
class Counter {
  readonly known = new Map<string, number>();
  readonly #forms: ReadonlyMap<string, ValueForm>;
  readonly #spend: (steps: number) => void;
  readonly #order = new Map<string, number>();
  readonly #open: string[] = [];

  constructor(forms: ReadonlyMap<string, ValueForm>, spend: (steps: number) => void) {
    this.#forms = forms;
    this.#spend = spend;
  }

  /** Tarjan's algorithm: returns the first of the rules in visit that this one refers to. */
  visit(rule: string): number {
    const own = this.#order.size;
    this.#order.set(rule, own);
    this.#open.push(rule);
    let first = own;
    for (const value of new Set(this.#kinds(rule).flat().flatMap(valuesOf))) {
      if (!this.known.has(value)) first = Math.min(first, this.#order.get(value) ?? this.visit(value));
    }
    if (first === own) {
      const group = new Set(this.#open.splice(this.#open.lastIndexOf(rule)));
      const most = this.#count(group);
      for (const each of group) this.known.set(each, most);
    }
    return first;
  }

  /**
   * A text is within one value after another of the group. In the last one it is at as many places as if that were the only one.
   * At each level before, its alternatives that are within a value of no recursion add to these.
   */
  #count(group: ReadonlySet<string>): number {
    const kinds = [...group].flatMap((rule) => this.#kinds(rule));
    // Before it begins it may be at the beginning of each alternative.
    const beginnings = [...group].map((rule) => this.#kinds(rule).flat().length + JSON_STACKS);
    const once = Math.max(...beginnings, ...kinds.map((alternatives) => this.#places(alternatives)));
    const recursive = kinds.flat().filter((each) => valuesOf(each).some((value) => group.has(value)));
    if (recursive.length === 0) return once;
    const beside = kinds.map((alternatives) => this.#beside(alternatives, group));
    return once + Math.max(...recursive.map(({ places }) => places)) + MAX_LEVELS * Math.max(...beside);
  }

  /** The most places in all of these at once. Where that may be too many, only those count that are written alike. */
  #places(alternatives: readonly Container[]): number {
    const whole = alternatives.map((each) => this.#most(each, valuesOf(each)));
    const all = whole.reduce((sum, places) => sum + places, 0);
    if (all <= MAX_STACKS || alternatives.length < 2) return all;
    const within = alternatives.map(() => new Map<number, string[]>());
    for (const [i, j, x, y] of this.#alike(alternatives, () => true)) {
      listed(within[i], j).push(y);
      listed(within[j], i).push(x);
    }
    const beside = within.map((values, i) => {
      values.set(i, [...valuesOf(alternatives[i])]);
      return alternatives.reduce((sum, each, j) => sum + this.#most(each, values.get(j) ?? []), 0);
    });
    return Math.max(...beside);
  }

  /**
   * The most places in other alternatives while one is within a value of the group. Infinity: two can be within one
   * simultaneously, so that the places double at each level.
   */
  #beside(alternatives: readonly Container[], group: ReadonlySet<string>): number {
    const within = new Map<number, string[]>();
    const returns = alternatives.map((each) => valuesOf(each).some((value) => group.has(value)));
    for (const [i, j, x, y] of this.#alike(alternatives, (a, b) => returns[a] === true || returns[b] === true)) {
      if (group.has(x) && group.has(y)) return Infinity;
      if (group.has(x)) listed(within, j).push(y);
      if (group.has(y)) listed(within, i).push(x);
    }
    return alternatives.reduce((sum, each, i) => sum + (within.has(i) ? this.#most(each, listed(within, i)) : 0), 0);
  }

  /** Pairs of alternatives, by their positions, with a value of each that one text may be within. */
  *#alike(
    alternatives: readonly Container[],
    matters: (i: number, j: number) => boolean,
  ): Generator<readonly [i: number, j: number, x: string, y: string]> {
    const orders = alternatives.map((container) => new MemberOrder(container));
    for (const [i, a] of orders.entries()) {
      for (const [j, b] of orders.slice(0, i).entries()) {
        if (!matters(i, j)) continue;
        for (const [x, y] of together(a, b, (p, q) => this.#mayBeEqual(p, q), this.#spend)) yield [i, j, x, y];
      }
    }
  }

  /** The most places within one alternative, of itself or of these values: one that is about to begin adds no more than any JSON. */
  #most({ places }: Container, values: readonly string[]): number {
    return values.reduce((most, value) => Math.max(most, this.known.get(value) ?? JSON_STACKS), places);
  }

  #mayBeEqual(a: string, b: string): boolean {
    const [left, right] = [this.#forms.get(a)?.texts, this.#forms.get(b)?.texts];
    if (left === undefined || right === undefined || a === b) return true;
    this.#spend(left.size);
    return [...left].some((text) => right.has(text));
  }

  #kinds(rule: string): readonly (readonly Container[])[] {
    return this.#forms.get(rule)?.kinds ?? [];
  }
}

function valuesOf(members: Members | undefined): readonly string[] {
  return members ? [...members.parts.map(({ rule }) => rule), ...members.others] : [];
}

/** The list at `key`, which is made where there is none. */
function listed<K>(lists: Map<K, string[]> | undefined, key: K): string[] {
  const list = lists?.get(key) ?? [];
  lists?.set(key, list);
  return list;
}

/** A property that a schema names. */
export interface Property {
  readonly name: string;
  readonly required: boolean;
  readonly rule: string;
}

/** The values of an object or an array, in the order in which they are written. */
export interface Members {
  /** One that is not required may be left out. An array's items have their positions as names. */
  readonly parts: readonly Property[];
  /** The rules of the values of any other names, which come last. */
  readonly others: readonly string[];
}

/** The items of an array, of which the last rule is that of all further ones. */
export function itemMembers(rules: readonly string[]): Members {
  const parts = rules.slice(0, -1).map((rule, i) => ({ name: `${i}`, required: true, rule }));
  return { parts, others: rules.slice(-1) };
}

/** Steps of one place that two are at, and of each member that may follow there. */
const PAIR_STEPS = 8;

/** Which members may come next after those so far. */
export class MemberOrder {
  readonly parts: readonly Property[];
  readonly #others: readonly (readonly [rule: string, after: number])[];
  readonly #positions: ReadonlyMap<string, number>;
  /** For each position, that of the first required member from there on. */
  readonly #required: readonly number[];

  constructor({ parts, others }: Members) {
    this.parts = parts;
    this.#others = others.map((rule) => [rule, parts.length]);
    this.#positions = new Map(parts.map(({ name }, i) => [name, i]));
    const backwards = [parts.length];
    for (const [i, { required }] of [...parts.entries()].reverse()) {
      backwards.push(required ? i : (backwards.at(-1) ?? 0));
    }
    this.#required = backwards.reverse();
  }

  /** The end of the members that may come next at `position`: no required one is left out. */
  end(position: number): number {
    return Math.min(this.parts.length, (this.#required[position] ?? 0) + 1);
  }

  /** What a member of this name may be, if it comes next at `position`, and the position after it. */
  next(position: number, name: string): readonly (readonly [rule: string, after: number])[] {
    const at = this.#positions.get(name);
    if (at === undefined) return this.others(position);
    return at >= position && at < this.end(position) ? [[this.parts[at]?.rule ?? '', at + 1]] : [];
  }

  /** The same of one that has no name of its own. */
  others(position: number): readonly (readonly [rule: string, after: number])[] {
    return this.#required[position] === this.parts.length ? this.#others : [];
  }

  has(name: string): boolean {
    return this.#positions.has(name);
  }
}

/**
 * Pairs of rules whose values the same text may be within, in `a` and in `b`: where both may be written alike up to there.
 * `mayBeEqual`: whether a value of one rule may be one of the other too. `spend` is called with the steps that are about to
 * be done, and may throw to stop.
 */
export function together(
  a: MemberOrder,
  b: MemberOrder,
  mayBeEqual: (x: string, y: string) => boolean,
  spend: (steps: number) => void,
): readonly (readonly [string, string])[] {
  const pairs: (readonly [string, string])[] = [];
  const open: (readonly [number, number])[] = [[0, 0]];
  const seen = new Set([0]);
  const meet = (x: string, y: string, i: number, j: number): void => {
    pairs.push([x, y]);
    const place = i * (b.parts.length + 1) + j;
    if (seen.has(place) || !mayBeEqual(x, y)) return;
    seen.add(place);
    open.push([i, j]);
  };
  // An array hands out what is added to it on the way.
  for (const [i, j] of open) {
    spend(PAIR_STEPS * (1 + a.end(i) - i + b.end(j) - j));
    for (let at = i; at < a.end(i); at++) {
      const { name = '', rule = '' } = a.parts[at] ?? {};
      for (const [y, after] of b.next(j, name)) meet(rule, y, at + 1, after);
    }
    for (const [x, end] of a.others(i)) {
      for (let at = j; at < b.end(j); at++) {
        const { name = '', rule = '' } = b.parts[at] ?? {};
        if (!a.has(name)) meet(x, rule, end, at + 1);
      }
      for (const [y, after] of b.others(j)) meet(x, y, end, after);
    }
  }
  return pairs;
}
