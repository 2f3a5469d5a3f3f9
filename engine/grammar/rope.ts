/**
 * A list that is concatenated without copying: combinations of schemas concatenate the same lists repeatedly, and only
 * the few that remain are read.
 */
export type Rope<T> =
  undefined | { readonly item: T } | { readonly left: NonNullable<Rope<T>>; readonly right: NonNullable<Rope<T>> };

/** The items of `left`, then those of `right`. */
export function join<T>(left: Rope<T>, right: Rope<T>): Rope<T> {
  if (left === undefined) return right;
  return right === undefined ? left : { left, right };
}

/** The items in order. `step` is called before each part is visited; a rope has at most two parts per item. */
export function itemsOf<T>(rope: Rope<T>, step: () => void): T[] {
  const items: T[] = [];
  const open = rope === undefined ? [] : [rope];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    step();
    if ('item' in next) items.push(next.item);
    else open.push(next.right, next.left);
  }
  return items;
}
