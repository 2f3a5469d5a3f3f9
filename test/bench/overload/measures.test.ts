import t from 'tap';
import type { Attempt } from '../../../bench/overload/attempt.js';
import { codes, measure } from '../../../bench/overload/measures.js';
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
