/** Viewers over real sockets: slow ones, and ones that disconnect while a snapshot is being sent. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { ConsoleFeed, watch } from '../../../sidecar/console/console.js';
import { FakeClock } from '../../support/fake-clock.js';
import { serve } from '../../support/http-server.js';

const INTERVAL_MS = 1000;
/** Far longer than real snapshots, so that few of them fill a socket. */
const PICTURE = 400_000;
/** Longer than a snapshot’s end: a number and the end of its frame. */
const END = 16;
/** Snapshots until a viewer that reads nothing must be behind: longer than any kernel’s socket buffers. */
const MANY = 400;
/** Snapshots in a row after each of which bytes wait for it: its sockets are full, not just slow to grow. */
const STALLED = 10;

/** A viewer, and the snapshots that it has received to their end. */
class Viewer {
  readonly socket: Socket;
  readonly seen: number[] = [];
  /** A buffer for the end of a snapshot, which may be cut. */
  #tail = '';

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on('error', () => undefined).setEncoding('latin1');
    socket.on('data', (text: string) => {
      const all = this.#tail + text;
      this.seen.push(...[...all.matchAll(/x(\d+)\n\n/g)].map(([, number]) => Number(number)));
      this.#tail = all.slice(-END).replace(/^.*x\d+\n\n/s, '');
    });
  }

  /** Resolves once a matching one has arrived. */
  async sees(fits: (number: number) => boolean): Promise<void> {
    while (!this.seen.some(fits)) await once(this.socket, 'data');
  }
}

/** A server with a feed whose snapshots are numbers, and long. */
async function harness(t: Test) {
  const clock = new FakeClock();
  let taken = 0;
  const faults: unknown[] = [];
  const feed = new ConsoleFeed(
    clock,
    { intervalMs: INTERVAL_MS, viewers: 2 },
    () => Promise.resolve(`${'x'.repeat(PICTURE)}${(taken += 1)}`),
    (fault) => faults.push(fault),
  );
  t.teardown(() => feed.close());
  const http = await serve(t, (exchange) => watch(exchange, feed));
  const open = async (): Promise<Viewer> => {
    const socket = connect(http.port, '127.0.0.1');
    t.teardown(() => void socket.destroy());
    await once(socket, 'connect');
    const viewer = new Viewer(socket);
    socket.write('GET / HTTP/1.1\r\nHost: test\r\n\r\n');
    await viewer.sees((number) => number > 0);
    return viewer;
  };
  /** The next snapshot, once this viewer has the current one. */
  const next = async (viewer: Viewer): Promise<number> => {
    const number = taken + 1;
    clock.advance(INTERVAL_MS);
    await viewer.sees((seen) => seen === number);
    return number;
  };
  return { clock, feed, http, faults, open, next };
}

t.test('a viewer that reads nothing is skipped: one snapshot waits for it, others get theirs', async (t) => {
  const { http, open, next } = await harness(t);
  const slow = await open();
  slow.socket.pause();
  const quick = await open();
  t.strictSame(quick.seen, [1], 'a later viewer gets the last one, at once');
  let [most, stalled, newest] = [0, 0, 1];
  while (stalled < STALLED && newest < MANY) {
    newest = await next(quick);
    stalled = http.server.bufferedBytes > 0 ? stalled + 1 : 0;
    most = Math.max(most, http.server.bufferedBytes);
  }
  t.equal(stalled, STALLED, 'the sockets are full');
  t.equal(quick.seen.length, newest, 'all of them');
  t.ok(most < 2 * PICTURE, `one snapshot for each of them, and no more: ${most} bytes`);
  slow.socket.resume();
  while (http.server.bufferedBytes > 0) await once(slow.socket, 'data');
  const last = await next(quick);
  await slow.sees((number) => number === last);
  t.ok(slow.seen.length <= last - STALLED / 2, `of ${last} it got ${slow.seen.length}, and then the newest`);
});

t.test(
  'a viewer that disconnects while a snapshot is sent frees its place, and nothing waits for it any more',
  async (t) => {
    const { clock, feed, http, faults, open, next } = await harness(t);
    const [leaving, staying] = [await open(), await open()];
    leaving.socket.pause();
    t.ok(feed.full);
    for (let newest = 1; http.server.bufferedBytes === 0 && newest < MANY;) newest = await next(staying);
    t.ok(http.server.bufferedBytes > 0, 'a snapshot is being sent');
    leaving.socket.destroy();
    await http.ended(1);
    t.match(http.ends, [{ outcome: 'gone' }]);
    t.notOk(feed.full);
    await next(staying);
    staying.socket.destroy();
    await http.ended(2);
    t.equal(http.server.bufferedBytes, 0);
    t.equal(clock.pending, 0, 'no timer is left');
    t.strictSame(faults, []);
  },
);
