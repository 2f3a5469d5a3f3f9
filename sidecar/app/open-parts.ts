/** What a start has opened, so that a start that fails and a drain close the same parts in the same order. */

/**
 * The kinds of parts in the order in which they are closed, which is not the reverse of the order in which they open:
 * the operators' listener opens before the spool is read.
 */
const ORDER = [
  // Requests that still run end with their error while their connections are open.
  'engines',
  'hosts',
  'listeners',
  // While this process still has the spool's lock: no other process may write the balances.
  'billing',
  'spool',
  // Last, since all other parts count metrics.
  'otlp',
] as const;

type Kind = (typeof ORDER)[number];

type Close = () => Promise<void> | void;

/** Owns the parts of one start from the moment that they are open. */
export class OpenParts {
  readonly #parts: { readonly kind: Kind; readonly close: Close }[] = [];
  readonly #closed = new Map<Kind, Promise<void>>();

  /** A part is open. `close` is called once. */
  add(kind: Kind, close: Close): void {
    this.#parts.push({ kind, close });
  }

  /** Closes the parts of one kind at the same time. Rejects with the first fault once all have ended. Idempotent. */
  closeAll(kind: Kind): Promise<void> {
    const known = this.#closed.get(kind);
    if (known) return known;
    const closing = this.#parts.filter((part) => part.kind === kind).map(async ({ close }) => await close());
    const closed = firstFault(closing);
    this.#closed.set(kind, closed);
    return closed;
  }

  /** Closes all parts that are still open, one kind after the other. Rejects with the first fault once all have ended. Idempotent. */
  async close(): Promise<void> {
    const ended: Promise<void>[] = [];
    for (const kind of ORDER) {
      const closed = this.closeAll(kind);
      ended.push(closed);
      await Promise.allSettled([closed]);
    }
    await firstFault(ended);
  }
}

/** Rejects with the first one's reason once all have ended. */
async function firstFault(all: readonly Promise<void>[]): Promise<void> {
  for (const ended of await Promise.allSettled(all)) if (ended.status === 'rejected') throw ended.reason;
}
