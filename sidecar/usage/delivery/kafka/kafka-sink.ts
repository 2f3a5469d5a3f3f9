/**
 * Usage events on a Kafka topic, keyed by account: one account's events lie in one partition, in their order.
 *
 * A batch is one request to each broker that leads one of its partitions, and an account's part of it is stored as a whole
 * or not at all. What failed is sent again as a whole by a new producer: the old one cannot know whether its numbers of
 * sequence were used up, and a broker that takes a new batch for an old one with the same numbers drops it unsaid. So an
 * event can be in the topic twice; readers count by its id.
 */
import type { Clock } from '../../../lib/clock.js';
import type { UsageEvent } from '../cloud-event.js';
import { Connection, untilAborted, type Closeable } from '../connection.js';
import { reasonOf } from '../reason.js';
import type { DeliverySink, SinkAnswer } from '../sink.js';

export interface KafkaMessage {
  /** What the partition is chosen by. */
  readonly key: string;
  readonly value: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** What became of a request. */
export type Produced =
  /** All replicas in sync have all of it. */
  | { readonly kind: 'stored' }
  /** Some of it may be stored. `code`: the broker's number for why, where a broker answered. */
  | { readonly kind: 'failed'; readonly code?: number; readonly why: string };

/** A client's producer, so that another client can take its place: idempotent, and acknowledged by all replicas in sync. */
export interface KafkaProducer extends Closeable {
  /** Sends messages, those with the same key to one partition in the order given. Never rejects. */
  send(messages: readonly KafkaMessage[]): Promise<Produced>;
}

export interface KafkaSinkOptions {
  readonly clock: Clock;
  /** Rejects when no broker can be reached, within a bound. */
  readonly connect: () => Promise<KafkaProducer>;
  /** Connecting and sending of one batch, ms. */
  readonly timeoutMs: number;
}

/** CloudEvents 1.0, Kafka binding, structured mode, in the JSON format. */
const EVENT_TYPE = 'application/cloudevents+json; charset=UTF-8';

/**
 * Kafka's numbers that are about messages: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD. A whole batch can be
 * too large too: it is halved then. All others wait for an operator or for time.
 */
const THE_EVENTS: ReadonlySet<number> = new Set([10, 18, 87]);

/** Produces a batch at a time. */
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
    // As the HTTP sink has it: AbortSignal.any() would leave something of each batch on a signal that lives for ever.
    const ended = new AbortController();
    const cancel = clock.after(timeoutMs, () => ended.abort(new DOMException('no answer in time', 'TimeoutError')));
    const stop = (): void => ended.abort();
    signal.addEventListener('abort', stop);
    if (signal.aborted) stop();
    try {
      return await untilAborted(this.#send(batch.map(messageOf)), ended.signal);
    } catch (error) {
      return { kind: 'failed', why: reasonOf(error) };
    } finally {
      cancel();
      signal.removeEventListener('abort', stop);
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
