/** Leases of several seats, at most one for two seats: those that were not asked for one yet, and those that owe one. */
export class WideLeases {
  readonly #wide = new Set<() => void>();
  readonly #asked = new Set<() => void>();

  /** `recall` is called once others wait, unless it is forgotten before. */
  watch(recall: () => void): void {
    this.#asked.delete(recall);
    this.#wide.add(recall);
  }

  forget(recall: () => void): void {
    this.#asked.delete(recall);
    this.#wide.delete(recall);
  }

  /** Asks as many for a seat as requests wait for one. */
  recall(waiting: number): void {
    for (const recall of this.#wide) {
      if (this.#asked.size >= waiting) return;
      this.#wide.delete(recall);
      this.#asked.add(recall);
      recall();
    }
  }
}
