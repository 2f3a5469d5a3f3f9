/** The running service under overload, beside llama-server and beside llama-server behind nginx. */
import { CHAT } from '../../test/support/sidecar.js';
import { chart, type Line, type Panel } from '../support/chart.js';
import { random150m } from '../support/models.js';
import { keep, keepFile, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import type { Attempt, Target } from './attempt.js';
import { served, settled, type ClosedLoop } from './closed-loop.js';
import type { Phase } from './generator.js';
import { codes, fairShare, measure, recovery, type Point } from './measures.js';
import { offer } from './offer.js';
import { behindNginx, llamaServer, needNginx, sidecar, type Server } from './servers.js';

const SEATS = 8;
const TOKENS = 32;
const FACTORS = [1, 3, 10];
/** All loads on all servers in turn, repeated so often: other work of the machine affects all of them. */
const ROUNDS = Number(process.argv[2] ?? 2);
/** `native`: the addon of `make engine-native` is in place. */
const build = process.argv[3] === 'native' ? 'native' : 'prebuilt';
/** Of a point. Eight replies end together: over 20 s one wave more or less is a tenth of what is served, so the rounds are summed up. */
const SECONDS = 20;
/** After the highest load: half of the capacity, for so long. */
const CALM = { factor: 0.5, seconds: 10 };
const PATIENCE_MS = 8000;
/** Seats, and as many again waiting; half of that for each key. */
const CONNECTIONS = { all: 2 * SEATS, perKey: SEATS };
const ACCOUNTS = { heavy: 0.8, light: 0.2 };
/** The closed loop that measures the capacity. */
const CLOSED: ClosedLoop = { callers: SEATS, seconds: 8, tokens: TOKENS };

/** The results of one server under one load, over all rounds. */
interface Measured {
  /** The attempts of each round. */
  readonly runs: Attempt[][];
  /** Of each round, if the quiet period follows. */
  readonly recoveredS: number[];
}

needNginx();
const sizes = { file: await random150m(), seats: SEATS, context: 512, threads: 1 };
const ours = await sidecar(sizes, Object.keys(ACCOUNTS));
const theirs = await llamaServer(sizes, Object.keys(ACCOUNTS));
const fronted = await behindNginx(theirs, CONNECTIONS);
const servers = [theirs, fronted, ours];

// Once to warm up, then in turn.
const closedLoops = new Map<Server, number[]>([
  [theirs, []],
  [ours, []],
]);
for (let i = 0; i < 3; i++) {
  for (const [server, rates] of closedLoops) {
    const rate = await served(server.target, CLOSED);
    if (i > 0) rates.push(rate);
  }
}
const rateOf = (server: Server): number => median(closedLoops.get(server) ?? []);
const capacity = rateOf(ours);
process.stdout.write(`replies a second at most: ours ${capacity.toFixed(2)}, theirs ${rateOf(theirs).toFixed(2)}\n`);
const measured = new Map(
  servers.map((server) => [server, FACTORS.map((): Measured => ({ runs: [], recoveredS: [] }))]),
);
try {
  for (let round = 0; round < ROUNDS; round++) {
    for (const [i, factor] of FACTORS.entries()) {
      for (const [server, loads] of measured) {
        const load = loads[i];
        if (load === undefined) continue;
        await point(server, factor, round, load);
        process.stdout.write(`${JSON.stringify(row(server, factor, load))}\n`);
        await settled(server.target, TOKENS);
      }
    }
  }
} finally {
  for (const server of [fronted, theirs, ours]) await server.close();
}

const rows = servers.flatMap((server) =>
  (measured.get(server) ?? []).map((one, i) => row(server, FACTORS[i] ?? NaN, one)),
);
await keep('overload', {
  title: 'Overload',
  about: [
    `150m model, ${SEATS} seats or slots, one compute thread, ${TOKENS} tokens a reply, whole; Poisson arrivals from a process of their own, ${SECONDS} s a point; callers give up after ${PATIENCE_MS / 1000} s. Two accounts: heavy sends ${ACCOUNTS.heavy * 100} % of the requests, light the rest. Times count from when a request was to be sent. The load is in multiples of ${capacity.toFixed(2)} replies a second, what ${CLOSED.callers} callers in a closed loop get of ra-sidecar; of llama-server they get ${rateOf(theirs).toFixed(2)}. ${ROUNDS} rounds of all loads on all servers.`,
    `ra-sidecar: default settings. nginx: \`limit_conn\` ${CONNECTIONS.all} for all callers together and ${CONNECTIONS.perKey} for each key, 429 for the rest. llama-server: the native build with OpenMP of \`make peers\`, no prompt cache, samples as our API does; ours runs the ${build} addon.`,
    'good: replies that were whole within their caller’s patience, a second, once the first two seconds are over. reply: the time to its end, of those replies alone. fair share: what max-min fairness would give the light account of what was good. recovered: at worst, seconds from the fall of the highest load to half of what can be served, to the sending of the last request that was not served in time.',
    'refused at once: those that never had a place in the queue, by the answer itself (`ra-queue` of 0 in Server-Timing; nginx’ own page, since limit_conn has no queue); after a wait: those that had one. Retry-After: that of refused requests, if any.',
  ],
  rows,
  conclusions: [conclusion(), refusedWith()],
});
await keepFile('overload.svg', drawn());
process.exit(0);

async function generate(target: Target, phases: readonly Phase[], round: number): Promise<Attempt[]> {
  return await offer({
    target,
    phases,
    accounts: ACCOUNTS,
    patienceMs: PATIENCE_MS,
    seed: Math.round((phases[0]?.perSecond ?? 0) * 1000) + round,
    model: CHAT,
    tokens: TOKENS,
  });
}

/** One load on one server. Latencies of the highest load exclude the quiet time after it. */
async function point(server: Server, factor: number, round: number, load: Measured): Promise<void> {
  const phase = { perSecond: factor * capacity, seconds: SECONDS };
  if (factor < Math.max(...FACTORS)) {
    load.runs.push(await generate(server.target, [phase], round));
    return;
  }
  const calm = { perSecond: CALM.factor * capacity, seconds: CALM.seconds };
  const attempts = await generate(server.target, [phase, calm], round);
  load.runs.push(attempts.filter(({ scheduledMs }) => scheduledMs < SECONDS * 1000));
  load.recoveredS.push(recovery(attempts, SECONDS * 1000));
}

function row({ name }: Server, factor: number, { runs, recoveredS }: Measured): Row {
  const offered = factor * capacity;
  const p = measure(runs, SECONDS);
  return {
    server: name,
    load: `${factor}x`,
    'offered /s': offered,
    'good /s': p.good,
    'reply p50 ms': p.total,
    'reply p99 ms': p.total99,
    refused: p.refused,
    'refusal p50 ms': known(p.refusal),
    'refusal p99 ms': known(p.refusal99),
    'refused at once': p.atOnce,
    'at once p50 ms': known(p.atOnce50),
    'at once p99 ms': known(p.atOnce99),
    'refused after a wait': p.afterWait,
    'Retry-After p50 s': known(p.retryAfter / 1000),
    'gave up': p.gone,
    broken: p.broken,
    'light good /s': p.goodOf['light'] ?? 0,
    'light fair share /s': lightShare(factor, p.good),
    'recovered s': known(recoveredS.length > 0 ? Math.max(...recoveredS) : NaN),
  };
}

/** The max-min fair share of the light account in `good` replies a second. */
function lightShare(factor: number, good: number): number {
  const offered = factor * capacity;
  return fairShare(ACCOUNTS.light * offered, ACCOUNTS.heavy * offered, good);
}

function known(value: number): number | string {
  return Number.isNaN(value) ? '' : value;
}

function goods(server: Server): number[] {
  return (measured.get(server) ?? []).map(({ runs }) => measure(runs, SECONDS).good);
}

function conclusion(): string {
  const kept = servers.map((server) => {
    const all = goods(server);
    return `${server.name} ${((all.at(-1) ?? NaN) / Math.max(...all)).toFixed(2)}`;
  });
  return `Of its own peak each keeps, at ${FACTORS.at(-1)} times the load: ${kept.join(', ')}.`;
}

function refusedWith(): string {
  const told = servers.map((server) => {
    const counts = Object.entries(codes((measured.get(server) ?? []).flatMap(({ runs }) => runs)));
    return `${server.name} ${counts.map(([code, count]) => `${code} ${count}`).join(', ') || 'none'}`;
  });
  return `Codes that were refused with: ${told.join('; ')}.`;
}

function drawn(): string {
  const lines = (value: (one: Point, factor: number) => number): Line[] =>
    servers.map((server) => ({
      name: server === fronted ? 'behind nginx' : server.name,
      points: (measured.get(server) ?? []).map((one, i) => {
        const load = FACTORS[i] ?? NaN;
        return { load, share: value(measure(one.runs, SECONDS), load) };
      }),
    }));
  const peak = Math.max(...servers.flatMap(goods));
  const panels: Panel[] = [
    { title: 'Served in time', unit: 'of the best seen', percent: true, lines: lines(({ good }) => good / peak) },
    {
      title: 'The light account',
      unit: 'served in time, of its fair share of the best seen; more counts as all',
      percent: true,
      lines: lines(({ goodOf }, factor) => Math.min(1, (goodOf['light'] ?? 0) / lightShare(factor, peak))),
    },
  ];
  return chart('Overload', `${SEATS} seats, callers give up after ${PATIENCE_MS / 1000} s`, panels);
}
