/**
 * Ten times the load before a llama-server that is the sidecar's engine, beside our own engine, the same llama-server alone and
 * one behind nginx, all in one run. Needs `make peers` and nginx; about ten minutes.
 */
import { metricOf } from '../../engine/remote/metrics-text.js';
import { CHAT } from '../../test/support/sidecar.js';
import { random150m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import type { Attempt } from './attempt.js';
import { served, settled, type ClosedLoop } from './closed-loop.js';
import { fairShare, measure } from './measures.js';
import { offer } from './offer.js';
import { behindNginx, llamaServer, needNginx, sidecar, type Server } from './servers.js';

const SEATS = 8;
const TOKENS = 32;
const FACTOR = 10;
const ROUNDS = Number(process.argv[2] ?? 2);
/** Of each load: so long that its first seconds, in which a queue fills that was empty, are a small part. */
const SECONDS = 60;
const PATIENCE_MS = 8000;
const CONNECTIONS = { all: 2 * SEATS, perKey: SEATS };
const ACCOUNTS = { heavy: 0.8, light: 0.2 };
const NAMES = Object.keys(ACCOUNTS);
const CLOSED: ClosedLoop = { callers: SEATS, seconds: 8, tokens: TOKENS };
/** Between two readings of the server's own queue, ms. */
const LOOK_MS = 100;

needNginx();
const sizes = { file: await random150m(), seats: SEATS, context: 512, threads: 1 };
const own = await sidecar(sizes, NAMES);
// It has no other callers, so that its own queue shows what the sidecar gives it.
const engine = await llamaServer(sizes, NAMES, ['--jinja', '--metrics']);
const before = await sidecar(sizes, NAMES, {
  engine: { kind: 'llama-server', url: `http://127.0.0.1:${engine.target.port}` },
});
const alone = await llamaServer(sizes, NAMES);
const fronted = await behindNginx([alone], { connections: CONNECTIONS });
const servers = [own, before, alone, fronted];
const runs = new Map<Server, Attempt[][]>(servers.map((server) => [server, []]));
let [deferred, looks] = [0, 0];
let capacity = NaN;
const rates = new Map<Server, number>();
try {
  for (const server of [own, before]) {
    await served(server.target, { ...CLOSED, seconds: 4 });
    rates.set(server, await served(server.target, CLOSED));
  }
  capacity = rates.get(own) ?? NaN;
  for (let round = 0; round < ROUNDS; round++) {
    for (const [server, done] of runs) {
      const watching = new AbortController();
      const watched = server === before ? watch(watching.signal) : undefined;
      done.push(
        await offer({
          target: server.target,
          phases: [{ perSecond: FACTOR * capacity, seconds: SECONDS }],
          accounts: ACCOUNTS,
          patienceMs: PATIENCE_MS,
          awaits: 'end',
          seed: 1000 + round,
          model: CHAT,
          tokens: TOKENS,
        }),
      );
      watching.abort();
      await watched;
      await settled(server.target, TOKENS);
      process.stdout.write(`${JSON.stringify(row(server))}\n`);
    }
  }
} finally {
  for (const server of [fronted, alone, before, engine, own]) await server.close();
}

await keep('overload-elsewhere', {
  title: 'Overload before a llama-server that is the engine',
  about: [
    `150m model, ${SEATS} seats or slots, one compute thread, ${TOKENS} tokens a reply, whole; Poisson arrivals from a process of their own at ${FACTOR} times ${capacity.toFixed(2)} a second, which is what ${CLOSED.callers} callers in a closed loop get of the sidecar with its own engine (before llama-server: ${(rates.get(before) ?? NaN).toFixed(2)}). ${SECONDS} s on each in turn, ${ROUNDS} rounds; callers give up after ${PATIENCE_MS / 1000} s. Two accounts: heavy sends ${ACCOUNTS.heavy * 100} % of the requests, light the rest.`,
    `The sidecar: default settings, with its own engine and before a llama-server of its own with as many slots as seats. llama-server: the build of \`make peers\`, no prompt cache. nginx: \`limit_conn\` ${CONNECTIONS.all} for all callers together and ${CONNECTIONS.perKey} for each key.`,
    'good: replies that were whole within their caller’s patience, a second, once the first two seconds are over. fair share: what max-min fairness would give the light account of what was good.',
  ],
  rows: servers.map(row),
  conclusions: [
    `The most requests that waited in the llama-server behind the sidecar, of ${looks} readings under load: ${deferred}.`,
  ],
});
process.exit(0);

/** Follows the number of requests that wait in the sidecar's llama-server. */
async function watch(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const page = await (await fetch(`http://127.0.0.1:${engine.target.port}/metrics`)).text();
    deferred = Math.max(deferred, metricOf(page, 'llamacpp:requests_deferred') ?? NaN);
    looks += 1;
    await new Promise((later) => setTimeout(later, LOOK_MS));
  }
}

function row(server: Server): Row {
  const p = measure(runs.get(server) ?? [], SECONDS);
  const offered = FACTOR * capacity;
  return {
    server: server.name,
    'offered /s': offered,
    'good /s': p.good,
    'reply p50 ms': p.total,
    'reply p99 ms': p.total99,
    refused: p.refused,
    'gave up': p.gone,
    broken: p.broken,
    'light good /s': p.goodOf['light'] ?? 0,
    'light fair share /s': fairShare(ACCOUNTS.light * offered, ACCOUNTS.heavy * offered, p.good),
  };
}
