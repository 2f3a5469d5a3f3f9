import t from 'tap';
import { Timeline } from '../../../sidecar/api/timeline.js';
import { FakeClock } from '../../support/fake-clock.js';

t.test('one try, mark by mark', async (t) => {
  const clock = new FakeClock();
  clock.advance(5);
  const times = new Timeline(clock);
  const after = (ms: number, mark: () => void): void => {
    clock.advance(ms);
    mark();
  };
  t.equal(times.last, undefined);
  after(1, () => times.authorized(5));
  after(1, () => (times.receivedAt = clock.now()));
  after(1, () => times.waits());
  t.strictSame(times.last, {
    readyAt: 8,
    seatedAt: undefined,
    replica: undefined,
    handedOverAt: undefined,
    firstTokenAt: undefined,
    ranUntil: undefined,
  });
  after(2, () => times.seated(2, 3));
  after(1, () => times.handedOver());
  after(3, () => times.firstToken());
  after(3, () => times.firstToken());
  after(1, () => times.ran());
  t.strictSame(times.last, { readyAt: 8, seatedAt: 10, replica: 3, handedOverAt: 11, firstTokenAt: 14, ranUntil: 18 });
  t.strictSame(times.lost, []);
  t.strictSame(times.authorization, { from: 5, until: 6 });
  t.equal(times.header(), 'authorize;dur=1, ra-queue;dur=2, ra-admit;dur=2');
  t.equal(times.trailer(), 'ra-ttft;dur=7');
});

t.test('a prompt that is made again before the engine takes it: that is the sidecar’s own work', async (t) => {
  const clock = new FakeClock();
  const times = new Timeline(clock);
  times.receivedAt = clock.now();
  times.waits();
  clock.advance(1);
  times.seated(1, 0);
  times.handedOver();
  clock.advance(4);
  times.handedOver();
  clock.advance(9);
  t.equal(times.header(), 'ra-queue;dur=1, ra-admit;dur=4');
});

t.test('an engine that was lost before it began: the first try is kept separately, and both waits count', async (t) => {
  const clock = new FakeClock();
  const times = new Timeline(clock);
  times.receivedAt = clock.now();
  clock.advance(2);
  times.waits();
  clock.advance(1);
  times.seated(1, 2);
  times.handedOver();
  clock.advance(4);
  times.ran();
  times.waits();
  t.strictSame(times.lost, [
    { readyAt: 2, seatedAt: 3, replica: 2, handedOverAt: 3, firstTokenAt: undefined, ranUntil: 7 },
  ]);
  const waits = {
    readyAt: 7,
    seatedAt: undefined,
    replica: undefined,
    handedOverAt: undefined,
    firstTokenAt: undefined,
    ranUntil: undefined,
  };
  t.strictSame(times.last, waits, 'the second has no mark of the first');
  clock.advance(2);
  t.equal(times.waitedMs(clock.now()), 3);
  times.seated(3, 0);
  times.handedOver();
  t.match(times.last, { readyAt: 7, seatedAt: 9, replica: 0, handedOverAt: 9 });
  t.equal(times.header(), 'ra-queue;dur=3, ra-admit;dur=2', 'the time of the lost engine is in neither');
});
