/** Three sidecars behind a picker that reads only their metrics, beside the same picker in turn. */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { PACED_MS } from '../../test/support/stub-script.js';
import type { Attempt } from '../overload/attempt.js';
import { messageOf } from '../support/children.js';
import { chart, type Panel } from '../support/chart.js';
import { keep, keepFile, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';
import { MODEL, SIDECARS, startFleet, startPicker } from './fleet.js';
import type { Kind, Load, Stream } from './generator.js';
import type { Policy } from './picker.js';

/** Rounds of all policies at all loads, in turn, and seconds of each. */
const ROUNDS = Number(process.argv[2] ?? 2);
const SECONDS = Number(process.argv[3] ?? 15);
const SEATS = 4;
/** As a part of what all seats can serve: at the lowest few wait, at the highest nearly all do. */
const FACTORS = [0.5, 0.7, 0.9];
const KINDS: readonly Kind[] = [
  { name: 'short', share: 0.8, tokens: 16 },
  { name: 'long', share: 0.2, tokens: 256 },
];
/** The part of all work that a caller sends to the first sidecar without the picker. */
const BOUND = 0.2;
const BOUND_KIND: Kind = { name: 'bound', share: 1, tokens: 256 };
/** Tokens a second, all seats taken. */
const CAPACITY = (SIDECARS * SEATS * 1000) / PACED_MS;

const GENERATOR = fileURLToPath(new URL('./generator.js', import.meta.url));
const POLICIES: readonly { readonly name: string; readonly policy: Policy }[] = [
  { name: 'round robin', policy: { kind: 'round robin' } },
  { name: 'queue, KV tokens', policy: { kind: 'scores', kvUsage: 'ra_sidecar_endpoint_kv_usage_ratio' } },
  { name: 'queue, seats', policy: { kind: 'scores', kvUsage: 'ra_sidecar_endpoint_seat_usage_ratio' } },
];

interface Measured {
  readonly name: string;
  readonly factor: number;
  /** Of the picked requests, over all rounds. */
  readonly ttfts: number[];
  /** The p99 of each round. */
  readonly ttft99s: number[];
  readonly picked: number[];
  failed: number;
}

const fleet = await startFleet(SEATS);
const measured: Measured[] = POLICIES.flatMap(({ name }) =>
  FACTORS.map((factor) => ({ name, factor, ttfts: [], ttft99s: [], picked: [0, 0, 0], failed: 0 })),
);
try {
  for (let round = 0; round < ROUNDS; round++) {
    for (const factor of FACTORS) {
      // Each comes first in turn: other work of the machine affects all.
      const first = round % POLICIES.length;
      for (const { name, policy } of [...POLICIES.slice(first), ...POLICIES.slice(0, first)]) {
        const one = measured.find((each) => each.name === name && each.factor === factor);
        if (one) await point(policy, round, one);
      }
    }
  }
} finally {
  fleet.close();
}

await keep('picker', {
  title: 'Three sidecars behind an endpoint picker',
  about: [
    `${SIDECARS} sidecars with ${SEATS} seats each, behind a process that picks one for each request and passes it through. Their engines are stand-ins that hold a seat ${PACED_MS} ms for each token of a reply and compute nothing, so that each is as fast as on a machine of its own; all else is real. round robin: in turn. The others: as the endpoint picker of the Gateway API Inference Extension by default, the sum of its queue score and its KV score, from the sidecars' own \`/metrics\`, read every 50 ms; they differ in what is configured as KV utilization: the tokens of running requests (\`ra_sidecar_endpoint_kv_usage_ratio\`) or the seats held (\`ra_sidecar_endpoint_seat_usage_ratio\`).`,
    `Open loop, Poisson arrivals, ${SECONDS} s a point, ${ROUNDS} rounds of all loads and policies, the same requests at the same times for each policy: ${KINDS.map(({ name, share, tokens }) => `${share * 100} % ${name} (${tokens} tokens)`).join(', ')}. Besides, ${BOUND * 100} % of the work is long replies that a caller sends to the first sidecar itself, so that queues differ. The load is in multiples of the ${CAPACITY} tokens a second that all seats make.`,
    'TTFT: of the requests that were picked for, of all rounds, from when a request was to be sent to its first text. Lowest and highest p99: of single rounds. picked: how many each sidecar was given.',
  ],
  rows: measured.map(row),
  conclusions: [conclusion()],
});
await keepFile('picker.svg', drawn());
process.exit(0);

function meanTokens(kinds: readonly Kind[]): number {
  return kinds.reduce((sum, { share, tokens }) => sum + share * tokens, 0);
}

async function point(policy: Policy, round: number, one: Measured): Promise<void> {
  const seed = Math.round(one.factor * 100) + round;
  const front = await startPicker(fleet, policy, seed);
  const work = one.factor * CAPACITY;
  const streams: Stream[] = [
    { port: front.port, perSecond: ((1 - BOUND) * work) / meanTokens(KINDS), kinds: KINDS },
    { port: fleet.ports[0] ?? 0, perSecond: (BOUND * work) / BOUND_KIND.tokens, kinds: [BOUND_KIND] },
  ];
  const [attempts = []] = await generate({ streams, seconds: SECONDS, model: MODEL, seed });
  const ttfts = attempts.filter(({ end }) => end === 'good').map(({ ttftMs }) => ttftMs);
  one.ttfts.push(...ttfts);
  one.ttft99s.push(quantile(ttfts, 0.99));
  one.failed += attempts.length - ttfts.length;
  for (const [i, count] of (await front.picked()).entries()) one.picked[i] = (one.picked[i] ?? 0) + count;
  front.close();
  await fleet.idle();
  process.stdout.write(`${JSON.stringify(row(one))}\n`);
}

async function generate(load: Load): Promise<Attempt[][]> {
  const child = fork(GENERATOR);
  child.send(load);
  const attempts = await messageOf<Attempt[][]>(child);
  child.disconnect();
  return attempts;
}

function row({ name, factor, ttfts, ttft99s, picked, failed }: Measured): Row {
  return {
    policy: name,
    load: `${factor}x`,
    requests: ttfts.length,
    'TTFT p50 ms': median(ttfts),
    'TTFT p90 ms': quantile(ttfts, 0.9),
    'TTFT p99 ms': quantile(ttfts, 0.99),
    'lowest p99': Math.min(...ttft99s),
    'highest p99': Math.max(...ttft99s),
    picked: picked.join(' / '),
    failed,
  };
}

function p99(name: string, factor: number): number {
  return quantile(measured.find((one) => one.name === name && one.factor === factor)?.ttfts ?? [], 0.99);
}

function conclusion(): string {
  const each = POLICIES.slice(1).map(({ name }) => {
    const shares = FACTORS.map((factor) => p99(name, factor) / p99('round robin', factor));
    const held = shares.every((share) => share < 1) ? 'better at every load' : 'not better at every load';
    return `${name} ${shares.map((share) => share.toFixed(2)).join(', ')}: ${held}`;
  });
  return `p99 TTFT as a part of round robin's, at ${FACTORS.join(', ')} times the load: ${each.join('; ')}.`;
}

function drawn(): string {
  const panel = (title: string, unit: string, value: (one: Measured) => number): Panel => {
    const worst = Math.max(...measured.map(value));
    const lines = POLICIES.map(({ name }) => ({
      name,
      points: measured
        .filter((one) => one.name === name)
        .map((one) => ({ load: one.factor, share: value(one) / worst })),
    }));
    return { title, unit: `${unit} (${(worst / 1000).toFixed(2)} s); lower is better`, percent: true, lines };
  };
  const panels = [
    panel('p99 time to first token', 'of the worst seen', ({ ttfts }) => quantile(ttfts, 0.99)),
    panel('p90 time to first token', 'of the worst seen', ({ ttfts }) => quantile(ttfts, 0.9)),
  ];
  return chart('Endpoint picker', `${SIDECARS} sidecars, ${SEATS} seats each, short and long replies`, panels);
}
