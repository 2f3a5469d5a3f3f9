/** Whether every part that a start waits for has come up, or one of them never will. */
export class Readiness {
  readonly #awaited: Set<string>;
  #settle!: { resolve: () => void; reject: (reason: Error) => void };
  readonly #all = new Promise<void>((resolve, reject) => (this.#settle = { resolve, reject }));

  /** `parts`: names, each to be reported up once. */
  constructor(parts: readonly string[]) {
    this.#awaited = new Set(parts);
    // A failure nobody waits for yet is not a fault.
    this.#all.catch(() => undefined);
    if (this.#awaited.size === 0) this.#settle.resolve();
  }

  up(part: string): void {
    this.#awaited.delete(part);
    if (this.#awaited.size === 0) this.#settle.resolve();
  }

  /** `line` says what to mend. After all parts were up it does nothing. */
  never(line: string): void {
    this.#settle.reject(new Error(line));
  }

  /** Every part is up, or was. */
  get reached(): boolean {
    return this.#awaited.size === 0;
  }

  all(): Promise<void> {
    return this.#all;
  }
}
