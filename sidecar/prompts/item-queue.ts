import { Heap, HeapNode } from '../heap.js';

/**
 * Which item the prompt host works on next, and who is to blame when it dies. Pure: no process, no timers.
 *
 * At most `width` items run, one a worker, in the order they were sent; up to `ahead` more are sent already, so that no worker
 * waits for the way there and back. When the host dies under one item alone, that one killed it and fails. When several
 * ran, any of them may have: each is tried once more with nothing else running, so the next death names the guilty and the
 * innocent are answered. An item that fell silent is known, fails at once, and those beside it are tried once more likewise.
 * So an item runs twice at most, and no item fails for what another did unless the host cannot be started at all.
 */
export interface Item<T> {
  /** Rises with every item. */
  readonly id: number;
  readonly job: T;
  /** Where it waits, if it does. */
  readonly place: HeapNode<Item<T>>;
  /** Set once nobody waits for the item any more: its result, or its part in a death, is of no interest. */
  abandoned: boolean;
}

export class ItemQueue<T> {
  readonly #width: number;
  readonly #ahead: number;
  readonly #maxQueued: number;
  readonly #fresh = new Heap<Item<T>>(first);
  /** Those that ran when a host died; they run alone, before any fresh one. */
  readonly #again = new Heap<Item<T>>(first);
  /** Those sent and not answered, in their order; `width` and `ahead` bound them. */
  readonly #sent: Item<T>[] = [];
  /** The running item that runs alone, for the second time. */
  #alone: Item<T> | undefined;
  #nextId = 0;

  constructor(width: number, maxQueued: number, ahead = 0) {
    this.#width = width;
    this.#ahead = ahead;
    this.#maxQueued = maxQueued;
  }

  get queued(): number {
    return this.#fresh.size + this.#again.size;
  }

  get running(): number {
    return Math.min(this.#sent.length, this.#width);
  }

  /** Those that run now, first sent first. */
  runs(): readonly Item<T>[] {
    return this.#sent.slice(0, this.#width);
  }

  /** undefined: the queue is full. */
  add(job: T): Item<T> | undefined {
    if (this.#fresh.size >= this.#maxQueued) return undefined;
    const item = new Waiting(this.#nextId++, job);
    this.#fresh.add(item.place);
    return item;
  }

  /** The next item to send, now counted as sent; undefined: none may go. */
  next(): Item<T> | undefined {
    if (this.#alone !== undefined) return undefined;
    const again = this.#again.first;
    if (again !== undefined) {
      if (this.#sent.length > 0) return undefined;
      this.#again.remove(again.place);
      this.#alone = again;
      return this.#send(again);
    }
    const fresh = this.#fresh.first;
    if (fresh === undefined || this.#sent.length >= this.#width + this.#ahead) return undefined;
    this.#fresh.remove(fresh.place);
    return this.#send(fresh);
  }

  /** An item that was sent is answered. undefined: there is no such item. */
  finish(id: number): Item<T> | undefined {
    const at = this.#sent.findIndex((item) => item.id === id);
    const [item] = at < 0 ? [] : this.#sent.splice(at, 1);
    if (this.#alone === item) this.#alone = undefined;
    return item;
  }

  /** Nobody waits for the item any more. Queued, it is taken out; sent, it goes on to its end and counts as sent. */
  abandon(item: Item<T>): void {
    item.abandoned = true;
    this.#fresh.remove(item.place);
    this.#again.remove(item.place);
  }

  /** The host is gone. Returns the items that fail; the other sent ones are queued again. `guilty`: fell silent. */
  lost(guilty?: Item<T>): readonly Item<T>[] {
    const ran = this.runs();
    const blamed = guilty ?? (ran.length === 1 ? ran[0] : undefined);
    // Those sent ahead had not begun: they are as they were.
    for (const item of this.#sent.splice(0)) {
      const waits = ran.includes(item) ? this.#again : this.#fresh;
      if (item !== blamed && !item.abandoned) waits.add(item.place);
    }
    this.#alone = undefined;
    return blamed === undefined || blamed.abandoned ? [] : [blamed];
  }

  /** Takes all items out, sent or not, and returns those that somebody waits for. */
  clear(): readonly Item<T>[] {
    const all = [...this.#sent.splice(0), ...this.#again, ...this.#fresh].filter((item) => !item.abandoned);
    for (const item of all) this.abandon(item);
    this.#alone = undefined;
    return all;
  }

  #send(item: Item<T>): Item<T> {
    this.#sent.push(item);
    return item;
  }
}

class Waiting<T> implements Item<T> {
  readonly id: number;
  readonly job: T;
  readonly place: HeapNode<Item<T>> = new HeapNode(this);
  abandoned = false;

  constructor(id: number, job: T) {
    this.id = id;
    this.job = job;
  }
}

function first<T>(a: Item<T>, b: Item<T>): boolean {
  return a.id < b.id;
}
