/**
 * Short and long prompts mixed, on two replicas of the sidecar beside two llama-servers behind nginx:
 * `node dist/bench/http/mixed-prompts.bench.js [native]`. Needs `make peers` and nginx; about seven minutes.
 */
import { Agent } from 'node:http';
import { availableParallelism } from 'node:os';
import { CHAT, Sidecar } from '../../test/support/sidecar.js';
import { behindNginx, llamaServer, needNginx } from '../overload/servers.js';
import { ask } from '../support/conversation.js';
import { closedLoop, openLoop, seeded } from '../support/load.js';
import { endlessEmbedded } from '../support/models.js';
import { NO_PROMPT_CACHE } from '../support/peers.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import type { Target } from '../support/streaming.js';
import { Teardowns } from '../support/teardowns.js';

/** The cores, one for each replica or llama-server. */
const CORES = ['0', '1'];
const SEATS = 4;
const CONTEXT = 4608;
const TOKENS = 32;
const SHORT_WORDS = 20;
const LONG_TOKENS = 4000;
/** One request in so many has a long prompt. */
const ONE_LONG_IN = 10;
/** Of the lower of both capacities. */
const LOAD = 0.7;
const ROUNDS = 3;
const SECONDS = 25;
/** Of the closed loop that measures a capacity: enough callers to fill all seats twice. */
const CLOSED = { callers: 2 * CORES.length * SEATS, replies: 200 };
/** No request is refused for its wait, since llama-server refuses none. */
const PATIENCE_MS = 600_000;
/** More requests than a round has. */
const MOST_OF_A_ROUND = 10_000;
const VOCABULARY = ['the', 'sea', 'and', 'sky', 'what', 'wind', 'over', 'water', 'when', 'night'];

/** `native`: the addon of `make engine-native` is in place. */
const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
needNginx();
if (availableParallelism() < CORES.length) throw new Error('two cores are needed, one for each replica');
const file = await endlessEmbedded();
const teardowns = new Teardowns();

async function ours(): Promise<Target> {
  const replicas = CORES.map((cores) => ({ cores }));
  const sizes = { seats: SEATS, contextPerSeat: CONTEXT, threads: 1, gpu: false, prefixReuse: 'off', replicas };
  const { port, key } = await Sidecar.start(teardowns, {
    config: {
      models: [{ id: CHAT, kind: 'chat', file, ...sizes }],
      queue: { maxWaitMs: PATIENCE_MS, waitingPerSeat: 1000 },
      development: { validateAnswers: false, learnedQueue: false },
    },
  });
  return { agent: new Agent(), port, key };
}

const one = { file, seats: SEATS, context: CONTEXT, threads: 1 };
const [first, second] = [
  await llamaServer({ ...one, cores: CORES[0] ?? '' }, [], ['--jinja', ...NO_PROMPT_CACHE]),
  await llamaServer({ ...one, cores: CORES[1] ?? '' }, [], ['--jinja', ...NO_PROMPT_CACHE]),
];
const inTurn = await behindNginx([first, second]);
const leastBusy = await behindNginx([first, second], { balance: 'least_conn' });
for (const server of [first, second, inTurn, leastBusy]) teardowns.teardown(() => server.close());
const fronted = ({ target }: typeof inTurn): Target => ({ agent: new Agent(), ...target });

const SIDECAR = 'ra-sidecar, two replicas';
const own = await ours();
const targets = new Map<string, Target>([
  [SIDECAR, own],
  [inTurn.name, fronted(inTurn)],
  [leastBusy.name, fronted(leastBusy)],
]);

const draws = seeded(1);
const isLong = Array.from({ length: ROUNDS * MOST_OF_A_ROUND }, () => draws() < 1 / ONE_LONG_IN);

/** The same for each server. No two have the same beginning. */
function prompt(i: number, words: number): object[] {
  const random = seeded(i);
  const some = Array.from({ length: words }, () => VOCABULARY[Math.floor(random() * VOCABULARY.length)]);
  return [{ role: 'user', content: `${i} ${some.join(' ')}` }];
}

/** Words of a prompt of LONG_TOKENS tokens, as the sidecar counts them. */
async function wordsOfLong(): Promise<number> {
  const sample = 1000;
  const tokens = async (words: number): Promise<number> =>
    (await ask(own, { model: CHAT, messages: prompt(0, words), max_tokens: 1 })).turn.promptTokens;
  const fixed = await tokens(0);
  return Math.floor(((LONG_TOKENS - fixed) * sample) / ((await tokens(sample)) - fixed));
}

const longWords = await wordsOfLong();
const body = (i: number): object => ({
  model: CHAT,
  messages: prompt(i, isLong[i] ? longWords : SHORT_WORDS),
  max_tokens: TOKENS,
  temperature: 0,
});

/** Replies a second that the callers of a closed loop get. */
async function capacityOf(target: Target): Promise<number> {
  const { replies, seconds } = await closedLoop(target, CLOSED.callers, CLOSED.replies, body);
  return replies.length / seconds;
}

/** Times to first text of one round, ms. */
interface Round {
  readonly short: readonly number[];
  readonly long: readonly number[];
}

async function measure(target: Target, perSecond: number, round: number): Promise<Round> {
  // The same requests at the same times for each server.
  const from = MOST_OF_A_ROUND * round;
  const { replies } = await openLoop(target, perSecond, SECONDS, seeded(round), (i) => body(from + i));
  const ttfts = replies.map(({ ttftMs }, i) => ({ ttftMs, long: isLong[from + i] }));
  return {
    short: ttfts.filter(({ long }) => !long).map(({ ttftMs }) => ttftMs),
    long: ttfts.filter(({ long }) => long).map(({ ttftMs }) => ttftMs),
  };
}

const capacities = new Map<string, number>();
for (const [name, target] of targets) {
  await closedLoop(target, CLOSED.callers, CLOSED.replies / 2, body);
  capacities.set(name, await capacityOf(target));
}
const perSecond = LOAD * Math.min(...capacities.values());
process.stdout.write(`replies a second at most: ${JSON.stringify(Object.fromEntries(capacities))}\n`);
const measured = new Map([...targets.keys()].map((name): [string, Round[]] => [name, []]));
for (let round = 0; round < ROUNDS; round += 1) {
  for (const [name, target] of targets) measured.get(name)?.push(await measure(target, perSecond, round));
}
await teardowns.run();

const all = ({ short, long }: Round): readonly number[] => [...short, ...long];
const of = (name: string, which: (round: Round) => readonly number[], share: number): number =>
  median((measured.get(name) ?? []).map((round) => quantile(which(round), share)));
const rows = [...targets.keys()].map((name): Row => ({
  server: name,
  'replies/s at most': capacities.get(name) ?? NaN,
  'TTFT p50 ms': of(name, all, 0.5),
  'TTFT p99 ms': of(name, all, 0.99),
  'short p50 ms': of(name, ({ short }) => short, 0.5),
  'short p99 ms': of(name, ({ short }) => short, 0.99),
  'long p50 ms': of(name, ({ long }) => long, 0.5),
  'long slowest ms': of(name, ({ long }) => long, 1),
}));
/** Ours over theirs, of each round’s pair. */
const ratio = (other: string): number =>
  median(
    (measured.get(SIDECAR) ?? []).map((round, i) => {
      const theirs = measured.get(other)?.[i];
      return quantile(all(round), 0.99) / (theirs ? quantile(all(theirs), 0.99) : NaN);
    }),
  );
await keep(build === 'native' ? 'mixed-prompts-native' : 'mixed-prompts', {
  title: `Short and long prompts mixed, two replicas beside nginx before two llama-servers, ${build} addon`,
  about: [
    `Streaming chat over HTTP: one request in ${ONE_LONG_IN} has a prompt of some ${LONG_TOKENS} tokens, the others one of ${SHORT_WORDS} words; greedy replies of ${TOKENS} tokens, a llama model of 3 million weights, no prompt reuse on either side. Two engine processes of one compute thread on a core each, of ${SEATS} seats of ${CONTEXT} tokens; so are the slots of the llama-servers. Poisson arrivals, ${perSecond.toFixed(1)} a second: ${LOAD} of the lowest rate that ${CLOSED.callers} callers in a closed loop get. ${ROUNDS} rounds of ${SECONDS} s, the servers in turn, each with the same requests at the same times; each column is the median of the rounds.`,
    'TTFT: from when the request was due to the first text. A round has some 30 long prompts, so the slowest of them is shown. No server refuses a request. llama-server is the native build with OpenMP of `make peers`. Callers, nginx and the sidecar share the two cores with the engines.',
  ],
  rows,
  conclusions: [
    `p99 over all requests, ours in relation to theirs, median of the pairs: ${ratio(inTurn.name).toFixed(2)} of nginx in turn, ${ratio(leastBusy.name).toFixed(2)} of nginx with least_conn.`,
  ],
});
process.exit(0);
