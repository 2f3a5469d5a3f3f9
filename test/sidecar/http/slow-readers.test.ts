/** Slow readers over real sockets. The kernel’s own buffers fill first: some MiB. */
import t from 'tap';
import type { Signal } from '../../../sidecar/lib/abort.js';
import type { BodyPieces, EventStream } from '../../../sidecar/http/exchange.js';
import type { ReaderCut } from '../../../sidecar/http/uws-exchange.js';
import { deferred, serve } from '../../support/http-server.js';
import type { RawConnection } from '../../support/raw-http.js';

const KIB = 1024;
const LIMITS = { totalBytes: 1 << 30, backlog: { streamBytes: 256 * KIB, totalBytes: 512 * KIB } };
const FRAME = 'x'.repeat(4 * KIB);
const ASKING = /^: \r\nDate: [^\r\n]{29}\r\nContent-Length: 9007199254740991\r\n$/;

/** A server that passes each stream it opens to the test. */
async function streams(t: Parameters<typeof serve>[0]) {
  let next = deferred<{ stream: EventStream; gone: Signal }>();
  const cuts: ReaderCut[] = [];
  const running = await serve(t, (exchange) => next.resolve({ stream: exchange.stream(), gone: exchange.gone }), {
    limits: LIMITS,
    onReaderCut: (cut) => cuts.push(cut),
  });
  const open = async (): Promise<{ caller: RawConnection; stream: EventStream; gone: Signal }> => {
    next = deferred();
    const caller = await running.connect();
    caller.request('GET', '/', { TE: 'trailers' });
    return { caller, ...(await next.promise) };
  };
  return { ...running, open, cuts };
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

t.test('a reader gets all of a long stream, however long, and the connection continues', async (t) => {
  const { open, server, cuts } = await streams(t);
  const { caller, stream } = await open();
  const count = 250;
  for (let i = 0; i < count; i++) {
    stream.event(`${i}${FRAME}`);
    await turn();
  }
  stream.end('x;dur=1');
  const response = await caller.response();
  const frames = response.chunks.filter((text) => text.startsWith('data: '));
  t.same(
    frames,
    Array.from({ length: count }, (_, i) => `data: ${i}${FRAME}\n\n`),
  );
  const [asking, ...comments] = response.chunks.filter((text) => !text.startsWith('data: '));
  t.match(asking, ASKING, 'the bytes of asking, once');
  t.same(comments, [': \n\n']);
  t.same(response.trailers, [['Server-Timing', 'x;dur=1']]);
  t.same(cuts, []);
  t.equal(server.bufferedBytes, 0);
  caller.request('OPTIONS', '/');
  t.equal((await caller.response()).status, 204);
});

t.test('a reader that is further behind than its share is cut off, and others are not', async (t) => {
  const { open, server, cuts, ends } = await streams(t);
  const [stalled, reading] = [await open(), await open()];
  stalled.caller.socket.pause();
  let most = 0;
  while (!stalled.gone.aborted) {
    stalled.stream.event(FRAME);
    reading.stream.event(FRAME);
    await turn();
    most = Math.max(most, server.bufferedBytes);
  }
  t.match(cuts, [{ reason: 'stream' }]);
  t.ok(cuts[0]!.bytes > 256 * KIB && cuts[0]!.bytes < 270 * KIB, `${cuts[0]?.bytes} bytes`);
  t.match(ends, [{ outcome: 'gone' }]);
  t.ok(most <= 512 * KIB);
  reading.stream.end();
  t.equal((await reading.caller.response()).status, 200);
});

t.test('past the total the reader that is furthest behind is cut off', async (t) => {
  const { open, server, cuts } = await streams(t);
  const all = [await open(), await open(), await open(), await open()];
  for (const { caller } of all) caller.socket.pause();
  let most = 0;
  while (cuts.length === 0) {
    all.forEach(({ stream }, i) => stream.event(i === 0 ? FRAME + FRAME.slice(0, 100) : FRAME));
    await turn();
    most = Math.max(most, server.bufferedBytes);
  }
  t.ok(most <= 512 * KIB, `${most} at most`);
  t.match(cuts, [{ reason: 'total' }]);
  t.equal(all.filter(({ gone }) => gone.aborted).length, 1);
});

t.test(
  'a body in pieces that has ended and is not read stays counted, and its connection brings no request',
  async (t) => {
    let next = deferred<BodyPieces>();
    const running = await serve(t, (exchange) => next.resolve(exchange.pieces()), { limits: LIMITS });
    const { server } = running;
    /** A caller that stops reading before the end. */
    const unread = async (): Promise<{ caller: RawConnection; count: number }> => {
      next = deferred();
      const caller = await running.connect();
      caller.request('GET', '/');
      const pieces = await next.promise;
      caller.socket.pause();
      pieces.write('[0');
      let count = 1;
      for (const before = server.bufferedBytes; server.bufferedBytes === before; count += 1) {
        pieces.write(`,"${FRAME}"`);
        await turn();
      }
      pieces.end(']');
      // As a request's context does once its route is done.
      pieces.abort();
      await turn();
      return { caller, count };
    };
    const { caller, count } = await unread();
    t.ok(server.bufferedBytes > 0, 'it waits for the reader');
    caller.socket.resume();
    t.equal((JSON.parse((await caller.response()).body) as unknown[]).length, count);
    t.equal(server.bufferedBytes, 0);
    caller.request('OPTIONS', '/');
    t.equal((await caller.response()).status, 204, 'then the connection continues');
    const { caller: other } = await unread();
    other.request('OPTIONS', '/');
    // Two bodies and the request between them.
    await running.ended(3);
    t.match(running.ends.at(-1), { outcome: 'gone' }, 'its connection is closed');
    t.equal(server.bufferedBytes, 0);
  },
);

t.test('a sender can ask for the unread bytes, and skip what would wait', async (t) => {
  const { open, cuts } = await streams(t);
  const { caller, stream } = await open();
  stream.event('first');
  await turn();
  t.equal(stream.unread(), 0, 'it reads');
  caller.socket.pause();
  // The kernel’s own buffers fill first: some MiB.
  let sent = 0;
  for (; stream.unread() === 0; sent += 1) {
    stream.event(`${sent}${FRAME}`);
    await turn();
  }
  t.ok(sent > 1, `${sent} frames were sent before one had to wait`);
  caller.socket.resume();
  while (stream.unread() > 0) await turn();
  stream.end('x;dur=1');
  const { chunks } = await caller.response();
  const frames = chunks.join('').match(/data: [^\n]*/g);
  t.equal(frames?.length, sent + 1, 'no sent frame is missing');
  t.equal(stream.unread(), 0, 'after the end nothing waits');
  t.same(cuts, []);
});
