/**
 * The time to refuse a schema whose work exceeds the bound, on a sidecar that is just ready and on one that has refused
 * many: with the real model’s template and vocabulary, over HTTP.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { CHAT, chatOnly, Sidecar } from '../../test/support/sidecar.js';
import { childrenOf } from '../../test/support/processes.js';
import { asLong, chatWith, EXPENSIVE_SCHEMAS, SMALL_PRODUCTS } from '../../test/support/expensive-schemas.js';
import { cpuOf } from '../support/cpu.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

/** A refusal’s latency, p99, of short bodies and long ones, the first one after the start included. */
const GOAL_MS = 20;
/** Sidecars started; each has one first request of either length, and the schemas take turns. */
const STARTS = 20;
/** Refusals of each schema and length, after the first ones, on the last sidecar. */
const WARM = 300;
/** So many come before them and are not counted. */
const WARMING = 100;

/** Requests of the client to a server of its own, before any is counted. */
const CLIENT_WARMING = 100;

const LENGTHS = { short: (body: string) => body, long: asLong } as const;
type Length = keyof typeof LENGTHS;
const LENGTH_NAMES = ['short', 'long'] as const;
const SCHEMAS = Object.entries(EXPENSIVE_SCHEMAS).map(([what, schema]) => ({ what, body: chatWith(schema) }));

/** Runs the client’s own code, which is not what is measured, against a server that answers without reading. */
async function warmClient(): Promise<void> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(422, { 'content-type': 'application/json' }).end('{}'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  for (let i = 0; i < CLIENT_WARMING; i++) {
    const body = LENGTHS[i % 2 === 0 ? 'short' : 'long'](SCHEMAS[i % SCHEMAS.length]?.body ?? '');
    const headers = { 'content-type': 'application/json', authorization: 'Bearer none' };
    await (await fetch(at, { method: 'POST', headers, body })).arrayBuffer();
  }
  server.closeAllConnections();
  server.close();
}

/** The sidecar, and how it is stopped. */
async function started(): Promise<{ readonly sidecar: Sidecar; readonly stop: () => Promise<void> }> {
  const teardowns = new Teardowns();
  const sidecar = await Sidecar.start(teardowns, {
    config: { ...(await chatOnly(1)), development: { validateAnswers: false } },
  });
  const stop = async (): Promise<void> => {
    await teardowns.run();
  };
  return { sidecar, stop };
}

/** One refusal, in ms: until the whole answer was read, and processor time of the sidecar and of the prompt host. */
interface Refusal {
  readonly ms: number;
  readonly cpuMs: number;
}

async function refuse(sidecar: Sidecar, length: Length, body: string): Promise<Refusal> {
  const sent = LENGTHS[length](body);
  const host = childrenOf(sidecar.pid).find(({ command }) => command.endsWith(`host.js ${length}`));
  const pids = [sidecar.pid, ...(host ? [host.pid] : [])];
  const used = async (): Promise<number> =>
    (await Promise.all(pids.map(cpuOf))).reduce((sum, { all }) => sum + 1000 * all, 0);
  const before = await used();
  const from = performance.now();
  const response = await sidecar.post('/chat/completions', sent);
  await response.arrayBuffer();
  const ms = performance.now() - from;
  if (response.status !== 422) throw new Error(`answered ${response.status}`);
  return { ms, cpuMs: (await used()) - before };
}

function row(length: Length, what: string, state: string, done: readonly Refusal[]): Row {
  const times = done.map(({ ms }) => ms);
  const cpu = done.map(({ cpuMs }) => cpuMs);
  return {
    body: length,
    'what it multiplies': what,
    sidecar: state,
    requests: done.length,
    'p50 ms': median(times),
    'p99 ms': quantile(times, 0.99),
    'CPU p50 ms': median(cpu),
    'CPU p99 ms': quantile(cpu, 0.99),
  };
}

await warmClient();
const first: Record<Length, Refusal[]> = { short: [], long: [] };
const rows: Row[] = [];
for (let start = 0; start < STARTS; start++) {
  const { sidecar, stop } = await started();
  try {
    // The listener's own first request, which needs no prompt host.
    await sidecar.readyz();
    for (const length of LENGTH_NAMES) {
      first[length].push(await refuse(sidecar, length, SCHEMAS[start % SCHEMAS.length]?.body ?? ''));
    }
    if (start < STARTS - 1) continue;
    for (const length of LENGTH_NAMES) {
      rows.push(row(length, 'each of these in turn', 'just ready', first[length]));
      for (const { what, body } of SCHEMAS) {
        const done: Refusal[] = [];
        for (let i = 0; i < WARMING + WARM; i++) done.push(await refuse(sidecar, length, body));
        rows.push(row(length, what, 'warm', done.slice(WARMING)));
      }
    }
  } finally {
    await stop();
  }
}

const worst = (state: string): number =>
  Math.max(...rows.filter(({ sidecar }) => sidecar === state).map((each) => Number(each['p99 ms'])));
const verdict = (ms: number): string => (ms <= GOAL_MS ? 'Held' : 'Missed');

await keep('expensive-schemas', {
  title: 'Refusals of schemas that take too much work',
  about: [
    `Chats to \`${CHAT}\` with one tool, whose schema of 2 to 15 KB multiplies out to more work than a request may take (\`engine/grammar/work.ts\`), so the answer is 422. For \`${SMALL_PRODUCTS}\` the compiler does all the work that it may; the others are refused without it, before what they multiply is begun. From the request's sending to its whole answer, one at a time, by a caller that shares the machine with the sidecar and has sent ${CLIENT_WARMING} such requests to a server of its own before, so that its own code is no part of a first request’s time. CPU: what the sidecar and that prompt host spent on it, which other work on the machine does not lengthen much.`,
    `Just ready: the first request of either length to a sidecar that has answered \`/readyz\` alone, on ${STARTS} sidecars. Such a sidecar has read no request body of a caller yet. The p99 of so few is the slowest. All sidecars run without \`development.validateAnswers\`, which the tests set and a deployment does not.`,
  ],
  rows,
  conclusions: [
    `${verdict(worst('just ready'))}: within ${GOAL_MS} ms when just ready (${worst('just ready').toFixed(1)} ms at worst).`,
    `${verdict(worst('warm'))}: within ${GOAL_MS} ms at p99 when warm (${worst('warm').toFixed(1)} ms at worst).`,
  ],
});
