import t from 'tap';
import { ConsoleFeed, type Viewer } from '../../../sidecar/console/console.js';
import { FakeClock } from '../../support/fake-clock.js';
import { deferred } from '../../support/http-server.js';

const OPTIONS = { intervalMs: 1000, viewers: 3 };

class FakeViewer implements Viewer {
  readonly seen: string[] = [];
  behind = 0;
  ended = 0;

  unread(): number {
    return this.behind;
  }

  event(text: string): void {
    this.seen.push(text);
  }

  end(): void {
    this.ended += 1;
  }
}

/** A feed whose snapshots are numbers. */
function setup() {
  const clock = new FakeClock();
  const faults: unknown[] = [];
  const harness = { clock, faults, taken: 0, broken: false };
  const feed = new ConsoleFeed(
    clock,
    OPTIONS,
    () => {
      harness.taken += 1;
      return harness.broken ? Promise.reject(new Error('no snapshot')) : Promise.resolve(String(harness.taken));
    },
    (fault) => faults.push(fault),
  );
  return { feed, harness };
}

/** Lets queued frames be sent. */
async function reported(): Promise<void> {
  for (let i = 0; i < 4; i += 1) await Promise.resolve();
}

t.test('no snapshot is made without viewers, neither before the first nor after the last', async (t) => {
  const { feed, harness } = setup();
  harness.clock.advance(60_000);
  t.equal(harness.taken, 0);
  t.equal(harness.clock.pending, 0);
  const viewer = new FakeViewer();
  feed.join(viewer);
  await reported();
  t.strictSame(viewer.seen, ['1'], 'at once');
  feed.leave(viewer);
  feed.leave(viewer);
  t.equal(harness.clock.pending, 0, 'no timer is left');
  harness.clock.advance(60_000);
  await reported();
  t.equal(harness.taken, 1);
  feed.join(viewer);
  await reported();
  t.strictSame(viewer.seen, ['1', '2'], 'a later viewer gets no old one');
});

t.test('one snapshot an interval, made once for all', async (t) => {
  const { feed, harness } = setup();
  const viewers = [new FakeViewer(), new FakeViewer(), new FakeViewer()] as const;
  for (const viewer of viewers) feed.join(viewer);
  await reported();
  t.equal(harness.taken, 1, 'viewers that come together wait for the same one');
  for (let second = 0; second < 3; second += 1) {
    harness.clock.advance(1000);
    await reported();
  }
  t.equal(harness.taken, 4);
  for (const { seen } of viewers) t.strictSame(seen, ['1', '2', '3', '4']);
});

t.test('a later viewer gets the last one, and none is made for it', async (t) => {
  const { feed, harness } = setup();
  const [first, second] = [new FakeViewer(), new FakeViewer()];
  feed.join(first);
  await reported();
  harness.clock.advance(400);
  feed.join(second);
  await reported();
  t.strictSame(second.seen, ['1']);
  t.equal(harness.taken, 1);
  feed.leave(first);
  harness.clock.advance(600);
  await reported();
  t.strictSame(second.seen, ['1', '2'], 'the interval continues');
});

t.test('a slow viewer is skipped until it has caught up, and nothing waits for it', async (t) => {
  const { feed, harness } = setup();
  const [quick, slow] = [new FakeViewer(), new FakeViewer()];
  feed.join(quick);
  feed.join(slow);
  await reported();
  slow.behind = 70_000;
  for (let second = 0; second < 5; second += 1) {
    harness.clock.advance(1000);
    await reported();
  }
  slow.behind = 0;
  harness.clock.advance(1000);
  await reported();
  t.equal(quick.seen.length, 7);
  t.strictSame(slow.seen, ['1', '7'], 'the newest, not the skipped ones');
});

t.test('the number of viewers is limited', async (t) => {
  const { feed } = setup();
  const viewers = Array.from({ length: OPTIONS.viewers }, () => new FakeViewer());
  for (const viewer of viewers) {
    t.notOk(feed.full);
    feed.join(viewer);
  }
  t.ok(feed.full);
  feed.leave(viewers[0]!);
  t.notOk(feed.full, 'a place is free again');
});

t.test('the end ends every stream, permanently', async (t) => {
  const { feed, harness } = setup();
  const viewer = new FakeViewer();
  feed.join(viewer);
  await reported();
  feed.close();
  feed.close();
  t.equal(viewer.ended, 1);
  t.ok(feed.full, 'no viewer may join');
  t.equal(harness.clock.pending, 0);
});

t.test('if a snapshot fails the viewers are disconnected, and may come again', async (t) => {
  const { feed, harness } = setup();
  const viewer = new FakeViewer();
  harness.broken = true;
  feed.join(viewer);
  await reported();
  t.equal(viewer.ended, 1);
  t.match(harness.faults, [{ message: 'no snapshot' }]);
  t.equal(harness.clock.pending, 0, 'without viewers nothing is tried');
  harness.broken = false;
  feed.join(viewer);
  await reported();
  t.strictSame(viewer.seen, ['2']);
});

t.test('a viewer that disconnects while a snapshot is made leaves nothing behind', async (t) => {
  const clock = new FakeClock();
  const making = deferred<string>();
  const feed = new ConsoleFeed(
    clock,
    OPTIONS,
    () => making.promise,
    () => t.fail('now it succeeds'),
  );
  const viewer = new FakeViewer();
  feed.join(viewer);
  feed.leave(viewer);
  making.resolve('late');
  await reported();
  t.strictSame(viewer.seen, []);
  t.equal(clock.pending, 0);
});
