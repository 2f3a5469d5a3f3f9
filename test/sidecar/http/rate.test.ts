import t from 'tap';
import { Rate } from '../../../sidecar/http/rate.js';
import { FakeClock } from '../../support/fake-clock.js';

t.test('counts the last ten seconds', async (t) => {
  const clock = new FakeClock();
  clock.advance(123_456);
  const rate = new Rate(clock);
  t.equal(rate.perSecond, 0);
  for (let i = 0; i < 30; i++) rate.add();
  t.equal(rate.perSecond, 3);
  clock.advance(5000);
  for (let i = 0; i < 10; i++) rate.add();
  t.equal(rate.perSecond, 4);
  clock.advance(5000);
  t.equal(rate.perSecond, 1, 'the first thirty are ten seconds old');
  clock.advance(4543);
  t.equal(rate.perSecond, 1);
  clock.advance(1);
  t.equal(rate.perSecond, 0);
});

t.test('after a long silence nothing is left, and counting continues', async (t) => {
  const clock = new FakeClock();
  const rate = new Rate(clock);
  for (let second = 0; second < 25; second++) {
    rate.add();
    clock.advance(1000);
  }
  t.equal(rate.perSecond, 0.9, 'one a second, without the part that has just begun');
  clock.advance(3_600_000);
  t.equal(rate.perSecond, 0);
  rate.add();
  t.equal(rate.perSecond, 0.1);
});
