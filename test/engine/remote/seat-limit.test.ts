import t from 'tap';
import { SeatLimit } from '../../../engine/remote/remote-loop.js';
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
  leaving = 0;
  counts(): ReturnType<LoadWatchEvents['counts']> {
    return { flights: this.flights, reached: this.flights, leaving: this.leaving };
  }
  rested(before: number): void {
    this.calls.push(`rested:${before}`);
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

/** What a watch calls at each of these readings, which it makes when they are due. */
async function callsAt(events: Watched, readings: readonly LoadReading[]): Promise<string[]> {
  const clock = new FakeClock();
  const left = [...readings];
  const watch = new LoadWatch(clock, { load: () => Promise.resolve(left.shift()) }, events);
  const calls: string[] = [];
  while (left.length > 0) {
    events.calls.length = 0;
    clock.step(Infinity);
    await new Promise((turn) => setImmediate(turn));
    calls.push(events.calls.join(' '));
  }
  watch.stop();
  return calls;
}

t.test('what a server at rest says is no sign of shortage', async (t) => {
  const full = { running: 2, waiting: 3, kvUse: 0.99, computed: 10 };
  const idle = new Watched();
  idle.flights = 0;
  t.strictSame(await callsAt(idle, [full, full, full, { ...full, computed: 11 }]), [
    'suspect moved short looked',
    'suspect looked',
    'suspect rested:13000 looked',
    'suspect moved short looked',
  ]);
  t.strictSame(
    await callsAt(new Watched(), [full, full]),
    ['moved short looked', 'short looked'],
    'with one in flight it is',
  );
});

t.test('a server is at rest once it has computed nothing for two seconds with nothing in flight', async (t) => {
  const events = new Watched();
  events.flights = 0;
  events.leaving = 1;
  const idle = { running: 1, computed: 10 };
  const calls = await callsAt(
    events,
    Array.from({ length: 20 }, () => idle),
  );
  const rested = calls.flatMap((call, at) => (call.includes('rested') ? [at] : []));
  t.equal(calls[0], 'moved running ample looked');
  t.equal(calls[1], 'running ample looked');
  // Readings after 5, 15, 35, 75, 155, 315 and 565 ms, and then every 250 ms; the rest begins with the second one.
  t.strictSame(rested, [12, 13, 14, 15, 16, 17, 18, 19]);
  t.match(calls[12], 'rested:65 ');
  const flying = new Watched();
  t.notMatch(
    (
      await callsAt(
        flying,
        Array.from({ length: 20 }, () => idle),
      )
    ).join(' '),
    /rested/,
    'nothing is in flight',
  );
});

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
