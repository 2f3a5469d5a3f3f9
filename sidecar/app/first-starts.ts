/** What follows once each replica of a model was ready or has failed for good. */
export interface StartEnd {
  /** At least one of them serves. */
  up(): void;
  /** None serves, or the settings of one are wrong. */
  never(why: string): void;
}

/** Follows the first starts of a model's replicas. */
export class FirstStarts {
  readonly #awaited: Set<number>;
  readonly #end: StartEnd;
  #serving = false;

  constructor(replicas: number, end: StartEnd) {
    this.#awaited = new Set(Array.from({ length: replicas }, (_, index) => index));
    this.#end = end;
  }

  /** A replica is ready, for the first time or again. */
  ready(replica: number): void {
    this.#serving = true;
    if (this.#awaited.delete(replica) && this.#awaited.size === 0) this.#end.up();
  }

  /** A replica is given up. `unfit`: its settings or its file are wrong, so that the whole start has failed. */
  lost(replica: number, why: string, unfit: boolean): void {
    if (!this.#awaited.delete(replica)) return;
    if (unfit || (this.#awaited.size === 0 && !this.#serving)) this.#end.never(why);
    else if (this.#awaited.size === 0) this.#end.up();
  }
}
