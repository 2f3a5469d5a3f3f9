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

/** An object, an array or a text as one alternative of a rule. */
export interface Container {
  /** Places that it has at once itself. */
  readonly places: number;
  /** Rules of the values in it. */
  readonly values: readonly string[];
}

/** For each rule, its alternatives that are objects, those that are arrays, and those that are texts. */
export type Containers = ReadonlyMap<string, readonly (readonly Container[])[]>;

/**
 * The most simultaneous places below `root`. Infinity: two alternatives of one rule both return to it. `spend` is
 * called with the values that are about to be visited, and may throw to stop.
 */
export function stacks(root: string, inner: Containers, spend: (steps: number) => void = () => undefined): number {
  const known = new Map<string, number>();
  const count = (rule: string): number => {
    const before = known.get(rule);
    if (before !== undefined) return before;
    // While it is computed: a recursion adds no more than that.
    known.set(rule, JSON_STACKS);
    const kinds = inner.get(rule) ?? [];
    const returning = kinds.map((alternatives) =>
      alternatives.length < 2 ? 0 : alternatives.filter(({ values }) => reaches(values, rule, inner, spend)).length,
    );
    const sums = kinds.map((alternatives) =>
      alternatives.reduce(
        (sum, { places, values }) => sum + values.reduce((most, v) => Math.max(most, count(v)), places),
        0,
      ),
    );
    // Before it begins it may be at the beginning of each alternative.
    const beginnings = kinds.reduce((sum, { length }) => sum + length, 0);
    const most = returning.some((times) => times > 1) ? Infinity : Math.max(beginnings + JSON_STACKS, ...sums);
    known.set(rule, most);
    return most;
  };
  return count(root);
}

function reaches(from: readonly string[], rule: string, inner: Containers, spend: (steps: number) => void): boolean {
  spend(from.length);
  const seen = new Set(from);
  // A set hands out what is added to it on the way.
  for (const next of seen) {
    if (next === rule) return true;
    for (const { values } of (inner.get(next) ?? []).flat()) {
      spend(1 + values.length);
      values.forEach((value) => seen.add(value));
    }
  }
  return false;
}
