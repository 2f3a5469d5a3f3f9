/** A frame whose arrays are long: each of its bytes goes where it belongs as it comes, so that no single step copies them all. */

/** Puts bytes into the arrays of one message, in the order in which they come. */
export class LargeFrame {
  readonly raw: unknown;
  /** The memory of the arrays, in the frame's order. */
  readonly #targets: readonly Uint8Array[];
  #index = 0;
  /** In the target with this index. */
  #at = 0;

  /** `bytes`: of all arrays. Throws if the targets are not these bytes, side by side. */
  constructor(raw: unknown, targets: readonly { readonly at: number; readonly memory: Uint8Array }[], bytes: number) {
    let end = 0;
    const sorted = [...targets].sort((a, b) => a.at - b.at);
    for (const { at, memory } of sorted) {
      if (at !== end) throw new RangeError('arrays that are not side by side');
      end += memory.length;
    }
    if (end !== bytes) throw new RangeError('arrays of another length');
    this.raw = raw;
    this.#targets = sorted.map(({ memory }) => memory).filter(({ length }) => length > 0);
  }

  get complete(): boolean {
    return this.#index === this.#targets.length;
  }

  /** Takes what it needs of these bytes. Returns how many. */
  take(bytes: Uint8Array): number {
    let taken = 0;
    while (taken < bytes.length) {
      const target = this.#targets[this.#index];
      if (!target) break;
      const count = Math.min(bytes.length - taken, target.length - this.#at);
      target.set(bytes.subarray(taken, taken + count), this.#at);
      taken += count;
      this.#at += count;
      if (this.#at < target.length) continue;
      this.#index += 1;
      this.#at = 0;
    }
    return taken;
  }
}
