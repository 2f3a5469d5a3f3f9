/** What is opened, used and closed. */
export interface Closeable {
  /** Never rejects. Idempotent. */
  close(): Promise<void>;
  /** Settles once it is of no use any more, whoever ended it. Absent: that shows at the next use. */
  readonly gone?: Promise<unknown>;
}

/**
 * One connection of a sink: opened when it is needed, kept for the next batch, dropped when anything about it is in doubt.
 * It is never opened twice at once, and who waits between tries is the delivery.
 */
export class Connection<T extends Closeable> {
  readonly #open: () => Promise<T>;
  #current: Promise<T> | undefined;

  /** `open` ends within a bound of its own. */
  constructor(open: () => Promise<T>) {
    this.#open = open;
  }

  /** The connection there is, or a new one. Rejects as `open` does; the next call tries again. */
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

  /** Forgets the connection and closes it, also one that is still being opened. Never rejects. */
  async drop(): Promise<void> {
    const dropped = this.#current;
    this.#current = undefined;
    await dropped?.then((connection) => connection.close()).catch(() => undefined);
  }
}

/** Waits for `work` until `signal` is aborted, then rejects with its reason; `work` goes on, and how it ends is nobody's. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let leave = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    leave = () => reject(signal.reason as Error);
    signal.addEventListener('abort', leave);
    if (signal.aborted) leave();
  });
  try {
    // What rejects later has a handler too, since the race had one.
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}
