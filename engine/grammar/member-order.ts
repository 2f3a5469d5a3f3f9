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
const PAIR_STEPS = 4;

/** Which members may come next after those so far. */
export class MemberOrder {
  readonly parts: readonly Property[];
  readonly #others: readonly string[];
  readonly #positions: ReadonlyMap<string, number>;
  /** For each position, that of the first required member from there on. */
  readonly #required: readonly number[];

  constructor({ parts, others }: Members) {
    this.parts = parts;
    this.#others = others;
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
    const { length } = this.parts;
    return this.#required[position] === length ? this.#others.map((rule) => [rule, length]) : [];
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
export function* together(
  a: MemberOrder,
  b: MemberOrder,
  mayBeEqual: (x: string, y: string) => boolean,
  spend: (steps: number) => void,
): Generator<readonly [string, string]> {
  const open: (readonly [number, number])[] = [[0, 0]];
  const seen = new Set(['0 0']);
  // An array hands out what is added to it on the way.
  for (const [i, j] of open) {
    spend(PAIR_STEPS * (1 + a.end(i) - i + b.end(j) - j));
    for (const [x, y, ...after] of nextOf(a, i, b, j)) {
      yield [x, y];
      const key = after.join(' ');
      if (seen.has(key) || !mayBeEqual(x, y)) continue;
      seen.add(key);
      open.push(after);
    }
  }
}

/** What may come next in both under one name: the rules of the two values, and the positions after them. */
function nextOf(a: MemberOrder, i: number, b: MemberOrder, j: number): [string, string, number, number][] {
  const named = a.parts
    .slice(i, a.end(i))
    .flatMap(({ name, rule }, k) => b.next(j, name).map(([y, after]) => [rule, y, i + k + 1, after] as const));
  const others = a
    .others(i)
    .flatMap(([x, end]) => [
      ...b.parts
        .slice(j, b.end(j))
        .flatMap(({ name, rule }, k) => (a.has(name) ? [] : [[x, rule, end, j + k + 1] as const])),
      ...b.others(j).map(([y, after]) => [x, y, end, after] as const),
    ]);
  return [...named, ...others].map((each) => [...each]);
}
