import t from 'tap';
import { ReplicaSpeeds } from '../../../sidecar/admission/replica-speeds.js';
import { seeded } from '../../../bench/support/load.js';

/** Times as on a CPU: with 8 busy seats a token takes five times as long as with one. Twenty percent either way is chance. */
function observe(speeds: ReplicaSpeeds, slower: readonly number[], replies: number, seed = 1): void {
  const random = seeded(seed);
  for (let i = 0; i < replies; i += 1) {
    for (const [replica, times] of slower.entries()) {
      // The last one is the busiest.
      const busy = 1 + Math.floor(random() * (replica === slower.length - 1 ? 8 : 4));
      const ms = 10 * (1 + (4 / 7) * (busy - 1)) * (0.8 + 0.4 * random());
      speeds.observe(replica, busy, times * ms);
    }
  }
}

const ratio = ({ times: [a = NaN, b = NaN] }: ReplicaSpeeds): number => b / a;

t.test('a busier replica is not taken for a slower one', async (t) => {
  const speeds = new ReplicaSpeeds(2);
  for (let seed = 1; seed <= 20; seed += 1) {
    observe(speeds, [1, 1], 50, seed);
    t.ok(ratio(speeds) > 0.85 && ratio(speeds) < 1.18, `${ratio(speeds)}`);
  }
});

t.test('how many times as slow one is, and that it is no longer so', async (t) => {
  const speeds = new ReplicaSpeeds(2);
  observe(speeds, [1, 3], 50);
  t.ok(ratio(speeds) > 2.4 && ratio(speeds) < 3.6, `${ratio(speeds)}`);
  observe(speeds, [1, 1], 100);
  t.ok(ratio(speeds) > 0.8 && ratio(speeds) < 1.25, `${ratio(speeds)}`);
});

t.test('nothing is known of a replica without a reply, and the mean of the others is 1', async (t) => {
  const speeds = new ReplicaSpeeds(3);
  t.strictSame(speeds.times, [undefined, undefined, undefined]);
  speeds.observe(0, 1, 10);
  speeds.observe(2, 1, 30);
  const [first = NaN, second, third = NaN] = speeds.times;
  t.equal(second, undefined);
  t.ok(third > first);
  t.ok(Math.abs(first + third - 2) < 1e-9);
});
