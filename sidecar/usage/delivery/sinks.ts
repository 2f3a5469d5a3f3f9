import type { Clock } from '../../lib/clock.js';
import type { DeliveryConfig } from '../../config/delivery-types.js';
import { HttpSink } from './http-sink.js';
import { readTls } from './login-file.js';
import { readBearerToken } from '../../lib/secret-file.js';
import { readNatsCredentials } from './nats/credentials.js';
import type { DeliverySink } from './sink.js';

/**
 * The configured sink, which connects with its first batch; undefined if there is none. NATS' client is loaded
 * only if it is used. Rejects with a FileProblem if one of its files is invalid, so that this is reported at
 * the start.
 */
export async function openSink(
  delivery: DeliveryConfig,
  { clock, date }: { readonly clock: Clock; readonly date: () => number },
): Promise<DeliverySink | undefined> {
  const { url, secretFile, nats, timeoutMs } = delivery;
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
  return undefined;
}

/** The files that the configured message bus names. */
export function sinkFiles({ nats }: Pick<DeliveryConfig, 'nats'>): string[] {
  return [nats.secretFile, nats.caFile, nats.certFile, nats.keyFile].filter((file) => file !== undefined);
}

/** Reads them. Rejects with a FileProblem. */
export async function checkSinkFiles({ nats }: Pick<DeliveryConfig, 'nats'>): Promise<void> {
  await readNatsCredentials(nats);
  await readTls('delivery.nats', nats);
}
