/**
 * The seat queue beside other queue disciplines under overload: `node dist/bench/admission/admission.bench.js`, part of
 * `make bench`.
 */
import { keep, keepFile, markdown, type Row } from '../support/results.js';
import { shown } from '../support/stats.js';
import { chart, type Panel } from '../support/chart.js';
import { goals } from './goals.js';
import { predictionErrors } from './measures.js';
import { ours } from './policies.js';
import {
  ALL_OVER,
  LOADS,
  MEASURED_MS,
  NEAR_SHARE,
  ONE_LENGTH,
  PATIENCE_MS,
  POLICIES,
  SEATS,
  TWO_LENGTHS,
  results,
  run,
  type Result,
} from './scenarios.js';
import { BY_MILLISECONDS, BY_SECONDS, recovery, truthInSilence, truthUnderLoad, type Truth } from './surge.js';
import { HEAVY } from './traffic.js';

const CHART = 'admission.svg';

function panel(title: string, unit: string, of: readonly Result[], share: (result: Result) => number): Panel {
  const lines = POLICIES.map((policy) => ({
    name: policy.name,
    points: of
      .filter((result) => result.policy === policy)
      .map((result) => ({ load: result.load, share: share(result) })),
  }));
  return { title, unit, percent: unit.startsWith('share'), lines };
}

function row({ mix, load, policy, ...figures }: Result): Row {
  const cell = (value: number): string => (Number.isNaN(value) ? '–' : value.toFixed(3));
  return {
    mix: mix.name,
    load,
    policy: policy.name,
    goodput: cell(figures.goodput),
    'light served': cell(figures.lightServed),
    Jain: cell(figures.jain),
    'Jain of shares': cell(figures.jainOfShares),
    'timed out': cell(figures.timedOut),
    'of heavy’s': cell(figures.heavyTimedOut),
    refused: cell(figures.refused),
    'pushed out': cell(figures.pushedOut),
    'light p99 wait, s': Number.isNaN(figures.lightWait99) ? '–' : shown(figures.lightWait99),
  };
}

const oneLength = await results(ONE_LENGTH);
const allOver = await results(ALL_OVER);
const all = [...oneLength, ...(await results(NEAR_SHARE)), ...(await results(TWO_LENGTHS)), ...allOver];

const recoveries: Row[] = [];
for (const policy of POLICIES) {
  const { median, worst } = await recovery(policy);
  recoveries.push({ policy: policy.name, 'median recovery, s': median.toFixed(1), 'worst, s': worst.toFixed(1) });
}

const truths: Row[] = [];
for (const [header, reported] of [
  ['Retry-After, whole seconds', BY_SECONDS],
  ['retry-after-ms', BY_MILLISECONDS],
] as const) {
  const add = (meanwhile: string, { retries, letIn, served }: Truth): void => {
    const shares = { 'let in': letIn.toFixed(3), 'served in time': served.toFixed(3) };
    truths.push({ header, 'its account meanwhile': meanwhile, retries, ...shares });
  };
  add('sends nothing', await truthInSilence(ours, reported));
  for (const load of [2, 4, 10]) add(`goes on, load ${load}`, await truthUnderLoad(ours, reported, load));
}

const forecasts: Row[] = [];
for (const mix of [ONE_LENGTH, NEAR_SHARE, TWO_LENGTHS, ALL_OVER])
  for (const load of [1.5, 4, 10]) {
    const visits = await run(ours, mix, load);
    for (const [who, of] of [
      ['heavy', visits.filter(({ account }) => account === HEAVY)],
      ['light', visits.filter(({ account }) => account !== HEAVY)],
    ] as const) {
      const { foretold, wait, bias, off50, off90 } = predictionErrors(of);
      const figures = { 'mean wait, s': wait, 'bias, s': bias, 'half within, s': off50, '9 of 10 within, s': off90 };
      forecasts.push({ mix: mix.name, load, who, foretold, ...figures });
    }
  }

await keepFile(
  CHART,
  chart(
    'Which requests are served under overload',
    `${SEATS} seats, ten accounts, one of them heavy; clients wait ${PATIENCE_MS / 1000} s at most; ${MEASURED_MS / 60_000} simulated minutes a point.`,
    [
      panel('Goodput', 'share of seat time of clients who had not left', oneLength, ({ goodput }) => goodput),
      panel(
        'Light accounts served',
        'share of their requests that got a seat in time',
        oneLength,
        ({ lightServed }) => lightServed,
      ),
      panel(
        'Admitted in vain',
        'share of the admitted whose client left unserved',
        oneLength,
        ({ timedOut }) => timedOut,
      ),
      panel('Fairness', 'Jain index of seat time, all accounts over their share', allOver, ({ jain }) => jain),
    ],
  ),
);
await keep('admission', {
  title: 'The admission discipline beside others',
  simulated: true,
  about: [
    `![Goodput, light accounts’ service, requests let in for nothing and fairness against the load](${CHART})`,
    `A simulation on a clock that jumps: ${SEATS} seats, Poisson arrivals that wait for nothing and never retry, log-normal hold times of 1 s on average, ten accounts of equal weight, clients that wait ${PATIENCE_MS / 1000} s for their seat. Each figure is over ${MEASURED_MS / 60_000} simulated minutes after one of warming up, all policies with the same arrivals. Deterministic.`,
    `*One heavy*: nine light accounts ask for half their equal share each, the heavy one for the rest of the load (${LOADS.join(', ')} times what the seats can serve). *Near their share*: the light ones ask for 0.8 of it each, so most seats that the heavy one has are lent. *Two lengths*: as one heavy, with one request in five 8.5 times as long as the others. *All over their share*: the light ones ask for 1.25 times their share each; half of the accounts, the heavy one too, send requests four times as long as the others’; not at 0.9 times the load, which the light ones alone would pass.`,
    '*FIFO*: the queue has no bound and no cancel, so it serves callers that have left, too. *FIFO with cap*: at most 8 requests wait for each seat. *Round robin* takes requests in turn over accounts; *VTC* is the virtual token counter of OSDI 2024, with exact prices, which flatters it. All but the first drop each request that has waited as long as its client does (TTL). *ra-sidecar*: the queue of `sidecar/admission` with the config that it ships with.',
    'Goodput: seat time of replies that began while their client was there, over all seat time. Light served: of the light accounts’ requests. Jain: of seat time, over the accounts that ask for more than their share; – where that is the heavy one alone, which leaves nothing to compare. Jain of shares: of seat time over what max-min fairness gives of the seats, over all ten. Timed out: of those let in, the clients that waited to the end and had nothing; then the same of the heavy account’s alone. Refused: at once. Pushed out: let in, and dropped for another before the client’s patience ended.',
  ],
  rows: all.map(row),
  conclusions: [
    '## The goals of docs/admission.md',
    markdown(
      goals(
        all.filter(({ policy }) => policy === ours),
        await recovery(ours),
      ),
    ),
    '## Recovery',
    `From the end of a minute at twice the load, with half the load from then on, until no request is refused or times out any more. Twenty runs each.`,
    markdown(recoveries),
    '## Accuracy of predicted waits',
    'The wait that ra-sidecar predicted when a request arrived, compared with the actual one, over seated requests that waited. Bias: predicted less actual, on average.',
    markdown(forecasts),
    '## Accuracy of Retry-After',
    'Of the requests that ra-sidecar refuses, some are retried once, after their Retry-After. It says when there is room for one more request of the same account. While the load stays, other requests of that account may arrive first and take that room.',
    markdown(truths),
  ],
});
