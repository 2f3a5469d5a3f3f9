/**
 * That nobody wants the work any more, told to whoever does it: what is asked of an AbortSignal, which is one.
 *
 * Requests have an {@link AbortHandle} and not Node's AbortController: what listened to a signal of Node 20's outlives young
 * collections once a full one has been (id-map.ts has what that costs), though nobody holds it.
 */
export interface Signal {
  readonly aborted: boolean;
  /** `fn` is called once, by the abort. Whoever comes after it looks at `aborted`. */
  addEventListener(type: 'abort', fn: () => void): void;
  removeEventListener(type: 'abort', fn: () => void): void;
}

/** A signal and who gives it. */
export class AbortHandle implements Signal {
  #aborted = false;
  #listeners: (() => void)[] = [];

  get aborted(): boolean {
    return this.#aborted;
  }

  /** Calls the listeners in their order. What one of them throws goes past the others to the process. Idempotent. */
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
