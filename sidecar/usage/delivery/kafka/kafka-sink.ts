/**
 * Delivers usage events to a Kafka topic, keyed by account, so that one account's events are in one partition, in
 * order.
 *
 * A batch is one request to each broker that leads one of its partitions, and an account's part of it is stored
 * completely or not at all. A failed batch is sent again as a whole by a new producer: the old one cannot know whether
 * its sequence numbers were used, and a broker that mistakes a new batch for an old one with the same numbers drops it
 * silently. So an event can be in the topic twice; readers count by its id.
 */
import type { Clock } from '../../../lib/clock.js';
import type { UsageEvent } from '../cloud-event.js';
import { Connection, untilAborted, type Closeable } from '../connection.js';
import { reasonOf } from '../reason.js';
import type { DeliverySink, SinkAnswer } from '../sink.js';
import { withTimeLimit } from '../time-limit.js';

export interface KafkaMessage {
  /** Determines the partition. */
  readonly key: string;
  readonly value: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** The result of a request. */
export type Produced =
  /** All in-sync replicas have all of it. */
  | { readonly kind: 'stored' }
  /** A part may be stored. `code`: the broker's error number, if a broker answered. */
  | { readonly kind: 'failed'; readonly code?: number; readonly why: string };

/**
 * A client's producer, as a port so that the client can be exchanged: idempotent, and acknowledged by all in-sync
 * replicas.
 */
export interface KafkaProducer extends Closeable {
  /** Sends messages, those with the same key to one partition in the order given. One call at a time. Never rejects. */
  send(messages: readonly KafkaMessage[]): Promise<Produced>;
}

export interface KafkaSinkOptions {
  readonly clock: Clock;
  /** Rejects if no broker can be reached within a time limit. */
  readonly connect: () => Promise<KafkaProducer>;
  /** Time limit for connecting and sending one batch, ms. */
  readonly timeoutMs: number;
}

/** CloudEvents 1.0, Kafka binding, structured mode, in the JSON format. */
const EVENT_TYPE = 'application/cloudevents+json; charset=UTF-8';

/**
 * Kafka's error numbers about messages: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD. A whole batch can be
 * too large too; it is then halved. All other errors are retried.
 */
const THE_EVENTS: ReadonlySet<number> = new Set([10, 18, 87]);

/** Produces one batch at a time. */
export class KafkaSink implements DeliverySink {
  readonly #options: KafkaSinkOptions;
  readonly #connection: Connection<KafkaProducer>;

  constructor(options: KafkaSinkOptions) {
    this.#options = options;
    this.#connection = new Connection(options.connect);
  }

  async deliver(batch: readonly UsageEvent[], signal: AbortSignal): Promise<SinkAnswer> {
    const produced = await this.#produce(batch, signal);
    if (produced.kind === 'stored') return { kind: 'accepted' };
    void this.#connection.drop();
    const { code, why } = produced;
    if (code !== undefined && THE_EVENTS.has(code)) return { kind: 'refused', status: code };
    return { kind: 'later', why: code === undefined ? why : `${why} ${code}` };
  }

  close(): Promise<void> {
    return this.#connection.drop();
  }

  async #produce(batch: readonly UsageEvent[], signal: AbortSignal): Promise<Produced> {
    const { clock, timeoutMs } = this.#options;
    try {
      return await withTimeLimit(clock, timeoutMs, signal, (ended) =>
        untilAborted(this.#send(batch.map(messageOf)), ended),
      );
    } catch (error) {
      return { kind: 'failed', why: reasonOf(error) };
    }
  }

  async #send(messages: readonly KafkaMessage[]): Promise<Produced> {
    const producer = await this.#connection.get();
    return await producer.send(messages);
  }
}

function messageOf(event: UsageEvent): KafkaMessage {
  return { key: event.subject, value: JSON.stringify(event), headers: { 'content-type': EVENT_TYPE } };
}
