/**
 * Lets one engine load at a time, in the order of requests: each checks the free memory before it allocates, and two
 * that check at once would both count on the same memory.
 */
export class StartGate {
  /** The first one is loading. */
  readonly #line: (() => void)[] = [];

  /**
   * Calls `begin` when it is this caller's turn, perhaps at once. Call the returned function when the load has ended,
   * or to leave the queue; it is idempotent.
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
