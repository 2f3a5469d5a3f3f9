import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { systemClock } from '../../../../../sidecar/lib/clock.js';
import { usageEvent, type CloseRecord } from '../../../../../sidecar/usage/delivery/cloud-event.js';
import { BatchPartitions } from '../../../../../sidecar/usage/delivery/kafka/batch-partitions.js';
import {
  KafkaSink,
  type KafkaMessage,
  type KafkaProducer,
  type Produced,
} from '../../../../../sidecar/usage/delivery/kafka/kafka-sink.js';
import { connectKafka } from '../../../../../sidecar/usage/delivery/kafka/producer.js';
import { FakeClock } from '../../../../support/fake-clock.js';
import { KafkaPeer } from '../../../../support/kafka-peer.js';
import { deliveryConfig } from '../../../../support/sink-peers.js';
import { eventually } from '../../../../support/processes.js';
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
  const sink = new KafkaSink({ clock: systemClock, timeoutMs: 30_000, connect: () => connectKafka(kafka, 10_000) });
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
    const sink = new KafkaSink({ clock: systemClock, timeoutMs: 30_000, connect: () => connectKafka(kafka, 10_000) });
    t.strictSame(await sink.deliver(EVENTS, FOREVER), { kind: 'later', why: 'EPROTO' }, hex);
    await sink.close();
  });
  await Promise.all(answers);
});

/** Of eight accounts, whose keys lie in both partitions of {@link KafkaPeer}. */
const SPREAD = 'abcdefgh'
  .split('')
  .map((account) => usageEvent(usageRecord(`event-${account}`, 'close', { account }) as CloseRecord, '/s'));

/** A sink to a cluster. */
function clusterSink({ ports }: KafkaPeer): KafkaSink {
  const { kafka } = deliveryConfig({ RA_DELIVERY_KAFKA_BROKERS: `["127.0.0.1:${ports[0]}"]` });
  return new KafkaSink({ clock: systemClock, timeoutMs: 30_000, connect: () => connectKafka(kafka, 10_000) });
}

/** Which of the events are in a partition. */
function storedOf({ stored }: KafkaPeer): string[] {
  const text = stored.flat().join('\n');
  return SPREAD.map(({ id }) => id).filter((id) => text.includes(id));
}

t.test('KafkaJS: a partition whose leader moves to a broker that has answered is sent again', async (t) => {
  for (const fault of ['moved', 'close'] as const) {
    const peer = await KafkaPeer.start(t);
    let stored = (): void => undefined;
    const first = new Promise<void>((resolve) => (stored = resolve));
    peer.verdict = async ({ broker }) => {
      if (broker === 1) {
        stored();
        return 'store';
      }
      await first;
      peer.leaders = [1, 1];
      return fault;
    };
    const sink = clusterSink(peer);
    const answer = await sink.deliver(SPREAD, FOREVER);
    t.ok(peer.requests.some(({ broker }) => broker === 2));
    if (storedOf(peer).length < SPREAD.length)
      t.strictSame(answer, { kind: 'later', why: 'partition not acknowledged' }, fault);
    t.strictSame(await sink.deliver(SPREAD, FOREVER), { kind: 'accepted' });
    t.strictSame(
      storedOf(peer),
      SPREAD.map(({ id }) => id),
      'all are stored',
    );
    await sink.close();
  }
});

t.test('KafkaJS: a producer that was closed during a send repeats no request and leaves no connection', async (t) => {
  const peer = await KafkaPeer.start(t);
  const asked = new Promise<void>((resolve) => {
    peer.verdict = () => {
      resolve();
      return 'silence';
    };
  });
  const { kafka } = deliveryConfig({ RA_DELIVERY_KAFKA_BROKERS: `["127.0.0.1:${peer.ports[0]}"]` });
  const producer = await connectKafka(kafka, 10_000);
  const sending = producer.send(SPREAD.map(({ id, subject }) => ({ key: subject, value: id, headers: {} })));
  await asked;
  await producer.close();
  t.match(await sending, { kind: 'failed' });
  const brokers = peer.requests.map(({ broker }) => broker);
  t.strictSame(brokers, [...new Set(brokers)], 'no broker is asked twice');
  await eventually('the connections are closed', () => peer.connections === 0);
});

t.test('an acknowledgement of each partition counts only while the topic has as many as before', (t) => {
  const partitions = new BatchPartitions();
  const choose = partitions.noting(
    () =>
      ({ partition }: { partition: number; partitionMetadata: unknown[] }) =>
        partition,
  )();
  const ask = (partition: number, count: number): number => choose({ partition, partitionMetadata: Array(count) });
  t.equal(ask(0, 2), 0);
  t.equal(ask(1, 2), 1);
  t.equal(ask(1, 2), 1);
  t.notOk(partitions.areAllIn([]));
  t.notOk(partitions.areAllIn([{ partition: 0 }]));
  t.ok(partitions.areAllIn([{ partition: 1 }, { partition: 0 }, { partition: 2 }]));
  t.equal(ask(1, 3), 1);
  t.notOk(partitions.areAllIn([{ partition: 1 }, { partition: 0 }, { partition: 2 }]), 'its events may be others');
  partitions.begin();
  t.equal(ask(2, 3), 2);
  t.ok(partitions.areAllIn([{ partition: 2 }]), 'of the next batch');
  t.end();
});
