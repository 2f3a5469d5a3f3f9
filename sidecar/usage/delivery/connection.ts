/** A resource that is opened, used and closed. */
export interface Closeable {
  /** Never rejects. Idempotent. */
  close(): Promise<void>;
  /** Settles once it is unusable, by either side. Absent: this is noticed at the next use. */
  readonly gone?: Promise<unknown>;
}

/**
 * One connection of a sink: opened when needed, kept for the next batch, and dropped after any error. It is never
 * opened twice at once. Waits between attempts are the delivery's task.
 */
export class Connection<T extends Closeable> {
  readonly #open: () => Promise<T>;
  #current: Promise<T> | undefined;

  /** `open` must end within a time limit. */
  constructor(open: () => Promise<T>) {
    this.#open = open;
  }

  /** The existing connection, or a new one. Rejects as `open` does; the next call tries again. */
  get(): Promise<T> {
    if (this.#current) return this.#current;
    const opening = this.#open();
    this.#current = opening;
    const forget = (): void => {
      if (this.#current === opening) this.#current = undefined;
    };
    opening.then(({ gone }) => gone?.then(forget, forget), forget);
    return opening;
  }

  /** Closes the connection, also one that is still being opened. Never rejects. */
  async drop(): Promise<void> {
    const dropped = this.#current;
    this.#current = undefined;
    await dropped?.then((connection) => connection.close()).catch(() => undefined);
  }
}

/**
 * Waits for `work` until `signal` is aborted, then rejects with its reason; `work` continues and its result is ignored.
 */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let leave = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    leave = () => reject(signal.reason as Error);
    signal.addEventListener('abort', leave);
    if (signal.aborted) leave();
  });
  try {
    // The race also handles a later rejection.
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}
