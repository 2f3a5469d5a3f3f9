import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { systemClock } from '../../../../../sidecar/lib/clock.js';
import { usageEvent, type CloseRecord } from '../../../../../sidecar/usage/delivery/cloud-event.js';
import {
  KafkaSink,
  type KafkaMessage,
  type KafkaProducer,
  type Produced,
} from '../../../../../sidecar/usage/delivery/kafka/kafka-sink.js';
import { connectKafka } from '../../../../../sidecar/usage/delivery/kafka/producer.js';
import { FakeClock } from '../../../../support/fake-clock.js';
import { deliveryConfig } from '../../../../support/sink-peers.js';
import { turn } from '../../../../support/memory-delivery.js';
import { deadPort } from '../../../../support/usage-sink.js';
import { usageRecord } from '../../../../support/usage-records.js';

const EVENTS = ['a1', 'b1', 'a2'].map((id) =>
  usageEvent(usageRecord(id, 'close', { account: `account ${id.slice(0, 1)}` }) as CloseRecord, '/s'),
);
const FOREVER = new AbortController().signal;

/** A producer with scripted answers. */
class Producer implements KafkaProducer {
  readonly sent: (readonly KafkaMessage[])[] = [];
  produced: () => Produced | Promise<Produced> = () => ({ kind: 'stored' });
  opened = 0;
  closed = 0;

  async send(messages: readonly KafkaMessage[]): Promise<Produced> {
    this.sent.push(messages);
    return await this.produced();
  }

  close(): Promise<void> {
    this.closed += 1;
    return Promise.resolve();
  }

  sink(clock = new FakeClock()): KafkaSink {
    return new KafkaSink({ clock, timeoutMs: 1000, connect: () => Promise.resolve(((this.opened += 1), this)) });
  }
}

t.test('a batch is one request, keyed by account, each event a message', async (t) => {
  const producer = new Producer();
  const sink = producer.sink();
  t.strictSame(await sink.deliver(EVENTS, FOREVER), { kind: 'accepted' });
  t.strictSame(await sink.deliver(EVENTS, FOREVER), { kind: 'accepted' });
  t.strictSame(
    producer.sent[0],
    EVENTS.map((event) => ({
      key: event.subject,
      value: JSON.stringify(event),
      headers: { 'content-type': 'application/cloudevents+json; charset=UTF-8' },
    })),
  );
  t.equal(producer.opened, 1, 'one producer for both');
  await Promise.all([sink.close(), sink.close()]);
  t.equal(producer.closed, 1);
});

t.test(
  'a broker’s error about messages is a refusal, any other error is retried; either ends the producer',
  async (t) => {
    for (const [code, kind] of [
      [10, 'refused'],
      [18, 'refused'],
      [87, 'refused'],
      [3, 'later'],
      [19, 'later'],
      [29, 'later'],
      [45, 'later'],
      [58, 'later'],
      [undefined, 'later'],
    ] as const) {
      const producer = new Producer();
      producer.produced = () => ({ kind: 'failed', why: 'KafkaJSProtocolError', ...(code !== undefined && { code }) });
      const sink = producer.sink();
      t.match(
        await sink.deliver(EVENTS, FOREVER),
        kind === 'refused'
          ? { kind, status: code }
          : { kind, why: code === undefined ? 'KafkaJSProtocolError' : `KafkaJSProtocolError ${code}` },
      );
      t.equal(producer.closed, 1, 'its sequence numbers are unknown');
      producer.produced = () => ({ kind: 'stored' });
      t.strictSame(await sink.deliver(EVENTS, FOREVER), { kind: 'accepted' });
      t.equal(producer.opened, 2);
    }
  },
);

t.test('a hanging cluster is given up after the timeout, and at an abort', async (t) => {
  const producer = new Producer();
  producer.produced = () => new Promise(() => undefined);
  const clock = new FakeClock();
  const sink = producer.sink(clock);
  const answer = sink.deliver(EVENTS, FOREVER);
  await turn();
  clock.advance(1000);
  t.strictSame(await answer, { kind: 'later', why: 'TimeoutError' });
  const stop = new AbortController();
  const second = sink.deliver(EVENTS, stop.signal);
  await turn();
  stop.abort();
  t.strictSame(await second, { kind: 'later', why: 'AbortError' });
  await turn();
  t.equal(producer.closed, 2);
  t.equal(clock.pending, 0);
});

t.test('KafkaJS: no broker', async (t) => {
  const { kafka } = deliveryConfig({ RA_DELIVERY_KAFKA_BROKERS: `["127.0.0.1:${await deadPort()}"]` });
  const sink = new KafkaSink({ clock: systemClock, timeoutMs: 10_000, connect: () => connectKafka(kafka, 200) });
  t.match(await sink.deliver(EVENTS, FOREVER), { kind: 'later', why: 'ECONNREFUSED' });
  await sink.close();
});

/** The port of a TCP server that answers whatever it is sent with these bytes. */
async function answering(t: Test, bytes: Buffer): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => socket.write(bytes));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

t.test('KafkaJS: a peer that is no broker is a failed connection, and ends nothing else', async (t) => {
  const peers = ['00000000', 'ffffffff', '00000003010203', 'fd180000', '84000000', '8400000000000000'];
  const answers = peers.map(async (hex) => {
    const port = await answering(t, Buffer.from(hex, 'hex'));
    const { kafka } = deliveryConfig({ RA_DELIVERY_KAFKA_BROKERS: `["127.0.0.1:${port}"]` });
    const sink = new KafkaSink({ clock: systemClock, timeoutMs: 30_000, connect: () => connectKafka(kafka, 1000) });
    t.strictSame(await sink.deliver(EVENTS, FOREVER), { kind: 'later', why: 'EPROTO' }, hex);
    await sink.close();
  });
  await Promise.all(answers);
});
