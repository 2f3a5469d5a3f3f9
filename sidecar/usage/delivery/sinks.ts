import type { Clock } from '../../lib/clock.js';
import type { DeliveryConfig } from '../../config/delivery-types.js';
import { HttpSink } from './http-sink.js';
import { readLogin, readTls } from './login-file.js';
import { readBearerToken } from '../../lib/secret-file.js';
import { readNatsCredentials } from './nats/credentials.js';
import type { DeliverySink } from './sink.js';

/**
 * The configured sink, which connects with its first batch; undefined if there is none. Clients of message buses are
 * loaded only if they are used. Rejects with a FileProblem if one of its files is invalid, so that this is reported at
 * the start.
 */
export async function openSink(
  delivery: DeliveryConfig,
  { clock, date }: { readonly clock: Clock; readonly date: () => number },
): Promise<DeliverySink | undefined> {
  const { url, secretFile, nats, kafka, timeoutMs } = delivery;
  if (url !== undefined) {
    const secret = secretFile === undefined ? undefined : () => readBearerToken(secretFile);
    await secret?.();
    return new HttpSink({ clock, date, url, timeoutMs, ...(secret && { secret }) });
  }
  await checkSinkFiles(delivery);
  if (nats.servers.length > 0) {
    const [{ NatsSink }, { connectJetStream }] = await Promise.all([
      import('./nats/nats-sink.js'),
      import('./nats/jetstream.js'),
    ]);
    return new NatsSink({ ...nats, connect: () => connectJetStream(nats, timeoutMs) });
  }
  if (kafka.brokers.length > 0) {
    const [{ KafkaSink }, { connectKafka }] = await Promise.all([
      import('./kafka/kafka-sink.js'),
      import('./kafka/producer.js'),
    ]);
    return new KafkaSink({ clock, timeoutMs, connect: () => connectKafka(kafka, timeoutMs) });
  }
  return undefined;
}

/** The files that the configured message bus names. */
export function sinkFiles({ nats, kafka }: Pick<DeliveryConfig, 'nats' | 'kafka'>): string[] {
  const bus = nats.servers.length > 0 ? nats : kafka;
  return [bus.secretFile, bus.caFile, bus.certFile, bus.keyFile].filter((file) => file !== undefined);
}

/** Reads them. Rejects with a FileProblem. */
export async function checkSinkFiles({ nats, kafka }: Pick<DeliveryConfig, 'nats' | 'kafka'>): Promise<void> {
  if (nats.servers.length > 0) {
    await readNatsCredentials(nats);
    await readTls('delivery.nats', nats);
    return;
  }
  if (kafka.secretFile !== undefined) await readLogin('delivery.kafka.secretFile', kafka.secretFile);
  await readTls('delivery.kafka', kafka);
}
