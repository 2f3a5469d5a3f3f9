import t from 'tap';
import { Watchdog, type Hang } from '../../../sidecar/engine-client/watchdog.js';
import { FakeClock } from '../../support/fake-clock.js';

const HANG_MS = 800;
const LOOK_MS = HANG_MS / 8;

function setup(pending: () => boolean): { clock: FakeClock; dog: Watchdog; hangs: Hang[] } {
  const clock = new FakeClock();
  const hangs: Hang[] = [];
  const dog = new Watchdog(clock, HANG_MS, pending, (hang) => hangs.push(hang));
  return { clock, dog, hangs };
}

t.test('silence is a hang, whether work is pending or not', async (t) => {
  const { clock, hangs } = setup(() => false);
  clock.advance(HANG_MS - 1);
  t.same(hangs, []);
  clock.advance(1);
  t.same(hangs, ['silent']);
  clock.advance(10 * HANG_MS);
  t.same(hangs, ['silent'], 'once');
  t.equal(clock.pending, 0);
});

t.test('heartbeats without steps are a hang only while work is pending', async (t) => {
  let pending = false;
  const { clock, dog, hangs } = setup(() => pending);
  const beat = (times: number): void => {
    for (let i = 0; i < times; i += 1) {
      clock.advance(LOOK_MS / 2);
      dog.received(7, false);
    }
  };
  beat(100);
  t.same(hangs, [], 'idle for long');
  pending = true;
  beat(16);
  t.same(hangs, [], 'not before the time is over');
  beat(4);
  t.same(hangs, ['stuck']);
});

t.test('steps, or results within one step, are progress', async (t) => {
  const { clock, dog, hangs } = setup(() => true);
  for (let i = 0; i < 100; i += 1) {
    clock.advance(LOOK_MS);
    dog.received(i, false);
  }
  for (let i = 0; i < 100; i += 1) {
    clock.advance(LOOK_MS);
    dog.received(100, true);
  }
  t.same(hangs, []);
});

t.test('time in which this process was stopped does not count', async (t) => {
  const fake = new FakeClock();
  let stall = 0;
  const clock = {
    now: () => fake.now() + stall,
    after: (ms: number, fn: () => void) => fake.after(ms, fn),
  };
  const hangs: Hang[] = [];
  const dog = new Watchdog(
    clock,
    HANG_MS,
    () => true,
    (hang) => hangs.push(hang),
  );
  fake.advance(LOOK_MS);
  stall = 20 * HANG_MS;
  fake.advance(LOOK_MS);
  t.same(hangs, []);
  dog.received(1, true);
  fake.advance(2 * HANG_MS);
  t.same(hangs, ['silent'], 'and it still finds one afterwards');
});

t.test('after stop there is no callback', async (t) => {
  const { clock, dog, hangs } = setup(() => true);
  dog.stop();
  clock.advance(10 * HANG_MS);
  t.same(hangs, []);
  t.equal(clock.pending, 0);
});
