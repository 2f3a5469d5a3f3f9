/**
 * The time that the sidecar adds to a first token of a llama-server, which is called alternately directly and through
 * the sidecar. Needs `make peers`.
 */
import { Agent } from 'node:http';
import { EMBEDDED_MODEL } from '../../sidecar/engine-client/weight-files.js';
import { Sidecar } from '../../test/support/sidecar.js';
import { LlamaServer } from '../support/peers.js';
import { keep } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { stream, type Target } from '../support/streaming.js';
import { Teardowns } from '../support/teardowns.js';

const MODEL = 'elsewhere';
const PAIRS = 300;
/** Requests before those that count. */
const WARM_UP = 50;
const CONTEXT = 1024;

const teardowns = new Teardowns();
const server = await LlamaServer.start(EMBEDDED_MODEL, {
  threads: 1,
  slots: 1,
  contextPerSlot: CONTEXT,
  more: ['--jinja', '--metrics'],
});
teardowns.teardown(() => server.close());
const engine = { kind: 'llama-server', url: `http://127.0.0.1:${server.port}` };
const sidecar = await Sidecar.start(teardowns, {
  config: {
    models: [{ id: MODEL, kind: 'chat', file: EMBEDDED_MODEL, seats: 1, contextPerSeat: CONTEXT, engine }],
    limits: { chat: { inFlight: 0, perMinute: 0 } },
    development: { validateAnswers: false },
  },
});

const direct: Target = { agent: new Agent({ maxSockets: 1 }), port: server.port };
const through: Target = { agent: new Agent({ maxSockets: 1 }), port: sidecar.port, key: sidecar.key };

/** No two prompts are the same, so that neither way finds more of them in the slot than the other. */
async function firstToken(target: Target, at: number): Promise<number> {
  const messages = [{ role: 'user', content: `${at} is a number. Say hello.` }];
  const body = { model: MODEL, messages, temperature: 0, max_tokens: 8 };
  return (await stream(target, body)).ttftMs;
}

const [alone, behind, added]: [number[], number[], number[]] = [[], [], []];
for (let pair = -WARM_UP; pair < PAIRS; pair += 1) {
  // The order alternates, since the second one’s server is warmer.
  const order = pair % 2 === 0 ? [direct, through] : [through, direct];
  const times = new Map<Target, number>();
  for (const [i, target] of order.entries()) times.set(target, await firstToken(target, 10_000 + 2 * pair + i));
  if (pair < 0) continue;
  const [one = 0, two = 0] = [times.get(direct), times.get(through)];
  alone.push(one);
  behind.push(two);
  added.push(two - one);
}
for (const { agent } of [direct, through]) agent.destroy();
await teardowns.run();

const row = (what: string, times: readonly number[]): Record<string, number | string> => ({
  way: what,
  'p50 ms': median(times),
  'p90 ms': quantile(times, 0.9),
});
await keep('engine-elsewhere', {
  title: 'What the sidecar adds to a first token of a llama-server',
  about: [
    `${PAIRS} pairs of streamed requests by one caller, each on a connection of its own, since llama-server closes those that it kept after 100 requests: one to llama-server’s own /v1/chat/completions, one through the sidecar, whose engine that llama-server is. Which one is first changes. From the request’s last byte to the first text. The bundled model, one compute thread, one slot.`,
    '“added” is the difference within each pair.',
  ],
  rows: [row('llama-server alone', alone), row('through the sidecar', behind), row('added', added)],
});
