import t from 'tap';
import { FakeClock } from './fake-clock.js';

t.test('timers fire in the order of their times, then of their creation, each at its time', async (t) => {
  const clock = new FakeClock();
  const fired: string[] = [];
  const note = (name: string) => () => void fired.push(`${name}@${clock.now()}`);
  clock.after(20, note('late'));
  clock.after(10, note('first'));
  clock.after(10, note('second'));
  clock.after(21, note('never'));
  clock.advance(20);
  t.strictSame(fired, ['first@10', 'second@10', 'late@20']);
  t.equal(clock.now(), 20);
  t.equal(clock.pending, 1);
});

t.test('never synchronously; a timer created by a timer fires in the same advance if due', async (t) => {
  const clock = new FakeClock();
  let fired = 0;
  clock.after(0, () => {
    fired += 1;
    clock.after(5, () => (fired += 1));
  });
  t.equal(fired, 0);
  clock.advance(4);
  t.equal(fired, 1);
  clock.advance(1);
  t.equal(fired, 2);
});

t.test(
  'a cancelled timer never fires, even if cancelled by one that is due with it; cancelling again does nothing',
  async (t) => {
    const clock = new FakeClock();
    let fired = 0;
    const cancels: (() => void)[] = [];
    clock.after(1, () => cancels.forEach((cancel) => cancel()));
    cancels.push(clock.after(1, () => (fired += 1)));
    clock.advance(10);
    cancels.forEach((cancel) => cancel());
    t.equal(fired, 0);
    t.equal(clock.pending, 0);
  },
);
