/**
 * A map by number for entries that come and go with requests. V8's Map and Set are unsuitable: after every few insertions and deletions the
 * table is rebuilt, and the old table keeps a link to the new one and its own entries. Once a full collection has moved one of these tables
 * out of the young generation, all later tables and all their former entries stay alive until the next full collection. Young collections
 * then copy all of them and pause the process for milliseconds each (test/sidecar/lib/id-map.test.ts shows it). A plain object with numeric
 * keys has no such links. Node 24 still has that fault (bench/results/v8.md).
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

  /** Returns false if there was no such entry. */
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

/** Sets an entry of a map that keeps the newest `most` ones: the last one set counts as the newest. */
export function setNewest<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > most && oldest !== undefined) map.delete(oldest);
}
