/**
 * Which sequence ids are free. The lowest one is handed out first, so that live ids stay dense: llama.cpp packs only
 * neighbouring ids into one decode (shared/engine.md section 1).
 */
export class Sequences {
  readonly #live: boolean[];
  #count = 0;

  constructor(seats: number) {
    this.#live = new Array<boolean>(seats).fill(false);
  }

  /** Sequences handed out. */
  get live(): number {
    return this.#count;
  }

  /** The lowest free id, or undefined when all are taken. The caller gives it back with `free`. */
  take(): number | undefined {
    const id = this.#live.indexOf(false);
    if (id < 0) return undefined;
    this.#live[id] = true;
    this.#count += 1;
    return id;
  }

  /** Gives an id back. Giving back what is not taken throws (a bug). */
  free(id: number): void {
    if (this.#live[id] !== true) throw new Error(`sequence ${id} is not taken`);
    this.#live[id] = false;
    this.#count -= 1;
  }
}
