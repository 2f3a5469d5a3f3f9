/**
 * How many places of a grammar one text can be at. llama.cpp follows all of them at once and asks each about every token,
 * so a schema whose alternatives begin alike again and again, level by level, could take it forever.
 */

/**
 * The most places at once below `root`. `inner`: for each rule, per kind of container, what each of its alternatives of
 * that kind goes on with. Infinity: two alternatives of one rule both come back to it.
 */
export function stacks(root: string, inner: ReadonlyMap<string, readonly (readonly string[])[][]>): number {
  const known = new Map<string, number>();
  const count = (rule: string): number => {
    const before = known.get(rule);
    if (before !== undefined) return before;
    // While it is worked out: one that comes back to itself adds no more than one.
    known.set(rule, 1);
    const kinds = inner.get(rule) ?? [];
    const returning = kinds.map((alternatives) =>
      alternatives.length < 2 ? 0 : alternatives.filter((alternative) => reaches(alternative, rule, inner)).length,
    );
    const sums = kinds.map((alternatives) =>
      alternatives.reduce((sum, alternative) => sum + Math.max(1, ...alternative.map(count)), 0),
    );
    const most = returning.some((times) => times > 1) ? Infinity : Math.max(1, ...sums);
    known.set(rule, most);
    return most;
  };
  return count(root);
}

function reaches(
  from: readonly string[],
  rule: string,
  inner: ReadonlyMap<string, readonly (readonly string[])[][]>,
): boolean {
  const seen = new Set(from);
  // A set hands out what is added to it on the way.
  for (const next of seen) {
    if (next === rule) return true;
    for (const kind of inner.get(next) ?? []) for (const alternative of kind) alternative.forEach((to) => seen.add(to));
  }
  return false;
}
