/**
 * The peers of the sinks’ contract in `make test`: over TCP, except for Kafka, where the contract needs single messages and
 * kafka-peer.ts has batches as they came.
 */
import type { Test } from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import { loadConfig, type Config } from '../../sidecar/config/config.js';
import { HttpSink } from '../../sidecar/usage/delivery/http-sink.js';
import { KafkaSink, type KafkaMessage, type Produced } from '../../sidecar/usage/delivery/kafka/kafka-sink.js';
import { connectJetStream } from '../../sidecar/usage/delivery/nats/jetstream.js';
import { NatsSink } from '../../sidecar/usage/delivery/nats/nats-sink.js';
import { NatsPeer } from './nats-peer.js';
import type { SinkPeer } from './sink-contract.js';
import { TcpLink } from './tcp-link.js';
import { UsageSink } from './usage-sink.js';

const MAX_EVENT = 4096;

/** How long a broken peer is waited for, ms: each fault costs about that. */
const TIMEOUT_MS = 150;

/** The section `delivery` of a configuration that sets these variables. */
export function deliveryConfig(environment: Readonly<Record<string, string>>): Config['delivery'] {
  const loaded = loadConfig(environment);
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config.delivery;
}

/** The three ways in which a TCP link breaks. */
export function linkFaults(link: TcpLink): Pick<SinkPeer, 'faults' | 'heal'> {
  return {
    faults: {
      'no server there': () => link.set('cut'),
      'answers are lost': () => link.set('mute'),
      'nothing is heard': () => link.set('deaf'),
    },
    heal: () => link.set('open'),
  };
}

export async function httpPeer(t: Test): Promise<SinkPeer> {
  const server = await UsageSink.start(t);
  const stored: string[] = [];
  server.answer = ({ body, response }) => {
    const events = (JSON.parse(body) as unknown[]).map((event) => JSON.stringify(event));
    const good = events.every((event) => event.length <= MAX_EVENT);
    if (good) stored.push(...events);
    response.writeHead(good ? 204 : 413).end();
  };
  const link = await TcpLink.start(t, () => server.port);
  return {
    ...linkFaults(link),
    stored: () => Promise.resolve(stored),
    tooLong: MAX_EVENT,
    sink: () =>
      new HttpSink({
        clock: systemClock,
        date: Date.now,
        url: `http://127.0.0.1:${link.port}/`,
        timeoutMs: TIMEOUT_MS,
      }),
  };
}

/** A sink to a stream `USAGE` on `usage.*`, on a port of this machine. */
export function natsSink(
  port: number,
  timeoutMs: number,
  environment: Readonly<Record<string, string>> = {},
): NatsSink {
  const { nats } = deliveryConfig({ RA_DELIVERY_NATS_SERVERS: `["nats://127.0.0.1:${port}"]`, ...environment });
  return new NatsSink({ ...nats, connect: () => connectJetStream(nats, timeoutMs) });
}

export async function natsPeer(t: Test): Promise<SinkPeer> {
  const server = await NatsPeer.start(t);
  const link = await TcpLink.start(t, () => server.port);
  return {
    ...linkFaults(link),
    stored: () => Promise.resolve(server.messages.map(({ body }) => body)),
    tooLong: MAX_EVENT,
    sink: () => natsSink(link.port, TIMEOUT_MS),
  };
}

/** In place of Kafka’s client: one partition for each key, only whole batches are acknowledged. */
export function kafkaPeer(): Promise<SinkPeer> {
  const stored: string[] = [];
  let state: 'well' | 'away' | 'lost' | 'silent' = 'well';
  let release = (): void => undefined;
  const failed: Produced = { kind: 'failed', why: 'ECONNRESET' };
  const send = async (messages: readonly KafkaMessage[]): Promise<Produced> => {
    if (state === 'silent') await new Promise<void>((resolve) => (release = resolve));
    if (state === 'away') return failed;
    if (messages.some(({ value }) => value.length > MAX_EVENT)) return { kind: 'failed', code: 10, why: 'too large' };
    stored.push(...messages.map(({ value }) => value));
    return state === 'lost' ? failed : { kind: 'stored' };
  };
  return Promise.resolve({
    faults: {
      'no server there': () => void (state = 'away'),
      'answers are lost': () => void (state = 'lost'),
      'nothing is heard': () => void (state = 'silent'),
    },
    heal: () => {
      state = 'well';
      // Too late for the sender, and stored all the same.
      release();
    },
    stored: () => Promise.resolve(stored),
    tooLong: MAX_EVENT,
    sink: () =>
      new KafkaSink({
        clock: systemClock,
        timeoutMs: TIMEOUT_MS,
        connect: () =>
          state === 'away'
            ? Promise.reject(new Error('no server there'))
            : Promise.resolve({ send, close: () => Promise.resolve() }),
      }),
  });
}
