/**
 * Delivers usage events to a JetStream stream, one message each under its account's subject.
 *
 *     batch:  a1 b1 a2 c1 a3 b2        a1 ──ack──> a2 ──ack──> a3
 *                                      b1 ──ack──> b2              at most WINDOW accounts at once
 *                                      c1
 *
 * An event is published once the previous one of the same account is acknowledged: if two were in flight, the first
 * could be lost during a change of leader and the second stored. Other accounts need not wait for that. A repeated
 * message has the record's id as `Nats-Msg-Id`, so the stream drops duplicates within its `duplicate_window`.
 */
import { reasonOf, type DeliverySink, type SinkAnswer, type UsageEvent } from './sink.js';

export type Published =
  /** The stream has stored it, by this message or an earlier one with its id. */
  | { readonly kind: 'stored' }
  /** The stream permanently rejects it. `status`: JetStream's error number. */
  | { readonly kind: 'refused'; readonly status: number }
  /** Not stored, or unknown. `broken`: this connection must not be used again. */
  | { readonly kind: 'failed'; readonly why: string; readonly broken: boolean };

export interface JetStream {
  /** Sends one message and waits for the stream's acknowledgement within a time limit. Never rejects. */
  publish(message: { readonly id: string; readonly subject: string; readonly body: string }): Promise<Published>;
  /** Settles once the connection is unusable, by either side. Absent: this is noticed at the next use. */
  readonly gone?: Promise<unknown>;
  /** Never rejects. Idempotent. */
  close(): Promise<void>;
}

/**
 * Accounts whose events may be in flight at once. At 1 ms an acknowledgement these are 64,000 events a second, more than a sidecar records,
 * and JetStream holds few messages that it has not stored.
 */
const WINDOW = 64;

export interface NatsSinkOptions {
  /** Rejects if no server can be reached within a time limit. */
  readonly connect: () => Promise<JetStream>;
  /** Contains `{account}`. */
  readonly subject: string;
  /** Of tests: {@link WINDOW} otherwise. */
  readonly window?: number;
}

/** The state of a batch, with indices of its events. */
interface BatchState {
  readonly stored: number[];
  readonly refused: number[];
  status: number;
  /** Present: nothing more must be sent. */
  why?: string;
}

/**
 * Publishes events, each account's in order. The connection is kept for the next batch, and dropped after any error: then the next batch
 * opens another. Waits between attempts are the delivery's task.
 */
export class NatsSink implements DeliverySink {
  readonly #options: NatsSinkOptions;
  /** The connection, or the attempt to open it; at most one at a time. */
  #connection: Promise<JetStream> | undefined;

  constructor(options: NatsSinkOptions) {
    this.#options = options;
  }

  async deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer> {
    const state: BatchState = { stored: [], refused: [], status: 0 };
    try {
      const stream = await untilAborted(this.#connected(), signal);
      await untilAborted(this.#publishAll(batch, stream, state), signal);
    } catch (error) {
      state.why = reasonOf(error);
      void this.close();
    }
    const { refused, status, why } = state;
    // A copy, since messages in flight at an abort may still end.
    const stored = [...state.stored];
    // First what may be sent again: what was refused is then refused once more, and becomes a dead letter only once.
    if (why !== undefined) return { kind: 'later', stored, why };
    return refused.length > 0 ? { kind: 'refused', indices: [...refused], stored, status } : { kind: 'accepted' };
  }

  /** Closes the connection, also one that is still being opened. A later batch opens another. */
  async close(): Promise<void> {
    const dropped = this.#connection;
    this.#connection = undefined;
    await dropped?.then((stream) => stream.close()).catch(() => undefined);
  }

  #connected(): Promise<JetStream> {
    if (this.#connection) return this.#connection;
    const opening = this.#options.connect();
    this.#connection = opening;
    const forget = (): void => {
      if (this.#connection === opening) this.#connection = undefined;
    };
    opening.then(({ gone }) => gone?.then(forget, forget), forget);
    return opening;
  }

  async #publishAll(batch: readonly UsageEvent[], stream: JetStream, state: BatchState): Promise<void> {
    const accounts = indicesByAccount(batch);
    // Shared: each worker takes the next account when it is free.
    const next = accounts.values();
    const worker = async (): Promise<void> => {
      for (const indices of next) await this.#publishInOrder(batch, indices, stream, state);
    };
    await Promise.all(Array.from({ length: Math.min(this.#options.window ?? WINDOW, accounts.length) }, worker));
  }

  /** Publishes one account's events until one is not stored; the ones after it must wait. */
  async #publishInOrder(
    batch: readonly UsageEvent[],
    indices: readonly number[],
    stream: JetStream,
    state: BatchState,
  ): Promise<void> {
    for (const index of indices) {
      const event = batch[index];
      if (!event || state.why !== undefined) return;
      const subject = subjectOf(this.#options.subject, event.subject);
      const published = await stream.publish({ id: event.id, subject, body: JSON.stringify(event) });
      if (published.kind === 'stored') {
        state.stored.push(index);
        continue;
      }
      if (published.kind === 'refused') {
        state.status = published.status;
        state.refused.push(index);
        return;
      }
      state.why ??= published.why;
      if (published.broken) void this.close();
      return;
    }
  }
}

/** Indices of the batch, in order, grouped by account. */
function indicesByAccount(batch: readonly UsageEvent[]): number[][] {
  const accounts = new Map<string, number[]>();
  for (const [index, { subject }] of batch.entries()) {
    const indices = accounts.get(subject);
    if (indices) indices.push(index);
    else accounts.set(subject, [index]);
  }
  return [...accounts.values()];
}

/** The placeholder for the account in a subject's template. */
const ACCOUNT = '{account}';

/** All other characters are escaped. A dot would start another token; `*` and `>` are wildcards. */
const PLAIN = /[^A-Za-z0-9_-]/gu;

/** The subject of an account's events. */
export function subjectOf(template: string, account: string): string {
  // A function, since `$&` in a replacement text would be expanded.
  return template.replace(ACCOUNT, () => accountToken(account));
}

/**
 * An account as one token of a subject: no account name can produce another account's subject, a second token, or a wildcard. Different
 * accounts produce different tokens: `%` becomes `%25`, and an empty account, which should not occur, becomes a lone `%`.
 */
export function accountToken(account: string): string {
  return account === '' ? '%' : account.replace(PLAIN, escaped);
}

function escaped(character: string): string {
  return [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
}

/** Waits for `work` until `signal` is aborted, then rejects with its reason; `work` continues and its result is ignored. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
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
