/** Kafka through KafkaJS. Loaded only where `delivery.kafka.brokers` is set. */
import kafkajs, { type KafkaConfig as ClientConfig, type Producer, type SASLOptions } from 'kafkajs';
import type { KafkaConfig } from '../../../config/delivery-types.js';
import { readLogin, readTls } from '../login-file.js';
import { reasonOf } from '../reason.js';
import { BatchPartitions } from './batch-partitions.js';
import { BrokerSockets } from './broker-socket.js';
import { silenceTimerWarning } from './timer-warning.js';
import type { KafkaMessage, KafkaProducer, Produced } from './kafka-sink.js';

/** Sent to the brokers for their operator's logs. */
const CLIENT_ID = 'ra-sidecar';

/**
 * Attempts of one request under the same sequence numbers, so that a broker recognizes repetitions; enough for a leader
 * election. After that the delivery sends it again, with its own backoff.
 */
const RETRY = { retries: 4, initialRetryTime: 100, maxRetryTime: 2000 } as const;

/** The depth to which KafkaJS' errors wrap others. */
const MAX_DEPTH = 5;

/**
 * Connects to the cluster. Files are read now, so that credentials can be changed at any time. Rejects with a
 * FileProblem, or with the client's error after a few attempts; `timeoutMs` bounds each connection and each request.
 */
export async function connectKafka(config: KafkaConfig, timeoutMs: number): Promise<KafkaProducer> {
  const sasl = await saslOf(config);
  silenceTimerWarning();
  const sockets = new BrokerSockets();
  const client = new kafkajs.Kafka({
    clientId: CLIENT_ID,
    brokers: [...config.brokers],
    connectionTimeout: timeoutMs,
    authenticationTimeout: timeoutMs,
    requestTimeout: timeoutMs,
    enforceRequestTimeout: true,
    retry: RETRY,
    socketFactory: sockets.connect,
    // Its log lines quote addresses and stacks.
    logLevel: kafkajs.logLevel.NOTHING,
    ...(config.tls && { ssl: await readTls('delivery.kafka', config) }),
    ...(sasl && { sasl }),
  } satisfies ClientConfig);
  const partitions = new BatchPartitions();
  const producer = client.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
    createPartitioner: partitions.noting(kafkajs.Partitioners.DefaultPartitioner),
    retry: RETRY,
  });
  const connected = new Connected({ producer, partitions, sockets }, { topic: config.topic, timeoutMs });
  try {
    await producer.connect();
  } catch (error) {
    await connected.close();
    throw error;
  }
  return connected;
}

interface Parts {
  readonly producer: Producer;
  readonly partitions: BatchPartitions;
  readonly sockets: BrokerSockets;
}

class Connected implements KafkaProducer {
  readonly #parts: Parts;
  readonly #options: { readonly topic: string; readonly timeoutMs: number };

  constructor(parts: Parts, options: { readonly topic: string; readonly timeoutMs: number }) {
    this.#parts = parts;
    this.#options = options;
  }

  async send(messages: readonly KafkaMessage[]): Promise<Produced> {
    const { producer, partitions } = this.#parts;
    const { topic, timeoutMs } = this.#options;
    partitions.begin();
    try {
      const acknowledged = await producer.send({
        topic,
        // All in-sync replicas.
        acks: -1,
        timeout: timeoutMs,
        messages: messages.map(({ key, value, headers }) => ({ key, value, headers: { ...headers } })),
      });
      if (partitions.areAllIn(acknowledged)) return { kind: 'stored' };
      return { kind: 'failed', why: 'partition not acknowledged' };
    } catch (error) {
      const code = brokersCode(error);
      return { kind: 'failed', why: reasonOf(error), ...(code !== undefined && { code }) };
    }
  }

  async close(): Promise<void> {
    const { producer, sockets } = this.#parts;
    // Pending acknowledgements are not awaited, since they are ignored after this.
    sockets.close();
    await producer.disconnect().catch(() => undefined);
  }
}

/** The broker's number in an error, or in one that it wraps; undefined if no broker answered. */
function brokersCode(error: unknown): number | undefined {
  let thrown = error;
  for (let depth = 0; depth < MAX_DEPTH && thrown instanceof Error; depth += 1) {
    const { code } = thrown as { readonly code?: unknown };
    if (typeof code === 'number') return code;
    thrown = thrown.cause;
  }
  return undefined;
}

async function saslOf({ auth, secretFile }: KafkaConfig): Promise<SASLOptions | undefined> {
  if (auth === 'none' || secretFile === undefined) return undefined;
  const { user: username, password } = await readLogin('delivery.kafka.secretFile', secretFile);
  return { mechanism: auth, username, password };
}
