/** Reuse of conversations on replicas, by placement, in simulated time: `node dist/bench/admission/conversations.bench.js`. */
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import { talk, type Talks } from './conversations.js';

const TALKS = { conversations: 64, turns: 8, tokenMs: 0.5, stepMs: 20, loadFactor: 2, seed: 1 } as const;
const FOUR = [16, 16, 16, 16];
/** How many times as long everything takes on each of the replicas. */
const HALF_SLOWER = [1, 1, 2, 2];
const ONE_SLOWER = [1, 1, 1, 3];
const CASES: readonly (readonly [string, Pick<Talks, 'replicas' | 'by' | 'slower' | 'observed'>])[] = [
  ['one engine with all seats', { replicas: [64], by: 'queue' }],
  ['four replicas, one queue', { replicas: FOUR, by: 'queue' }],
  ['four replicas, by known costs', { replicas: FOUR, by: 'costs' }],
  ['four replicas, by known costs and losses', { replicas: FOUR, by: 'costs-and-loss' }],
  ['four sidecars in turn', { replicas: FOUR, by: 'round-robin' }],
  ['four sidecars, the least busy', { replicas: FOUR, by: 'least-busy' }],
  ['two of four twice as slow', { replicas: FOUR, by: 'queue', slower: HALF_SLOWER }],
  ['two of four twice as slow, not learned', { replicas: FOUR, by: 'queue', slower: HALF_SLOWER, observed: false }],
  ['one of four three times as slow', { replicas: FOUR, by: 'queue', slower: ONE_SLOWER }],
  [
    'one of four three times as slow, not learned',
    { replicas: FOUR, by: 'queue', slower: ONE_SLOWER, observed: false },
  ],
];

const rows: Row[] = [];
for (const thinkMs of [8000, 1000]) {
  for (const [what, where] of CASES) {
    const { reused, ttftMs, replyMs, untilMs } = await talk({ ...TALKS, thinkMs, ...where });
    rows.push({
      'mean pause, s': thinkMs / 1000,
      what,
      'share of prompt tokens reused': reused,
      'TTFT p50 ms': quantile(ttftMs, 0.5),
      'TTFT p99 ms': quantile(ttftMs, 0.99),
      'reply mean, s': replyMs.reduce((sum, ms) => sum + ms, 0) / replyMs.length / 1000,
      'until the last reply, s': untilMs / 1000,
    });
  }
}

await keep('conversations', {
  title: 'Conversations on four replicas',
  simulated: true,
  about: [
    `${TALKS.conversations} conversations of ${TALKS.turns} turns on stand-in engines with 64 seats in all: a prompt token takes ${TALKS.tokenMs} ms, a token of a reply ${TALKS.stepMs} ms, up to ${TALKS.loadFactor} times that on a full replica. Questions of 40 to 200 tokens, replies of 60 to 260, a beginning of 256 that all share. No host memory: a prefix is where its seat is. By known costs: the queue places by milliseconds, of the prompt's tokens that are computed and of what the busy seats add to the reply, by the stand-ins' true times, which a queue could only learn; and losses: with the tokens that the request overwrites. Twice as slow: a token of a prompt and of a reply takes twice as long on that replica; the queue learns that from how long a reply's tokens take (\`sidecar/admission/seats.ts\`), or, not learned, observes none. The four sidecars are what a proxy before four sidecars or servers does, with slots chosen by the longest prefix.`,
  ],
  rows,
});
