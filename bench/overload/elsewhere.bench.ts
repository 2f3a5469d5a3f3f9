/**
 * Ten times the load before a llama-server that is the sidecar's engine, beside our own engine, the same llama-server alone and
 * one behind nginx, all in one run; with short replies, and with replies as long as those of a chat. nginx lets through as many
 * requests as there are slots, so that none waits inside the server, as with the sidecar; or twice as many. Needs `make peers` and
 * nginx; about a quarter of an hour a round.
 */
import { metricOf } from '../../engine/remote/load-watch.js';
import { CHAT } from '../../test/support/sidecar.js';
import { random150m } from '../support/models.js';
import { NO_PROMPT_CACHE } from '../support/peers.js';
import { keep, type Row } from '../support/results.js';
import type { Attempt } from './attempt.js';
import { served, settled, type ClosedLoop } from './closed-loop.js';
import { fairShare, measure } from './measures.js';
import { offer } from './offer.js';
import { behindNginx, llamaServer, needNginx, sidecar, type Server } from './servers.js';

const SEATS = 8;
const FACTOR = 10;
const ROUNDS = Number(process.argv[2] ?? 1);
/** The first part of a load, in which a queue that has learned nothing learns. It is shown apart. */
const LEARNING_S = 20;
/** Of nginx: none waits in the server, or as many as run. */
const CONNECTIONS = [
  { all: SEATS, perKey: SEATS },
  { all: 2 * SEATS, perKey: SEATS },
] as const;
const ACCOUNTS = { heavy: 0.8, light: 0.2 };
const NAMES = Object.keys(ACCOUNTS);
/** Between two readings of a llama-server's own measures, ms: each one is a task between two of its batches. */
const LOOK_MS = 500;

/** Loads with replies of one kind. Callers wait as many times the length of a reply in each. */
interface Part {
  /** Of a reply on average, from half to one and a half times as many: replies of one length would begin and end together. */
  readonly tokens: number;
  readonly patienceMs: number;
  /** Of each load. */
  readonly seconds: number;
}

const SHORT: Part = { tokens: 32, patienceMs: 8000, seconds: 80 };
const LONG: Part = { tokens: 128, patienceMs: 32_000, seconds: 100 };

/** What a llama-server has computed so far. */
interface Work {
  readonly at: number;
  readonly batches: number;
  readonly tokens: number;
}

/** What a llama-server reported during a load; the last two of what it computed once the learning was over. */
interface Watched {
  /** The most requests that waited in it. */
  readonly deferred: number;
  readonly looks: number;
  readonly tokensABatch: number;
  readonly batchesASecond: number;
}

/** How a load on a server went. */
interface Run {
  readonly attempts: Attempt[];
  readonly watched?: Watched;
}

needNginx();
const sizes = { file: await random150m(), seats: SEATS, context: 512, threads: 1 };
const own = await sidecar(sizes, NAMES);
// It has no other callers, so that its own queue shows what the sidecar gives it.
const engine = await llamaServer(sizes, NAMES, ['--jinja', '--metrics', ...NO_PROMPT_CACHE]);
const before = await sidecar(sizes, NAMES, {
  engine: { kind: 'llama-server', url: `http://127.0.0.1:${engine.target.port}` },
});
const alone = await llamaServer(sizes, NAMES, ['--metrics', ...NO_PROMPT_CACHE]);
const fronted: Server[] = [];
for (const connections of CONNECTIONS) {
  const nginx = await behindNginx([alone], { connections });
  fronted.push({ ...nginx, name: `${nginx.name} ${connections.all}` });
}
const rows: Row[] = [];
const closed: string[] = [];
try {
  rows.push(...(await measured(LONG, [own, before, ...fronted])));
  // The last: nothing waits for it to work off its backlog, which takes minutes.
  rows.push(...(await measured(SHORT, [own, before, ...fronted, alone])));
} finally {
  for (const server of [...fronted, alone, before, engine, own]) await server.close();
}

const [short, long] = [SHORT, LONG].map(({ patienceMs }) => patienceMs / 1000);
await keep('overload-elsewhere', {
  title: 'Overload before a llama-server that is the engine',
  about: [
    `150m model, ${SEATS} seats or slots, one compute thread, whole replies of ${SHORT.tokens} and of ${LONG.tokens} tokens on average (from half to one and a half times as many); Poisson arrivals from a process of their own at ${FACTOR} times what ${SEATS} callers in a closed loop get of the sidecar with its own engine. Closed loops, replies a second: ${closed.join('; ')}. ${SHORT.seconds} and ${LONG.seconds} s on each server in turn, ${ROUNDS} rounds; callers give up after ${short} and ${long} s. Two accounts: heavy sends ${ACCOUNTS.heavy * 100} % of the requests, light the rest.`,
    `The sidecar: default settings, with its own engine and before a llama-server of its own with as many slots as seats. llama-server: the build of \`make peers\`, no prompt cache. nginx: \`limit_conn\` for all callers together, by the number in its row, and ${SEATS} for each key.`,
    `good: replies that were whole within their caller’s patience, a second, from ${LEARNING_S} s after the begin of the load; at first: from 2 s to ${LEARNING_S} s, in which the sidecars learn how long these callers stay. All other columns are of the time from ${LEARNING_S} s on, but for \`gave up at first\`. fair share: what max-min fairness would give the light account of what was good. waited inside: the most requests that waited in the llama-server itself, of a reading every ${LOOK_MS} ms. tokens a batch: of replies, that one of its batches computed on average; batches: of these a second.`,
  ],
  rows,
});
process.exit(0);

/** A row for each server, with the same requests at the same times. */
async function measured(part: Part, servers: readonly Server[]): Promise<Row[]> {
  const loop: ClosedLoop = { callers: SEATS, seconds: 8, tokens: part.tokens };
  const rates = new Map<Server, number>();
  for (const server of [own, before]) {
    await served(server.target, { ...loop, seconds: 3 });
    rates.set(server, await served(server.target, loop));
    closed.push(`${server.name}, ${part.tokens} tokens ${(rates.get(server) ?? NaN).toFixed(2)}`);
  }
  const perSecond = FACTOR * (rates.get(own) ?? NaN);
  const runs = new Map<Server, Run[]>(servers.map((server) => [server, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const [server, done] of runs) {
      done.push(await runOf(part, server, perSecond, round));
      process.stdout.write(`${JSON.stringify(row(part, server, perSecond, done))}\n`);
    }
  }
  return [...runs].map(([server, done]) => row(part, server, perSecond, done));
}

/** One load on one server. */
async function runOf(part: Part, server: Server, perSecond: number, round: number): Promise<Run> {
  const { seconds, tokens, patienceMs } = part;
  const watching = new AbortController();
  const behind = server === before ? engine : fronted.includes(server) ? alone : undefined;
  const watches = behind && watch(behind, seconds, watching.signal);
  const attempts = await offer({
    target: server.target,
    phases: [{ perSecond, seconds }],
    accounts: ACCOUNTS,
    patienceMs,
    awaits: 'end',
    seed: 1000 + round,
    model: CHAT,
    tokens,
    spread: true,
  });
  watching.abort();
  const watched = await watches;
  const isLast = server === alone && round === ROUNDS - 1;
  if (!isLast) await settled(server.target, tokens);
  return { attempts, ...(watched && { watched }) };
}

/** Follows what a llama-server reports of itself. */
async function watch({ target }: Server, seconds: number, signal: AbortSignal): Promise<Watched> {
  const from = performance.now();
  let [deferred, looks] = [0, 0];
  let first: Work | undefined;
  let last: Work | undefined;
  while (!signal.aborted && performance.now() < from + seconds * 1000) {
    const page = await (await fetch(`http://127.0.0.1:${target.port}/metrics`)).text();
    const of = (name: string): number => metricOf(page, `llamacpp:${name}`) ?? NaN;
    deferred = Math.max(deferred, of('requests_deferred'));
    looks += 1;
    last = { at: performance.now(), batches: of('n_decode_total'), tokens: of('tokens_predicted_total') };
    if (last.at >= from + LEARNING_S * 1000) first ??= last;
    await new Promise((later) => setTimeout(later, LOOK_MS));
  }
  const batches = (last?.batches ?? NaN) - (first?.batches ?? NaN);
  const tokens = (last?.tokens ?? NaN) - (first?.tokens ?? NaN);
  const elapsed = ((last?.at ?? NaN) - (first?.at ?? NaN)) / 1000;
  return { deferred, looks, tokensABatch: tokens / batches, batchesASecond: batches / elapsed };
}

function row({ tokens, seconds }: Part, server: Server, offered: number, runs: readonly Run[]): Row {
  const attempts = runs.map((run) => run.attempts);
  const p = measure(attempts, seconds, LEARNING_S);
  const seen = runs.flatMap(({ watched }) => watched ?? []);
  const first = measure(attempts, LEARNING_S);
  return {
    server: `${server.name}, ${tokens} tokens a reply`,
    'offered /s': offered,
    'good /s': p.good,
    'good /s at first': first.good,
    // Replies that ended after the learning may all have been sent before it.
    ...(!Number.isNaN(p.total) && { 'reply p50 ms': p.total, 'reply p99 ms': p.total99 }),
    refused: p.refused,
    'gave up': p.gone,
    'gave up at first': first.gone,
    broken: p.broken,
    'waited inside': shown(seen.map(({ deferred }) => deferred)),
    'tokens a batch': shown(seen.map(({ tokensABatch }) => tokensABatch)),
    'batches /s': shown(seen.map(({ batchesASecond }) => batchesASecond)),
    'light good /s': p.goodOf['light'] ?? 0,
    'light fair share /s': fairShare(ACCOUNTS.light * offered, ACCOUNTS.heavy * offered, p.good),
  };
}

/** The largest of the rounds; empty without any. */
function shown(values: readonly number[]): number | string {
  return values.length === 0 ? '' : Math.max(...values);
}
