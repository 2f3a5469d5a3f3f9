/** Whether every part that a start waits for is ready, or one of them has finally failed. */
export class Readiness {
  readonly #awaited: Set<string>;
  #settle!: { resolve: () => void; reject: (reason: Error) => void };
  readonly #all = new Promise<void>((resolve, reject) => (this.#settle = { resolve, reject }));

  /** `parts`: names, each to be reported ready once. */
  constructor(parts: readonly string[]) {
    this.#awaited = new Set(parts);
    // A failure that is not awaited yet must not be an unhandled rejection.
    this.#all.catch(() => undefined);
    if (this.#awaited.size === 0) this.#settle.resolve();
  }

  up(part: string): void {
    this.#awaited.delete(part);
    if (this.#awaited.size === 0) this.#settle.resolve();
  }

  /** `line` is the error for the operator. Does nothing after all parts were ready. */
  never(line: string): void {
    this.#settle.reject(new Error(line));
  }

  /** Whether every part is ready, or was. */
  get reached(): boolean {
    return this.#awaited.size === 0;
  }

  all(): Promise<void> {
    return this.#all;
  }
}
