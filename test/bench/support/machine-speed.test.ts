import t from 'tap';
import { machineSpeed, speedRange, unevenness } from '../../../bench/support/machine-speed.js';

t.test('the fixed work takes some milliseconds', async (t) => {
  const { arithmeticMs, copyMs } = machineSpeed();
  t.ok(arithmeticMs > 1 && copyMs > 1, `${arithmeticMs} and ${copyMs} ms`);
});

t.test('a machine is as uneven as the work of which the times differ most', async (t) => {
  const steady = { arithmeticMs: 10, copyMs: 20 };
  t.equal(unevenness(speedRange([steady, steady])), 1);
  t.equal(unevenness(speedRange([steady, { arithmeticMs: 15, copyMs: 20 }, steady])), 1.5);
  t.equal(unevenness(speedRange([{ arithmeticMs: 11, copyMs: 40 }, steady])), 2);
  t.strictSame(speedRange([{ arithmeticMs: 11.04, copyMs: 40 }, steady]), {
    arithmeticMs: [10, 11],
    copyMs: [20, 40],
  });
});

t.test(
  'of many readings a slow one in ten makes no machine uneven, but a slow time of some minutes does',
  async (t) => {
    const steady = { arithmeticMs: 10, copyMs: 20 };
    const slow = { arithmeticMs: 15, copyMs: 30 };
    const readings = Array.from({ length: 100 }, (_, i) => (i % 10 === 3 ? slow : steady));
    t.equal(unevenness(speedRange(readings)), 1);
    t.equal(unevenness(speedRange(readings.with(95, slow).with(99, slow))), 1);
    t.equal(unevenness(speedRange(readings.map((reading, i) => (i >= 40 && i < 50 ? slow : reading)))), 1.5);
    t.equal(unevenness(speedRange(readings.slice(0, 19))), 1.5, 'of few each counts');
  },
);
