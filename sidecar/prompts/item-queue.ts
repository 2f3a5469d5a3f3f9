/**
 * Which item the prompt host works on next, and who is to blame when it dies. Pure: no process, no timers.
 *
 * At most `width` items run, one a worker. When the host dies under one item alone, that one killed it and fails. When several
 * ran, any of them may have: each is tried once more with nothing else running, so the next death names the guilty and the
 * innocent are answered. An item that fell silent is known, fails at once, and those beside it are tried once more likewise.
 * So an item runs twice at most, and no item fails for what another did unless the host cannot be started at all.
 */
export interface Item<T> {
  readonly id: number;
  readonly job: T;
  /** Set once nobody waits for the item any more: its result, or its part in a death, is of no interest. */
  abandoned: boolean;
}

export class ItemQueue<T> {
  readonly #width: number;
  readonly #maxQueued: number;
  readonly #fresh = new Set<Item<T>>();
  /** Those that ran when a host died; they run alone, before any fresh one. */
  readonly #again = new Set<Item<T>>();
  readonly #running = new Map<number, Item<T>>();
  /** The running item that runs alone, for the second time. */
  #alone: Item<T> | undefined;
  #nextId = 0;

  constructor(width: number, maxQueued: number) {
    this.#width = width;
    this.#maxQueued = maxQueued;
  }

  get queued(): number {
    return this.#fresh.size + this.#again.size;
  }

  get running(): number {
    return this.#running.size;
  }

  /** undefined: the queue is full. */
  add(job: T): Item<T> | undefined {
    if (this.#fresh.size >= this.#maxQueued) return undefined;
    const item = { id: this.#nextId++, job, abandoned: false };
    this.#fresh.add(item);
    return item;
  }

  /** The next item to run, now counted as running; undefined: none may start. */
  next(): Item<T> | undefined {
    if (this.#alone !== undefined) return undefined;
    const [again] = this.#again;
    if (again !== undefined) {
      if (this.#running.size > 0) return undefined;
      this.#again.delete(again);
      this.#alone = again;
      return this.#run(again);
    }
    const [fresh] = this.#fresh;
    if (fresh === undefined || this.#running.size >= this.#width) return undefined;
    this.#fresh.delete(fresh);
    return this.#run(fresh);
  }

  /** A running item is answered. undefined: no such item runs. */
  finish(id: number): Item<T> | undefined {
    const item = this.#running.get(id);
    this.#running.delete(id);
    if (this.#alone === item) this.#alone = undefined;
    return item;
  }

  /** Nobody waits for the item any more. Queued, it is taken out; running, it goes on to its end and counts as running. */
  abandon(item: Item<T>): void {
    item.abandoned = true;
    this.#fresh.delete(item);
    this.#again.delete(item);
  }

  /** The host is gone. Returns the items that fail; the other running ones are queued again. `guilty`: fell silent. */
  lost(guilty?: Item<T>): readonly Item<T>[] {
    const ran = [...this.#running.values()];
    const blamed = guilty ?? (ran.length === 1 ? ran[0] : undefined);
    this.#running.clear();
    this.#alone = undefined;
    for (const item of ran) if (item !== blamed && !item.abandoned) this.#again.add(item);
    return blamed === undefined || blamed.abandoned ? [] : [blamed];
  }

  /** Takes all items out, running or not, and returns those that somebody waits for. */
  clear(): readonly Item<T>[] {
    const all = [...this.#running.values(), ...this.#again, ...this.#fresh].filter((item) => !item.abandoned);
    this.#running.clear();
    this.#again.clear();
    this.#fresh.clear();
    this.#alone = undefined;
    return all;
  }

  #run(item: Item<T>): Item<T> {
    this.#running.set(item.id, item);
    return item;
  }
}
