/** Depth up to which schemas are compared; deeper ones count as different. */
const MAX_DEPTH = 64;

/**
 * Finds equal schemas, which become one rule of a grammar, since each rule costs time at every token. Each schema is
 * visited once.
 */
export class SchemaIds {
  readonly #ids = new Map<string, number>();
  /** Of objects and arrays. */
  readonly #known = new Map<unknown, number>();
  #others = 0;

  /** The same number for values that are equal as JSON, keys in the same order. */
  id(value: unknown): number {
    return this.#id(value, 0);
  }

  #id(value: unknown, depth: number): number {
    if (typeof value !== 'object' || value === null) return this.#of(JSON.stringify(value));
    const known = this.#known.get(value);
    if (known !== undefined) return known;
    const id = this.#of(depth > MAX_DEPTH ? `another ${this.#others++}` : this.#text(value, depth));
    this.#known.set(value, id);
    return id;
  }

  /** By the numbers of what is in it. */
  #text(value: object, depth: number): string {
    if (Array.isArray(value)) return `[${value.map((each) => this.#id(each, depth + 1)).join()}]`;
    const entries = Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}:${this.#id(each, depth + 1)}`);
    return `{${entries.join()}}`;
  }

  #of(text: string): number {
    const id = this.#ids.get(text) ?? this.#ids.size;
    this.#ids.set(text, id);
    return id;
  }
}
