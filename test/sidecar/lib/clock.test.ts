import t from 'tap';
import { Backoff } from '../../../sidecar/lib/clock.js';

t.test('waits double from the shortest to the longest and stay there', async (t) => {
  const backoff = new Backoff(100, 1000, () => 1);
  t.same(
    Array.from({ length: 6 }, () => backoff.next()),
    [100, 200, 400, 800, 1000, 1000],
  );
  backoff.reset();
  t.equal(backoff.next(), 100);
});

t.test('a wait is random within the upper half of its step', async (t) => {
  const least = new Backoff(100, 1000, () => 0);
  t.same([least.next(), least.next()], [50, 100]);
});

t.test('ten thousand failures do not overflow it', async (t) => {
  const backoff = new Backoff(1, 60_000, () => 1);
  for (let i = 0; i < 10_000; i += 1) backoff.next();
  t.equal(backoff.next(), 60_000);
});
