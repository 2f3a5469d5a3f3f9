import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import type { UsageEvent } from '../../sidecar/usage/delivery/cloud-event.js';
import { KafkaSink } from '../../sidecar/usage/delivery/kafka/kafka-sink.js';
import { connectKafka } from '../../sidecar/usage/delivery/kafka/producer.js';
import { sinkContract, type SinkPeer } from '../support/sink-contract.js';
import { deliveryConfig, linkFaults } from '../support/sink-peers.js';
import { sourceRoot } from '../support/source-root.js';
import { BilledLoad, sameAsSpool } from './billed-load.js';
import { KafkaMock } from './kafka-mock.js';
import { nodeBinary } from './npm-packages.js';

/** In the test under load. */
const BREAKS = ['cut', 'mute', 'deaf'] as const;

async function peer(t: Test): Promise<SinkPeer> {
  const cluster = await KafkaMock.start(t);
  const { kafka } = deliveryConfig({ RA_DELIVERY_KAFKA_BROKERS: `["127.0.0.1:${cluster.link.port}"]` });
  const way = linkFaults(cluster.link);
  return {
    faults: { ...way.faults, 'it hangs': () => cluster.stop() },
    heal: async () => {
      await way.heal();
      cluster.go();
    },
    stored: async () => (await cluster.consumed()).map(({ payload }) => payload),
    // The mock accepts messages up to the client’s own limit, so none is too long for it.
    tooLong: undefined,
    sink: () => new KafkaSink({ clock: systemClock, timeoutMs: 1000, connect: () => connectKafka(kafka, 1000) }),
  };
}

sinkContract(t, 'librdkafka’s mock cluster', peer);

t.test('a cluster that fails in each way under load has every record in the end', async (t) => {
  const cluster = await KafkaMock.start(t);
  const load = await BilledLoad.start(t, { kafka: { brokers: [`127.0.0.1:${cluster.link.port}`] } });
  const { sidecar } = load;
  for (const [i, state] of BREAKS.entries()) {
    await load.delivers(20);
    cluster.link.set(state);
    const seen = sidecar.lines.length;
    const waits = (): boolean => sidecar.lines.slice(seen).some(({ event }) => event === 'usage delivery waits');
    await sidecar.until(waits, 'delivery waits');
    cluster.link.set('open');
    await sidecar.logged('usage delivery resumed', i + 1);
  }
  const answers = await load.end();
  const found = await cluster.consumed();
  const events = found.map(({ payload }) => JSON.parse(payload) as UsageEvent);
  t.comment(`${found.length} messages, ${new Set(events.map(({ id }) => id)).size} ids`);
  for (const [i, { key, headers }] of found.entries()) {
    t.equal(key, events[i]?.subject);
    t.strictSame(headers, ['content-type', 'application/cloudevents+json; charset=UTF-8']);
  }
  const partitions = new Map<string, number>();
  for (const { key, partition } of found)
    t.equal(partitions.get(key) ?? partition, (partitions.set(key, partition), partition));
  sameAsSpool(t, events, await load.exported(), answers);
});

for (const version of ['24.21.0', '26.10.0'])
  t.test(`Node ${version} prints no warning of KafkaJS' timers, and all others`, async (t) => {
    const cluster = await KafkaMock.start(t);
    const { kafka } = deliveryConfig({ RA_DELIVERY_KAFKA_BROKERS: `["127.0.0.1:${cluster.link.port}"]` });
    const printed = async (script: string): Promise<string> => {
      const { stdout, stderr } = await promisify(execFile)(nodeBinary(version), ['--input-type=module', '-e', script], {
        cwd: sourceRoot,
      });
      t.match(stdout, /stored/);
      return stderr;
    };
    const ours = `
      import { connectKafka } from '${join(sourceRoot, 'dist/sidecar/usage/delivery/kafka/producer.js')}';
      const producer = await connectKafka(${JSON.stringify(kafka)}, 10000);
      console.log((await producer.send([{ key: 'a', value: 'b', headers: {} }])).kind);
      await producer.close();
      process.emitWarning('another one');`;
    const own = await printed(ours);
    t.notMatch(own, /Timeout/);
    t.match(own, /another one/);

    const bare = `
      import kafkajs from 'kafkajs';
      const producer = new kafkajs.Kafka({ brokers: ['127.0.0.1:${cluster.link.port}'], logLevel: 0 }).producer();
      await producer.connect();
      await producer.send({ topic: 'usage', messages: [{ value: 'b' }] });
      console.log('stored');
      await producer.disconnect();`;
    t.match(await printed(bare), /TimeoutNegativeWarning/, 'without the filter it does');
  });
