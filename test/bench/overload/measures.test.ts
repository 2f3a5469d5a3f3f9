import t from 'tap';
import type { Attempt } from '../../../bench/overload/attempt.js';
import { codes, measure } from '../../../bench/overload/measures.js';
import type { Refusal } from '../../../bench/overload/refusal.js';

function refused(totalMs: number, refusal: Refusal, scheduledMs = 0): Attempt {
  return { account: 'heavy', scheduledMs, end: 'refused', status: 429, totalMs, refusal };
}

const AT_ONCE: Refusal = { code: 'capacity_exceeded', retryAfterMs: 2000, came: 'at once' };
const WAITED: Refusal = { code: 'capacity_exceeded', retryAfterMs: 4000, came: 'after a wait' };

t.test('immediate refusals and those after a wait are counted separately, whatever their duration', async (t) => {
  const good: Attempt = { account: 'light', scheduledMs: 0, end: 'good', status: 200, totalMs: 3000 };
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
