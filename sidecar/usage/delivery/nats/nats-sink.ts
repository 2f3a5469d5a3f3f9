/**
 * Delivers usage events to a JetStream stream, one message each under its account's subject.
 *
 *     batch:  a1 b1 a2 c1 a3 b2        a1 ──ack──> a2 ──ack──> a3
 *                                      b1 ──ack──> b2              at most `window` accounts at once
 *                                      c1
 *
 * An event is published once the previous one of the same account is acknowledged: if two were in flight, the first
 * could be lost during a change of leader and the second stored. Other accounts need not wait for that. A repeated
 * message has the record's id as `Nats-Msg-Id`, so the stream drops duplicates within its `duplicate_window`.
 */
import type { UsageEvent } from '../cloud-event.js';
import { Connection, untilAborted, type Closeable } from '../connection.js';
import { reasonOf } from '../reason.js';
import type { DeliverySink, SinkAnswer } from '../sink.js';
import { subjectOf } from './subject.js';

/** The result of one message. */
export type Published =
  /** The stream has stored it, by this message or an earlier one with its id. */
  | { readonly kind: 'stored' }
  /** The stream permanently rejects it. `status`: JetStream's error number. */
  | { readonly kind: 'refused'; readonly status: number }
  /** Not stored, or unknown. `broken`: this connection must not be used again. */
  | { readonly kind: 'failed'; readonly why: string; readonly broken: boolean };

/** One connection to a stream. */
export interface JetStream extends Closeable {
  /** Sends one message and waits for the stream's acknowledgement within a time limit. Never rejects. */
  publish(message: { readonly id: string; readonly subject: string; readonly body: string }): Promise<Published>;
}

export interface NatsSinkOptions {
  /** Rejects if no server can be reached within a time limit. */
  readonly connect: () => Promise<JetStream>;
  /** Contains `{account}`. */
  readonly subject: string;
  /** Accounts whose events may be in flight at once. */
  readonly window: number;
}

/** The state of a batch. */
interface BatchState {
  readonly taken: number[];
  readonly refused: number[];
  status: number;
  /** Present: nothing more must be sent. */
  why?: string;
}

/**
 * Publishes events, each account's in order. Reconnects with the next batch after a failure; the delivery waits in
 * between.
 */
export class NatsSink implements DeliverySink {
  readonly #options: NatsSinkOptions;
  readonly #connection: Connection<JetStream>;

  constructor(options: NatsSinkOptions) {
    this.#options = options;
    this.#connection = new Connection(options.connect);
  }

  async deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer> {
    const state: BatchState = { taken: [], refused: [], status: 0 };
    try {
      const stream = await untilAborted(this.#connection.get(), signal);
      await untilAborted(this.#publishAll(batch, stream, state), signal);
    } catch (error) {
      state.why = reasonOf(error);
      void this.#connection.drop();
    }
    const { refused, status, why } = state;
    // A copy, since messages in flight at an abort may still end.
    const taken = [...state.taken];
    // First what may be sent again: what was refused is then refused once more, and becomes a dead letter only once.
    if (why !== undefined) return { kind: 'later', taken, why };
    return refused.length > 0 ? { kind: 'refused', indices: [...refused], taken, status } : { kind: 'accepted' };
  }

  close(): Promise<void> {
    return this.#connection.drop();
  }

  async #publishAll(batch: readonly UsageEvent[], stream: JetStream, state: BatchState): Promise<void> {
    const accounts = placesByAccount(batch);
    // Shared: each worker takes the next account when it is free.
    const next = accounts.values();
    const worker = async (): Promise<void> => {
      for (const places of next) await this.#publishInOrder(batch, places, stream, state);
    };
    await Promise.all(Array.from({ length: Math.min(this.#options.window, accounts.length) }, worker));
  }

  /** Publishes one account's events until one is not stored; the ones after it must wait. */
  async #publishInOrder(
    batch: readonly UsageEvent[],
    places: readonly number[],
    stream: JetStream,
    state: BatchState,
  ): Promise<void> {
    for (const place of places) {
      const event = batch[place];
      if (!event || state.why !== undefined) return;
      const subject = subjectOf(this.#options.subject, event.subject);
      const published = await stream.publish({ id: event.id, subject, body: JSON.stringify(event) });
      if (published.kind === 'stored') {
        state.taken.push(place);
        continue;
      }
      if (published.kind === 'refused') {
        state.status = published.status;
        state.refused.push(place);
        return;
      }
      state.why ??= published.why;
      if (published.broken) void this.#connection.drop();
      return;
    }
  }
}

/** Indices of the batch, in order, grouped by account. */
function placesByAccount(batch: readonly UsageEvent[]): number[][] {
  const places = new Map<string, number[]>();
  for (const [place, { subject }] of batch.entries()) {
    const of = places.get(subject);
    if (of) of.push(place);
    else places.set(subject, [place]);
  }
  return [...places.values()];
}
