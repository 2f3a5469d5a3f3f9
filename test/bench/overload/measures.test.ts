import t from 'tap';
import type { Attempt } from '../../../bench/overload/attempt.js';
import { codes, measure, waits } from '../../../bench/overload/measures.js';
import { rowsOf, verdict, type Done } from '../../../bench/overload/patience-table.js';
import type { Refusal } from '../../../bench/overload/refusal.js';

function refused(totalMs: number, refusal: Refusal, scheduledMs = 0): Attempt {
  return { account: 'heavy', scheduledMs, end: 'refused', status: 429, ttftMs: NaN, totalMs, refusal };
}

const AT_ONCE: Refusal = { code: 'capacity_exceeded', retryAfterMs: 2000, came: 'at once' };
const WAITED: Refusal = { code: 'capacity_exceeded', retryAfterMs: 4000, came: 'after a wait' };

t.test('immediate refusals and those after a wait are counted separately, whatever their duration', async (t) => {
  const good: Attempt = { account: 'light', scheduledMs: 0, end: 'good', status: 200, ttftMs: 10, totalMs: 3000 };
  const runs = [
    [good, refused(1, AT_ONCE), refused(6000, AT_ONCE), refused(3, AT_ONCE), refused(2, WAITED)],
    [refused(5000, WAITED), refused(7, { came: 'untold' }), refused(4, AT_ONCE, 10_000)],
  ];
  const point = measure(runs, 10);
  t.match(point, { refused: 6, atOnce: 3, atOnce50: 3, atOnce99: 6000, afterWait: 2, retryAfter: 2000 });
  t.equal(point.refusal99, 6000, 'all refusals together');
  t.strictSame(codes(runs), { capacity_exceeded: 6, none: 1 });
});

t.test('without refusals there is no duration', async (t) => {
  const { atOnce, atOnce50, atOnce99, afterWait, retryAfter } = measure([[]], 10);
  t.strictSame(
    { atOnce, atOnce50, atOnce99, afterWait, retryAfter },
    {
      atOnce: 0,
      atOnce50: NaN,
      atOnce99: NaN,
      afterWait: 0,
      retryAfter: NaN,
    },
  );
});

t.test(
  'the time in which a queue learns is left out: replies by their end, others by when they were sent',
  async (t) => {
    const reply = (scheduledMs: number, totalMs: number): Attempt => {
      return { account: 'light', scheduledMs, end: 'good', status: 200, ttftMs: 10, totalMs };
    };
    const runs = [
      [reply(1000, 3000), reply(4000, 2000), reply(6000, 1500), refused(1, AT_ONCE, 4999), refused(1, AT_ONCE, 5000)],
    ];
    const { good, total, refused: counted } = measure(runs, 10, 5);
    t.equal(good, 2 / 5, 'one of them was sent before');
    t.equal(total, 1500);
    t.equal(counted, 1);
    t.equal(measure(runs, 5).good, 1 / 3, 'the learning alone');
  },
);

t.test('callers who left before their first token count as the slowest, and refused ones do not count', async (t) => {
  const stream = (end: Attempt['end'], ttftMs: number, scheduledMs = 5000): Attempt => {
    return { account: 'light', scheduledMs, end, status: 200, ttftMs, totalMs: 4000, awaits: 'first-token' };
  };
  const whole: Attempt = { ...stream('good', 10), awaits: 'end' };
  const attempts = [
    ...[stream('good', 100), stream('broken', 200), stream('gone', NaN), stream('refused', NaN), stream('good', 9, 4)],
    ...[whole, { ...whole, end: 'gone' as const }],
  ];
  t.strictSame(waits(attempts, 'first-token', 10, 5), [100, 200, null]);
  t.strictSame(waits(attempts, 'end', 10, 5), [4000, null]);
});

t.test('the p99 of a wait is over all rounds, and says so where more than a hundredth left', async (t) => {
  const point = { patienceMs: 4000, load: 1, server: 'ra-sidecar', capacity: 5, good: 4, refused: 0, gone: 0 };
  const round = (round: number, left: number): Done => {
    const firstTokens = [
      ...Array.from({ length: 100 - left }, (_, i) => i),
      ...Array.from({ length: left }, () => null),
    ];
    return { ...point, round, firstTokens, wholes: [50] };
  };
  const waitOf = (lefts: readonly number[]): unknown =>
    rowsOf(lefts.map((left, i) => round(i, left)))[0]?.['p99 to a first token, ms'];
  t.equal(waitOf([0, 1]), 99);
  t.equal(waitOf([2, 2]), '1 % or more left or broke off');
  t.match(verdict([round(0, 0)]), /in 1 fewer than a hundredth of the streams/);
  t.match(verdict([round(0, 5)]), /in 0 fewer than a hundredth of the streams/);
});
