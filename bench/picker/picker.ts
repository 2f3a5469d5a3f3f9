/** A picker and the proxy behind it in a process: picks a sidecar for each request and forwards it. */
import { Agent, createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { seeded } from '../support/load.js';
import { pick, readingOf, type Reading } from './scorers.js';

/** How it picks: in turn, or by its readings of this metric for the KV scorer. */
export type Policy = { readonly kind: 'round robin' } | { readonly kind: 'scores'; readonly kvUsage: string };

export interface Orders {
  /** Where the sidecars listen. */
  readonly ports: readonly number[];
  readonly policy: Policy;
  readonly seed: number;
}

/** Its refresh-metrics-interval by default, ms. */
const REFRESH_MS = 50;
/** The assumed reading of a sidecar without one. */
const UNKNOWN: Reading = { waiting: 0, kvUsage: 0 };
const WAITING = 'ra_sidecar_endpoint_waiting_requests';

function run({ ports, policy, seed }: Orders): void {
  const readings: Reading[] = ports.map(() => UNKNOWN);
  const picked: number[] = ports.map(() => 0);
  const random = seeded(seed);
  let turn = 0;
  const choose = (): number => (policy.kind === 'round robin' ? turn++ % ports.length : pick(readings, random));
  if (policy.kind === 'scores') {
    const names = { waiting: WAITING, kvUsage: policy.kvUsage };
    for (const [i, port] of ports.entries()) void follow(port, (page) => (readings[i] = readingOf(page, names)));
  }
  // No idle connections: a sidecar closes those after a while, possibly just when the next request is on its way.
  const agent = new Agent({ keepAlive: false });
  const server = createServer((from, to) => {
    const i = choose();
    picked[i] = (picked[i] ?? 0) + 1;
    pass(from, to, ports[i] ?? 0, agent);
  });
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
  process.on('message', () => process.send?.(picked));
}

/** Reads one sidecar’s page repeatedly. If a page cannot be read the last reading stays. */
async function follow(port: number, take: (page: string) => void): Promise<void> {
  for (;;) {
    await fetch(`http://127.0.0.1:${port}/metrics`)
      .then((response) => response.text())
      .then(take)
      .catch(() => undefined);
    await new Promise((later) => setTimeout(later, REFRESH_MS));
  }
}

/** Forwards a request and its answer, byte for byte, as they arrive. */
function pass(from: IncomingMessage, to: ServerResponse, port: number, agent: Agent): void {
  const { method, url, headers } = from;
  const onward = request({ agent, host: '127.0.0.1', port, method, path: url, headers }, (answer) => {
    to.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(to);
  });
  onward.on('error', () => to.destroy());
  to.on('close', () => onward.destroy());
  from.pipe(onward);
}

process.once('message', run);
process.once('disconnect', () => process.exit(0));
