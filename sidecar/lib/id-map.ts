/**
 * What comes and goes with requests, by a number of its own. V8's Map and Set are not for that: each time such a table is
 * laid anew, which adding and deleting brings about every few entries, the old one keeps a link to the new one and the
 * entries it had. As soon as a full collection has moved one of them out of the young generation, all the tables after
 * it, and whatever was ever in them, live until the next full one: young collections that copy all of it, and stop the
 * process for milliseconds each (test/sidecar/lib/id-map.test.ts shows it). A plain object with numbers for keys has no such
 * links.
 */
export class IdMap<T> {
  #entries: Record<number, T> = {};
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(key: number): T | undefined {
    return this.#entries[key];
  }

  set(key: number, value: T): void {
    if (!(key in this.#entries)) this.#size += 1;
    this.#entries[key] = value;
  }

  /** False: there was none. */
  delete(key: number): boolean {
    if (!(key in this.#entries)) return false;
    Reflect.deleteProperty(this.#entries, key);
    this.#size -= 1;
    return true;
  }

  clear(): void {
    this.#entries = {};
    this.#size = 0;
  }

  /** A copy, lowest key first. */
  values(): T[] {
    return Object.values(this.#entries);
  }
}
