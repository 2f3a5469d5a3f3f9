/**
 * Lets one engine load at a time, in the order they asked: each looks at the memory that is free before it takes its own,
 * and two that look at once would both find what only one can have.
 */
export class StartGate {
  /** The head of the line is the one that loads. */
  readonly #line: (() => void)[] = [];

  /**
   * Calls `begin` when its turn has come, which may be at once. Call what is returned when the load is over, or to leave
   * the line; it is idempotent.
   */
  enter(begin: () => void): () => void {
    const place = (): void => begin();
    this.#line.push(place);
    if (this.#line.length === 1) begin();
    return () => this.#leave(place);
  }

  #leave(place: () => void): void {
    const at = this.#line.indexOf(place);
    if (at < 0) return;
    this.#line.splice(at, 1);
    if (at === 0) this.#line[0]?.();
  }
}
