import t from 'tap';
import { StreamKeepAlive } from '../../../sidecar/api/stream-keep-alive.js';
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
