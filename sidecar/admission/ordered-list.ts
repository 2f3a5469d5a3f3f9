/** What a member of a {@link OrderedList} carries: its neighbours live in the member itself, so nothing is searched or allocated. */
export interface ListMember<T extends ListMember<T>> {
  /** Its rank in the line, lowest first. Changes only while it is in none. */
  readonly order: number;
  /** Written by the line alone. */
  list: OrderedList<T> | undefined;
  prev: T | undefined;
  next: T | undefined;
}

/**
 * An intrusive doubly linked list, ordered by `order`. Taking the first and removing any member are O(1). Inserting is
 * O(members with a higher order), which is 0 for a newcomer and few for one who was overtaken.
 */
export class OrderedList<T extends ListMember<T>> {
  #head: T | undefined;
  #tail: T | undefined;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get first(): T | undefined {
    return this.#head;
  }

  get last(): T | undefined {
    return this.#tail;
  }

  /** Puts a member of no line into its place. */
  insert(member: T): void {
    let before = this.#tail;
    while (before !== undefined && before.order > member.order) before = before.prev;
    const after = before === undefined ? this.#head : before.next;
    member.list = this;
    member.prev = before;
    member.next = after;
    if (before === undefined) this.#head = member;
    else before.next = member;
    if (after === undefined) this.#tail = member;
    else after.prev = member;
    this.#length += 1;
  }

  /** Takes a member out; one of another line or of none is left alone. */
  remove(member: T): void {
    if (member.list !== this) return;
    if (member.prev === undefined) this.#head = member.next;
    else member.prev.next = member.next;
    if (member.next === undefined) this.#tail = member.prev;
    else member.next.prev = member.prev;
    member.list = member.prev = member.next = undefined;
    this.#length -= 1;
  }
}
