import t from 'tap';
import { ReplicaSeats, ReplicaSpeeds } from '../../../sidecar/admission/seats.js';
import { seeded } from '../../../bench/support/load.js';

/** Observations of one reply. */
const WINDOWS = 10;

/**
 * Times as on a CPU: with 8 busy seats a token takes five times as long as with one. Up to 20 percent either way are by chance, half of
 * it the same for all of a reply. The last replica is the busiest.
 */
function observe(speeds: ReplicaSpeeds, slower: readonly number[], replies: number, seed = 1): void {
  const random = seeded(seed);
  for (let i = 0; i < replies; i += 1) {
    for (const [replica, times] of slower.entries()) {
      const ofReply = 0.9 + 0.2 * random();
      for (let window = 0; window < WINDOWS; window += 1) {
        const busy = 1 + Math.floor(random() * (replica === slower.length - 1 ? 8 : 4));
        const ms = 10 * (1 + (4 / 7) * (busy - 1)) * ofReply * (0.9 + 0.2 * random());
        speeds.observe(replica, busy, times * ms);
      }
    }
  }
}

const ratio = (speeds: ReplicaSpeeds): number => (speeds.ratioOf(1) ?? NaN) / (speeds.ratioOf(0) ?? NaN);

t.test('a request of just as many tokens as a free seat holds has room, one token more has not', async (t) => {
  const seats = new ReplicaSeats([{ seats: 1, contextPerSeat: 1000 }]);
  t.strictSame([seats.hasFree(1000), seats.hasFree(1001)], [true, false]);
});

t.test('a busier replica is not taken for a slower one', async (t) => {
  const speeds = new ReplicaSpeeds(2);
  for (let seed = 1; seed <= 100; seed += 1) {
    observe(speeds, [1, 1], 5, seed);
    t.ok(ratio(speeds) > 0.85 && ratio(speeds) < 1.18, `${ratio(speeds)}`);
  }
});

t.test('how many times as slow one is, and that it is no longer so', async (t) => {
  const speeds = new ReplicaSpeeds(2);
  observe(speeds, [1, 3], 50);
  t.ok(ratio(speeds) > 2.6 && ratio(speeds) < 3.4, `${ratio(speeds)}`);
  observe(speeds, [1, 1], 50);
  t.ok(ratio(speeds) > 0.85 && ratio(speeds) < 1.18, `${ratio(speeds)}`);
});

t.test('one observation of a stalled process changes little', async (t) => {
  const speeds = new ReplicaSpeeds(2);
  observe(speeds, [1, 1], 20);
  const before = ratio(speeds);
  speeds.observe(1, 3, 8000);
  t.ok(ratio(speeds) < 1.1 * before, `${ratio(speeds)} after ${before}`);
});

t.test('nothing is known of a replica without a reply, and the ratios of the others multiply to 1', async (t) => {
  const speeds = new ReplicaSpeeds(3);
  t.strictSame(
    [0, 1, 2].map((replica) => speeds.ratioOf(replica)),
    [undefined, undefined, undefined],
  );
  speeds.observe(0, 1, 10);
  speeds.observe(2, 1, 30);
  t.equal(speeds.ratioOf(1), undefined);
  const [first, third] = [speeds.ratioOf(0) ?? NaN, speeds.ratioOf(2) ?? NaN];
  t.ok(third > first);
  t.ok(Math.abs(first * third - 1) < 1e-9);
});
