/** The peers of the sinks’ contract in `make test`, over TCP. */
import type { Test } from 'tap';
import { systemClock } from '../../sidecar/lib/clock.js';
import { loadConfig, type Config } from '../../sidecar/config/config.js';
import { HttpSink } from '../../sidecar/usage/delivery/http-sink.js';
import { connectNats } from '../../sidecar/usage/delivery/sinks.js';
import { NatsSink } from '../../sidecar/usage/delivery/nats-sink.js';
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
  return new NatsSink({ ...nats, connect: () => connectNats(nats, timeoutMs) });
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
