/**
 * The running service with its default settings against callers of unknown patience, beside the best fixed `queue.maxWaitMs`,
 * llama-server alone, behind nginx tuned for the case, and behind nginx left alone:
 *
 *     node dist/bench/overload/patience.bench.js ROUNDS MINUTES     stops after so many minutes, goes on when called again
 *
 * Half of the callers wait for the end of a whole reply and half for the first token of a stream. llama-server and nginx are measured
 * in the first round alone: they are far from the others. Three rounds take 100 minutes. Once all points are there the table
 * is written to bench/results.
 */
import { CHAT } from '../../test/support/sidecar.js';
import { random150m } from '../support/models.js';
import { NO_PROMPT_CACHE } from '../support/peers.js';
import { forget, inPieces } from '../support/pieces.js';
import { keep } from '../support/results.js';
import type { Attempt, Target } from './attempt.js';
import { served, settled } from './closed-loop.js';
import { measure, waits } from './measures.js';
import { offer } from './offer.js';
import { type Done, rowsOf, verdict } from './patience-table.js';
import { behindNginx, llamaServer, needNginx, sidecar, type Server } from './servers.js';

const ROUNDS = Number(process.argv[2] ?? 3);
const MINUTES = Number(process.argv[3] ?? 10);
const SEATS = 8;
const TOKENS = 32;
/**
 * Of a point: what is counted, and the least time before it, in which the queue learns and that is not counted. All seats often
 * end their replies together, so a shorter count would depend on whether one such end more is in it.
 */
const COUNTED_S = 25;
const LEARNING_S = 15;
/** The time to learn, as a part of the patience: no caller has left before it is over. */
const LEARNING = 1.5;
const PATIENCES_MS = [4000, 8000, 20_000];
const LOADS = [1, 3, 10];
/** Fixed waits, as parts of the patience; the best of them counts. */
const FIXED = [0.125, 0.25, 0.5];
const ACCOUNTS = { heavy: 0.8, light: 0.2 };
/** In the first round alone. */
const PEERS = ['llama-server', 'nginx tuned', 'nginx'];
/** nginx tuned: so much of the patience may pass in its connections. */
const TUNED = 0.6;

/** Kept until the result is written. */
const NAME = 'overload-patience';
const CAPACITY = `${NAME}-capacity`;

interface Place extends Pick<Done, 'round' | 'patienceMs' | 'load' | 'server'> {
  readonly open: () => Promise<Server>;
}

needNginx();
const until = performance.now() + MINUTES * 60_000;
const sizes = { file: await random150m(), seats: SEATS, context: 512, threads: 1 };
const names = Object.keys(ACCOUNTS);
const theirs = await llamaServer(sizes, names, NO_PROMPT_CACHE);
const [capacity = NaN] = await inPieces(CAPACITY, 1, capacityOf);
const places = Array.from({ length: ROUNDS }, (_, round) =>
  PATIENCES_MS.flatMap((patienceMs) => LOADS.flatMap((load) => placesOf(round, patienceMs, load))),
).flat();
const done = await inPieces(NAME, places.length, async (i) => {
  const place = places[i];
  if (place === undefined || performance.now() > until) {
    await theirs.close();
    process.stdout.write('more to do: call it again\n');
    process.exit(0);
  }
  const one = await pointOf(place);
  process.stdout.write(`${JSON.stringify(one)}\n`);
  return one;
});
await theirs.close();
await keep(NAME, {
  title: 'Overload: callers whose patience is not known',
  about: [
    `150m model, ${SEATS} seats or slots, one compute thread, ${TOKENS} tokens a reply; Poisson arrivals. ${COUNTED_S} s of each point are counted, after ${LEARNING} of the patience and at least ${LEARNING_S} s, since each point starts a sidecar that has learned nothing. Half of the callers, drawn by chance, leave unless they have a whole reply in time, half unless they have the first token of a stream. Replies count if they ended after the learning. Two accounts: heavy sends ${ACCOUNTS.heavy * 100} % of the requests. The load is in multiples of ${capacity.toFixed(2)} replies a second. ${ROUNDS} rounds, medians; llama-server and nginx in the first round alone.`,
    `ra-sidecar: default settings. Best fixed: of \`queue.maxWaitMs\` at ${FIXED.join(', ')} of the patience, without what the queue learns. nginx tuned: \`limit_conn\` for as many connections as are served in ${TUNED} of the patience; nginx: without.`,
    'p99: of the default settings, over the requests of all rounds that were not refused. A caller who left, or whose connection broke, before the first token, or before the end of a whole reply, counts as one who waits for ever.',
  ],
  rows: rowsOf(done),
  conclusions: [verdict(done)],
});
for (const name of [NAME, CAPACITY]) await forget(name);
process.exit(0);

/** What is compared, by name; each is started for its point, except llama-server. */
function servers(patienceMs: number): Record<string, () => Promise<Server>> {
  const all = Math.max(SEATS, Math.round((capacity * patienceMs * TUNED) / 1000));
  const fixed = FIXED.map((part) => {
    const maxWaitMs = Math.max(100, Math.round(part * patienceMs));
    return [`fixed ${part}`, () => sidecar(sizes, names, { maxWaitMs })] as const;
  });
  return {
    'ra-sidecar': () => sidecar(sizes, names),
    ...Object.fromEntries(fixed),
    'llama-server': () => Promise.resolve(theirs),
    'nginx tuned': () => behindNginx([theirs], { connections: { all, perKey: all } }),
    nginx: () => behindNginx([theirs]),
  };
}

/** One case with each server; with the peers in the first round alone. */
function placesOf(round: number, patienceMs: number, load: number): Place[] {
  return Object.entries(servers(patienceMs))
    .filter(([server]) => round === 0 || !PEERS.includes(server))
    .map(([server, open]) => ({ round, patienceMs, load, server, open }));
}

async function pointOf({ open, ...place }: Place): Promise<Done> {
  const { round, patienceMs, load } = place;
  const server = await open();
  const learningS = Math.max(LEARNING_S, (LEARNING * patienceMs) / 1000);
  const seconds = learningS + COUNTED_S;
  const attempts = await generate(server.target, { load, patienceMs, round, seconds });
  if (PEERS.includes(place.server)) await settled(server.target, TOKENS);
  if (server !== theirs) await server.close();
  const { good, refused, gone } = measure([attempts], seconds, learningS);
  return {
    ...{ ...place, capacity, good, refused, gone },
    firstTokens: waits(attempts, 'first-token', seconds, learningS),
    wholes: waits(attempts, 'end', seconds, learningS),
  };
}

async function capacityOf(): Promise<number> {
  const ours = await sidecar(sizes, names);
  const loop = { callers: SEATS, seconds: 12, tokens: TOKENS };
  await served(ours.target, loop);
  const rate = await served(ours.target, loop);
  await ours.close();
  return rate;
}

interface Case {
  readonly load: number;
  readonly patienceMs: number;
  readonly round: number;
  readonly seconds: number;
}

async function generate(target: Target, { load, patienceMs, round, seconds }: Case): Promise<Attempt[]> {
  return await offer({
    target,
    phases: [{ perSecond: load * capacity, seconds }],
    accounts: ACCOUNTS,
    patienceMs,
    awaits: 'each',
    seed: Math.round(load * 1000) + round,
    model: CHAT,
    tokens: TOKENS,
  });
}
