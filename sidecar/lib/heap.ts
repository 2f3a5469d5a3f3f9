/** The position of a member in one {@link Heap}. A member of two heaps has two nodes. */
export class HeapNode<T> {
  readonly item: T;
  /** Written only by the heap; -1: not in the heap. */
  at = -1;

  constructor(item: T) {
    this.item = item;
  }
}

/** A binary heap whose members know their positions. Adding, removing and moving: O(log n); reading the first: O(1). */
export class Heap<T> {
  readonly #nodes: HeapNode<T>[] = [];
  readonly #before: (a: T, b: T) => boolean;

  /** `before` is a strict order; equal members are in any order. */
  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before;
  }

  get size(): number {
    return this.#nodes.length;
  }

  get first(): T | undefined {
    return this.#nodes[0]?.item;
  }

  /** Adds a node that is in no heap. */
  add(node: HeapNode<T>): void {
    node.at = this.#nodes.length;
    this.#nodes.push(node);
    this.#up(node);
  }

  /** Removes a node; does nothing if it is not in the heap. */
  remove(node: HeapNode<T>): void {
    const { at } = node;
    if (at < 0) return;
    node.at = -1;
    const last = this.#nodes.pop();
    if (last === undefined || last === node) return;
    this.#put(last, at);
    this.moved(last);
  }

  /** Restores the order after a member's rank changed; does nothing if it is not in the heap. */
  moved(node: HeapNode<T>): void {
    if (node.at < 0) return;
    this.#up(node);
    this.#down(node);
  }

  /** As {@link moved}, for a member whose rank can only have become later, which takes half of the comparisons. */
  movedBack(node: HeapNode<T>): void {
    if (node.at >= 0) this.#down(node);
  }

  /** All members, the first one first, the others in no order. */
  *[Symbol.iterator](): Generator<T> {
    for (const { item } of this.#nodes) yield item;
  }

  /** Calls `fn` with each member, the first one first; faster than the iterator. */
  each(fn: (item: T) => void): void {
    for (const { item } of this.#nodes) fn(item);
  }

  /** The first member and some of those that follow it soon, at most `most`. */
  front(most: number): T[] {
    return this.#nodes.slice(0, most).map(({ item }) => item);
  }

  #up(node: HeapNode<T>): void {
    let { at } = node;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = this.#nodes[above];
      if (parent === undefined || !this.#before(node.item, parent.item)) break;
      this.#put(parent, at);
      at = above;
    }
    this.#put(node, at);
  }

  #down(node: HeapNode<T>): void {
    let { at } = node;
    for (;;) {
      const left = this.#nodes[2 * at + 1];
      if (left === undefined) break;
      const right = this.#nodes[2 * at + 2];
      const child = right !== undefined && this.#before(right.item, left.item) ? right : left;
      if (!this.#before(child.item, node.item)) break;
      const below = child.at;
      this.#put(child, at);
      at = below;
    }
    this.#put(node, at);
  }

  #put(node: HeapNode<T>, at: number): void {
    this.#nodes[at] = node;
    node.at = at;
  }
}
