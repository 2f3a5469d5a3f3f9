/**
 * Replies that arrive whole while one of four replicas, drawn at random, is killed every 5 s, beside three replicas of which none is:
 * `node dist/bench/http/replica-kills.bench.js`; four minutes. Stand-in engines, whose speed no other work takes.
 */
import { setTimeout as pass } from 'node:timers/promises';
import { chatBody, InProcess } from '../../test/support/in-process.js';
import { seeded } from '../support/load.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const SEATS = 8;
const TOKENS = 40;
/** As many as keep all seats of four replicas taken, and half as many that wait. */
const CALLERS = 1.5 * 4 * SEATS;
const ROUNDS = 3;
/** Of one round with kills: in all rounds together 24 kills in two minutes. */
const KILLS = 8;
const KILL_EVERY_MS = 5000;
/** Of one round without kills. */
const STEADY_MS = 20_000;
/** The goal: of what three replicas serve. */
const GOAL = 0.9;

interface Round {
  /** Whole replies a second. */
  readonly perSecond: number;
  readonly whole: number;
  /** Ended with exactly one error, as a frame of the stream or in place of the answer. */
  readonly cut: number;
  /** Ended in another way. */
  readonly wrong: number;
  /** Jobs that the killed engines had. */
  readonly running: number;
}

async function measure(
  replicas: number,
  underLoad: (kill: (replica: number) => void) => Promise<void>,
): Promise<Round> {
  const teardowns = new Teardowns();
  const sidecar = await InProcess.start(teardowns, {
    models: [{ id: 'm', kind: 'chat', seats: SEATS, replicas }],
    config: {
      queue: { maxWaitMs: 60_000, waitingPerSeat: 100 },
      development: { validateAnswers: false, learnedQueue: false },
    },
  });
  const counts = { whole: 0, cut: 0, wrong: 0 };
  let ends = false;
  const call = async (): Promise<void> => {
    while (!ends) {
      const asked = chatBody('m', 'steady', { max_tokens: TOKENS, stream: true });
      const { status, body } = await sidecar.post('/v1/chat/completions', { ...asked });
      const frames = body.split('\n\n').filter((frame) => frame.startsWith('data: '));
      const errors = frames.filter((frame) => frame.includes('"error"')).length;
      const texts = frames.filter((frame) => frame.includes(' steady')).length;
      if (status === 200 && errors === 0 && texts === TOKENS && frames.at(-1) === 'data: [DONE]') counts.whole += 1;
      else if (status === 502 || (status === 200 && errors === 1)) counts.cut += 1;
      else counts.wrong += 1;
    }
  };
  const from = performance.now();
  const calling = Array.from({ length: CALLERS }, call);
  await underLoad((replica) => {
    const line = sidecar.lines.findLast(({ event, ...it }) => event === 'engine forked' && it['replica'] === replica);
    process.kill(Number(line?.['pid']), 'SIGKILL');
  });
  const seconds = (performance.now() - from) / 1000;
  const perSecond = counts.whole / seconds;
  ends = true;
  await Promise.all(calling);
  const lost = sidecar.lines.filter(({ event }) => event === 'engine lost');
  const running = lost.reduce((sum, { count }) => sum + Number(count), 0);
  await teardowns.run();
  return { ...counts, perSecond, running };
}

const random = seeded(7);
const pairs: { three: Round; four: Round }[] = [];
for (let round = 0; round < ROUNDS; round += 1) {
  const three = await measure(3, () => pass(STEADY_MS));
  const four = await measure(4, async (kill) => {
    for (let kills = 0; kills < KILLS; kills += 1) {
      await pass(KILL_EVERY_MS);
      kill(Math.floor(random() * 4));
    }
    await pass(KILL_EVERY_MS);
  });
  pairs.push({ three, four });
}
const row = (what: string, of: (pair: (typeof pairs)[number]) => Round): Row => {
  const sum = (count: (round: Round) => number): number => pairs.reduce((total, pair) => total + count(of(pair)), 0);
  return {
    what,
    'whole replies/s': median(pairs.map((pair) => of(pair).perSecond)),
    'to three replicas': median(pairs.map((pair) => of(pair).perSecond / pair.three.perSecond)),
    'whole replies': sum(({ whole }) => whole),
    'ended with one error': sum(({ cut }) => cut),
    'jobs that the killed engines had': sum(({ running }) => running),
    'ended otherwise': sum(({ wrong }) => wrong),
  };
};
await keep('replica-kills', {
  title: 'Replies while replicas are killed',
  about: [
    `Stand-in engines of ${SEATS} seats, replies of ${TOKENS} tokens that come every 12.5 ms, ${CALLERS} callers of streams in a closed loop. Every ${KILL_EVERY_MS / 1000} s one of four replicas, drawn at random, is killed with SIGKILL from outside, ${KILLS * ROUNDS} times in all; its engine is started again with default settings. Three replicas serve the same callers undisturbed for ${STEADY_MS / 1000} s. Medians and sums of ${ROUNDS} rounds of each, in turn. The goal is ${GOAL} of what three replicas serve, and that only jobs of the killed engines end with an error.`,
  ],
  rows: [row('three replicas', ({ three }) => three), row('four replicas, one killed every 5 s', ({ four }) => four)],
});
process.exit(0);
