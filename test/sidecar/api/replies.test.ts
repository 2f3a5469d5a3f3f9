import t from 'tap';
import { StreamKeepAlive } from '../../../sidecar/api/replies.js';
import { FakeClock } from '../../support/fake-clock.js';

t.test('no silence is longer than the interval', async (t) => {
  const clock = new FakeClock();
  const at: number[] = [];
  const keepAlive = new StreamKeepAlive(clock, 100, () => at.push(clock.now()));
  const from = clock.now();
  const since = (): number[] => at.map((time) => time - from);
  clock.advance(100);
  t.strictSame(since(), [100], 'of a stream that has sent nothing yet');
  clock.advance(10);
  keepAlive.sent();
  clock.advance(99);
  t.strictSame(since(), [100], 'counted from what was sent last');
  clock.advance(1);
  t.strictSame(since(), [100, 210]);
  clock.advance(250);
  t.strictSame(since(), [100, 210, 310, 410]);
  keepAlive.close();
  clock.advance(1000);
  t.equal(at.length, 4);
});

t.test('it may be closed by what it calls', async (t) => {
  const clock = new FakeClock();
  let calls = 0;
  const keepAlive: StreamKeepAlive = new StreamKeepAlive(clock, 100, () => {
    calls += 1;
    keepAlive.close();
  });
  clock.advance(1000);
  t.equal(calls, 1);
  t.equal(clock.pending, 0);
});

t.test('a place in the queue is told at most every 2 s, in place of a keep-alive', async (t) => {
  for (const [intervalMs, quiet] of [
    [15_000, [19_000, 34_000]],
    [1000, [1000, 3000, 5000, 6000, 7000, 8000]],
  ] as const) {
    const clock = new FakeClock();
    const [told, idle]: [number[], number[]] = [[], []];
    const tell = (): boolean => clock.now() <= 5000 && told.push(clock.now()) > 0;
    const keepAlive = new StreamKeepAlive(clock, intervalMs, () => idle.push(clock.now()), tell);
    clock.advance(intervalMs === 1000 ? 8000 : 40_000);
    keepAlive.close();
    t.strictSame(told, [2000, 4000]);
    t.strictSame(idle, quiet);
    t.equal(clock.pending, 0);
  }
});
