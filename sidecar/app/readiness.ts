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

/** Follows the first starts of a model's replicas until each was ready or has failed for good. */
export class FirstStarts {
  readonly #awaited: Set<number>;
  #serving = false;
  #settle!: (why: string | undefined) => void;

  /** Resolves with undefined once at least one of them serves, or with why none does, or why the settings of one are wrong. */
  readonly ended = new Promise<string | undefined>((settle) => (this.#settle = settle));

  constructor(replicas: number) {
    this.#awaited = new Set(Array.from({ length: replicas }, (_, index) => index));
  }

  /** A replica is ready, for the first time or again. */
  ready(replica: number): void {
    this.#serving = true;
    if (this.#awaited.delete(replica) && this.#awaited.size === 0) this.#settle(undefined);
  }

  /** A replica is given up. `unfit`: its settings or its file are wrong, so that the whole start has failed. */
  lost(replica: number, why: string, unfit: boolean): void {
    if (!this.#awaited.delete(replica)) return;
    if (unfit || (this.#awaited.size === 0 && !this.#serving)) this.#settle(why);
    else if (this.#awaited.size === 0) this.#settle(undefined);
  }
}
