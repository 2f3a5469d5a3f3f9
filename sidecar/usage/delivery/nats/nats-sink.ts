/**
 * Usage events on a JetStream stream, each a message of its own under its account's subject.
 *
 *     batch:  a1 b1 a2 c1 a3 b2        a1 ──ack──> a2 ──ack──> a3
 *                                      b1 ──ack──> b2              at most `window` accounts at once
 *                                      c1
 *
 * An event is published once the one before it of the same account is acknowledged: were two under way, the first could be
 * lost on a leader's change and the second stored. Other accounts need not wait for that. What is sent again carries the
 * record's id as `Nats-Msg-Id`, so the stream drops what it has already, within its `duplicate_window`.
 */
import type { UsageEvent } from '../cloud-event.js';
import { Connection, untilAborted, type Closeable } from '../connection.js';
import { reasonOf } from '../reason.js';
import type { DeliverySink, SinkAnswer } from '../sink.js';
import { subjectOf } from './subject.js';

/** What became of one message. */
export type Published =
  /** The stream has it, by this message or an earlier one with its id. */
  | { readonly kind: 'stored' }
  /** The stream will never take it. `status`: JetStream's own number for why. */
  | { readonly kind: 'refused'; readonly status: number }
  /** Not stored, or nobody knows. `broken`: this connection is not to be used again. */
  | { readonly kind: 'failed'; readonly why: string; readonly broken: boolean };

/** One connection to a stream. */
export interface JetStream extends Closeable {
  /** Sends one message and waits for the stream's acknowledgement, for a bounded time. Never rejects. */
  publish(message: { readonly id: string; readonly subject: string; readonly body: string }): Promise<Published>;
}

export interface NatsSinkOptions {
  /** Rejects when no server can be reached, within a bound. */
  readonly connect: () => Promise<JetStream>;
  /** Holds `{account}`. */
  readonly subject: string;
  /** Accounts whose events may be under way at once. */
  readonly window: number;
}

/** What is known of a batch so far. */
interface Round {
  readonly taken: number[];
  readonly refused: number[];
  status: number;
  /** Present: nothing more is to be sent. */
  why?: string;
}

/** Publishes events one account after another's ack. Reconnects with the batch after a failure; the delivery waits between. */
export class NatsSink implements DeliverySink {
  readonly #options: NatsSinkOptions;
  readonly #connection: Connection<JetStream>;

  constructor(options: NatsSinkOptions) {
    this.#options = options;
    this.#connection = new Connection(options.connect);
  }

  async deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer> {
    const round: Round = { taken: [], refused: [], status: 0 };
    try {
      const stream = await untilAborted(this.#connection.get(), signal);
      await untilAborted(this.#publishAll(batch, stream, round), signal);
    } catch (error) {
      round.why = reasonOf(error);
      void this.#connection.drop();
    }
    const { refused, status, why } = round;
    // A copy: what was under way at an abort may yet come to its end.
    const taken = [...round.taken];
    if (refused.length > 0) return { kind: 'refused', indices: [...refused], taken, status };
    return why === undefined ? { kind: 'accepted' } : { kind: 'later', taken, why };
  }

  close(): Promise<void> {
    return this.#connection.drop();
  }

  async #publishAll(batch: readonly UsageEvent[], stream: JetStream, round: Round): Promise<void> {
    const accounts = placesByAccount(batch);
    // Shared: whoever is done takes the next account.
    const next = accounts.values();
    const worker = async (): Promise<void> => {
      for (const places of next) await this.#publishInOrder(batch, places, stream, round);
    };
    await Promise.all(Array.from({ length: Math.min(this.#options.window, accounts.length) }, worker));
  }

  /** One account's events, until one is not stored: those behind it wait for what becomes of it. */
  async #publishInOrder(
    batch: readonly UsageEvent[],
    places: readonly number[],
    stream: JetStream,
    round: Round,
  ): Promise<void> {
    for (const place of places) {
      const event = batch[place];
      if (!event || round.why !== undefined) return;
      const subject = subjectOf(this.#options.subject, event.subject);
      const published = await stream.publish({ id: event.id, subject, body: JSON.stringify(event) });
      if (published.kind === 'stored') {
        round.taken.push(place);
        continue;
      }
      if (published.kind === 'refused') {
        round.status = published.status;
        round.refused.push(place);
        return;
      }
      round.why ??= published.why;
      if (published.broken) void this.#connection.drop();
      return;
    }
  }
}

/** Places in the batch, in order, account by account. */
function placesByAccount(batch: readonly UsageEvent[]): number[][] {
  const places = new Map<string, number[]>();
  for (const [place, { subject }] of batch.entries()) {
    const of = places.get(subject);
    if (of) of.push(place);
    else places.set(subject, [place]);
  }
  return [...places.values()];
}
