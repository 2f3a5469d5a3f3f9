/**
 * Cancellation: reports to the code that does some work that its result is no longer needed. It is the part of an
 * AbortSignal that is used here.
 *
 * Requests have an {@link AbortHandle} rather than Node's AbortController: in Node 20, listeners of a signal survive
 * young collections once a full collection has run, although they are unreachable (id-map.ts describes the cost).
 * Node 24 does not have that fault (bench/results/v8.md), so the class can go when Node 20 does.
 */
export interface Signal {
  readonly aborted: boolean;
  /** `fn` is called once, on abort. Code that starts later must check `aborted`. */
  addEventListener(type: 'abort', fn: () => void): void;
  removeEventListener(type: 'abort', fn: () => void): void;
}

export class AbortHandle implements Signal {
  #aborted = false;
  #listeners: (() => void)[] = [];

  get aborted(): boolean {
    return this.#aborted;
  }

  /** Calls the listeners in order. An exception of one does not stop the others and is rethrown to the process. Idempotent. */
  abort(): void {
    this.#aborted = true;
    for (const fn of this.#listeners.splice(0)) {
      try {
        fn();
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }

  addEventListener(_type: 'abort', fn: () => void): void {
    if (!this.#aborted) this.#listeners.push(fn);
  }

  removeEventListener(_type: 'abort', fn: () => void): void {
    const at = this.#listeners.indexOf(fn);
    if (at >= 0) this.#listeners.splice(at, 1);
  }
}
