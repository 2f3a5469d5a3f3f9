import t from 'tap';
import { SeatLimit } from '../../../engine/remote/seat-limit.js';
import { LoadWatch, type LoadWatchEvents } from '../../../engine/remote/load-watch.js';
import type { LoadReading } from '../../../engine/remote/adapter.js';
import { FakeClock } from '../../support/fake-clock.js';

t.test(
  'it is reduced by a factor, at most once a second, and raised by one every two seconds without a shortage',
  (t) => {
    const clock = new FakeClock();
    const limit = new SeatLimit(clock, 10);
    limit.short();
    limit.short();
    t.equal(limit.value, 7, 'one shortage shows in several answers');
    clock.advance(1000);
    limit.short();
    t.equal(limit.value, 4);
    clock.advance(1999);
    limit.ample();
    t.equal(limit.value, 4);
    clock.advance(1);
    limit.ample();
    limit.ample();
    t.equal(limit.value, 5);
    for (let i = 0; i < 20; i += 1) {
      clock.advance(2000);
      limit.ample();
    }
    t.equal(limit.value, 10, 'never above the configured number');
    for (let i = 0; i < 20; i += 1) {
      clock.advance(1000);
      limit.short();
    }
    t.equal(limit.value, 1, 'never below one');
    t.end();
  },
);

class Watched implements LoadWatchEvents {
  readonly calls: string[] = [];
  flights = 1;
  counts(): ReturnType<LoadWatchEvents['counts']> {
    return { flights: this.flights, reached: this.flights, leaving: 0 };
  }
  running(): void {
    this.calls.push('running');
  }
  looked(): void {
    this.calls.push('looked');
  }
  short(): void {
    this.calls.push('short');
  }
  ample(): void {
    this.calls.push('ample');
  }
  moved(): void {
    this.calls.push('moved');
  }
  suspect(): Promise<void> {
    this.calls.push('suspect');
    return Promise.resolve();
  }
}

t.test('a reported shortage lowers the limit, and a missing report leaves it', async (t) => {
  const cases: readonly (readonly [string, LoadReading | undefined, string])[] = [
    ['nothing unusual', { running: 1, waiting: 0, preempted: 3, kvUse: 0.5, computed: 10 }, 'moved ample looked'],
    ['the same again', { running: 1, waiting: 0, preempted: 3, kvUse: 0.5, computed: 10 }, 'ample looked'],
    ['a request waits', { running: 1, waiting: 1, preempted: 3, computed: 20 }, 'moved short looked'],
    ['one request was put back', { running: 1, waiting: 0, preempted: 4, computed: 30 }, 'moved short looked'],
    ['its memory is full', { running: 1, preempted: 4, kvUse: 0.97, computed: 40 }, 'moved short looked'],
    ['the server does not answer', undefined, 'suspect looked'],
  ];
  const clock = new FakeClock();
  const events = new Watched();
  let reading: LoadReading | undefined;
  const watch = new LoadWatch(clock, { load: () => Promise.resolve(reading) }, events);
  watch.schedule();
  for (const [name, next, expected] of cases) {
    reading = next;
    events.calls.length = 0;
    clock.advance(1000);
    await new Promise((turn) => setImmediate(turn));
    t.equal(events.calls.join(' '), expected, name);
  }
  watch.stop();
  t.equal(clock.pending, 0);
});
