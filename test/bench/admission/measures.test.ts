import t from 'tap';
import { jain, maxMin, measure, predictionErrors, timedOut, turnedAway } from '../../../bench/admission/measures.js';
import type { SimulatedRequest } from '../../../bench/admission/simulate.js';

const PATIENCE_MS = 10_000;
const WINDOW = { fromMs: 10_000, toMs: 30_000, seats: 2, patienceMs: PATIENCE_MS };

function visit(
  account: string,
  atMs: number,
  fate: SimulatedRequest['fate'],
  settledAt: number,
  holdMs = 1000,
): SimulatedRequest {
  return { account, atMs, holdMs, fate, settledAt, retryAfterMs: 0, predictedMs: undefined, retries: undefined };
}

t.test('seat time within the window is counted, also of seats taken before it', async (t) => {
  const visits = [
    visit('heavy', 0, 'seated', 5000, 10_000), // 5 s of it inside
    visit('heavy', 12_000, 'seated', 12_000, 4000),
    visit('light-1', 13_000, 'seated', 24_000, 3000), // its client has left
    visit('light-1', 29_000, 'seated', 29_000, 9000), // 1 s inside
  ];
  const accounts = ['heavy', 'light-1', 'light-2'].map((name, i) => ({
    name,
    demand: i < 2 ? 1 : 0.1,
    lengths: { meanMs: 1000 },
  }));
  const { goodput, jain: fairness, jainOfShares } = measure(visits, accounts, WINDOW);
  t.equal(goodput, (5 + 4 + 1) / 40);
  t.equal(fairness, jain([9, 4]), 'wasted seat time counts; accounts with a small demand are left out');
  t.equal(jainOfShares, jain([9 / 0.45, 4 / 0.45, 0]), 'each account with its share under max-min fairness');
});

t.test('requests are counted if they arrive within the window, retries are not counted', async (t) => {
  const visits = [
    visit('light-1', 9999, 'refused', 9999),
    visit('light-1', 10_000, 'seated', 12_000),
    visit('light-2', 20_000, 'waiting', Infinity),
    visit('light-2', 20_000, 'dropped', 24_000),
    visit('heavy', 20_000, 'dropped', 30_000),
    visit('heavy', 21_000, 'seated', 31_001),
    visit('heavy', 21_000, 'seated', 31_000),
    visit('heavy', 22_000, 'refused', 22_000),
    visit('heavy', 30_000, 'refused', 30_000),
    { ...visit('light-1', 25_000, 'refused', 25_000), retries: visit('light-1', 11_000, 'refused', 11_000) },
  ];
  const figures = measure(visits, [], WINDOW);
  t.equal(figures.lightServed, 1 / 3);
  t.equal(figures.timedOut, 3 / 6, 'waiting, dropped at the end, seated late');
  t.equal(figures.heavyTimedOut, 2 / 3);
  t.equal(figures.refused, 1 / 7);
  t.equal(figures.pushedOut, 1 / 7);
  t.equal(figures.lightWait99, 2);
});

t.test('refused before its patience ended, or not served', async (t) => {
  const early = visit('a', 0, 'dropped', 9000);
  const late = visit('a', 0, 'dropped', 10_000);
  t.strictSame([turnedAway(early, PATIENCE_MS), timedOut(early, PATIENCE_MS)], [true, false]);
  t.strictSame([turnedAway(late, PATIENCE_MS), timedOut(late, PATIENCE_MS)], [false, true]);
  t.equal(turnedAway(visit('a', 0, 'refused', 0), PATIENCE_MS), true);
  t.equal(timedOut(visit('a', 0, 'seated', 10_000), PATIENCE_MS), false);
});

t.test('Jain’s index: 1 for equal shares, 1/n if one account has everything, undefined for one account', async (t) => {
  t.equal(jain([3, 3, 3]), 1);
  t.equal(jain([5, 0, 0, 0]), 0.25);
  t.ok(Number.isNaN(jain([5])));
});

t.test('predictions are compared with the waits of seated requests that had a prediction', async (t) => {
  const reported = (predictedMs: number, made: SimulatedRequest): SimulatedRequest => ({ ...made, predictedMs });
  const { foretold, wait, bias, off50, off90 } = predictionErrors([
    reported(3000, visit('a', 0, 'seated', 2000)),
    reported(1000, visit('a', 1000, 'seated', 5000)),
    reported(0, visit('a', 5000, 'seated', 5000)),
    reported(9000, visit('a', 0, 'dropped', 10_000)),
    visit('a', 0, 'seated', 9000),
  ]);
  t.strictSame([foretold, wait, bias, off50, off90], [2, 3, -1, 3, 3]);
});

t.test('max-min fairness: small demands are met in full, the rest is divided equally', async (t) => {
  t.strictSame(maxMin([3, 0.25, 0.5], 1), [0.375, 0.25, 0.375]);
  t.strictSame(maxMin([0.25, 0.5], 1), [0.25, 0.5], 'no account gets more than its demand');
});
