/** The bytes of one buffer, and of one read of uSockets. */
export const PART_BYTES = 512 * 1024;

/** More than this waits only where a caller sends faster than its bytes are copied here, so that uSockets does not stop. */
export const MUCH_BYTES = 12 * 1024 * 1024;

/** What waits at most. */
const MOST_BYTES = 20 * 1024 * 1024;

/** Buffers that are kept though nothing waits in them: 4 MiB. */
const SPARE_PARTS = 8;

/** The part of the budget of all bodies that it has; `take` returns false if there is no room. */
interface Budget {
  take(bytes: number, whole: number): boolean;
  release(bytes: number): void;
}

/**
 * What waits of a body that is read as it arrives, in buffers that are filled again and again, since memory that was never written takes
 * longer to write.
 *
 * uSockets goes on reading a paused connection as long as each read fills its 512 KiB: so all that the kernel has received (some MiB,
 * bounded by `net.ipv4.tcp_rmem`) arrives at once, and from a sender on the same host the whole body may. Between two of these reads Node
 * runs promises and ticks, but no timer and no callback of the disk. The reader of such a body therefore handles each part without waiting
 * for the disk; then no more than MOST_BYTES wait. If more would, the body is refused.
 */
export class StreamedParts {
  readonly #budget: Budget;
  readonly #filled: { readonly buffer: Uint8Array; length: number }[] = [];
  readonly #spare: Uint8Array[] = [];

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  /** Copies a chunk. Returns false if there is no room for all of it. */
  add(chunk: Uint8Array): boolean {
    for (let rest = chunk; rest.length > 0;) {
      let last = this.#filled.at(-1);
      if (last === undefined || last.length === PART_BYTES) {
        const buffer = this.#spare.pop() ?? this.#newBuffer();
        if (buffer === undefined) return false;
        last = { buffer, length: 0 };
        this.#filled.push(last);
      }
      const part = rest.subarray(0, PART_BYTES - last.length);
      last.buffer.set(part, last.length);
      last.length += part.length;
      rest = rest.subarray(part.length);
    }
    return true;
  }

  /** A copy of the oldest part, which is overwritten here; undefined if none waits. */
  take(): Uint8Array | undefined {
    const { buffer, length } = this.#filled.shift() ?? {};
    const piece = buffer?.slice(0, length);
    buffer?.fill(0, 0, length);
    if (buffer && this.#spare.push(buffer) > SPARE_PARTS) {
      this.#spare.pop();
      this.#budget.release(PART_BYTES);
    }
    return piece;
  }

  /** Nothing of it is needed any more. */
  free(): void {
    this.#budget.release((this.#filled.length + this.#spare.length) * PART_BYTES);
    for (const { buffer, length } of this.#filled) buffer.fill(0, 0, length);
  }

  #newBuffer(): Uint8Array | undefined {
    const isRoom = (this.#filled.length + 1) * PART_BYTES <= MOST_BYTES && this.#budget.take(PART_BYTES, MOST_BYTES);
    return isRoom ? new Uint8Array(PART_BYTES) : undefined;
  }
}
