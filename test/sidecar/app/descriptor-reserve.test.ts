import t from 'tap';
import { DescriptorReserve } from '../../../sidecar/app/descriptor-reserve.js';
import { FakeClock } from '../../support/fake-clock.js';

t.test('a reserve is closed if no descriptor is left, and opened again when there are enough', (t) => {
  const clock = new FakeClock();
  /** Descriptors that the process could still open. */
  let free = 100;
  const descriptors = {
    open: () => (free > 0 ? (free -= 1) : undefined),
    close: () => {
      free += 1;
    },
  };
  const changes: boolean[] = [];
  const reserve = new DescriptorReserve(clock, (refusing) => changes.push(refusing), descriptors);
  t.equal(free, 92);
  clock.advance(5000);
  t.same([free, reserve.refusing], [92, false], 'a check uses none for long');
  free = 0;
  clock.advance(1000);
  t.same([free, reserve.refusing], [8, true]);
  free = 5;
  clock.advance(1000);
  t.same([free, reserve.refusing], [5, true], 'too few to be without a reserve');
  free = 9;
  clock.advance(1000);
  t.same([free, reserve.refusing], [1, false]);
  free = 0;
  clock.advance(1000);
  t.equal(reserve.refusing, true);
  t.same(changes, [true, false, true]);
  reserve.close();
  reserve.close();
  free = 100;
  clock.advance(5000);
  t.equal(free, 100, 'no more checks');
  t.end();
});
