/** The order in which the values of an object or an array are written, and how far two of them are written alike. */
import type { Property } from './object-rules.js';

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
