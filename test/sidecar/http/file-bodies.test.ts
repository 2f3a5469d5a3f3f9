/** Bodies and replies that are never whole in memory, over real sockets. */
import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import type { Handler } from '../../../sidecar/http/server.js';
import { deferred, serve } from '../../support/http-server.js';

const PIECE = Buffer.alloc(1 << 20, 'abcdefgh');

t.test('a body arrives piece by piece, and no faster than it is taken', async (t) => {
  const takes = deferred();
  let received = 0;
  let isWhole = true;
  const { server, connect: open } = await serve(t, async (exchange) => {
    await takes.promise;
    for (;;) {
      const piece = await exchange.receive(64 << 20);
      if (!(piece instanceof Uint8Array)) {
        exchange.reply({ status: 200, body: JSON.stringify({ ...piece, received }) });
        return;
      }
      for (let i = 0; i < piece.length; i += 4099) isWhole &&= piece[i] === PIECE[(received + i) % PIECE.length];
      received += piece.length;
    }
  });
  const caller = await open();
  const length = 32 * PIECE.length;
  caller.send(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n`);
  for (let i = 0; i < 32; i += 1) caller.send(PIECE);
  await new Promise((resolve) => setImmediate(resolve));
  takes.resolve();
  const { body } = await caller.response();
  t.same(JSON.parse(body), { kind: 'complete', received: length });
  t.ok(isWhole);
  t.equal(server.bodyBytes, 0);
});

t.test('a head that comes alone is no end of its body', async (t) => {
  const asked = deferred();
  const { connect: open } = await serve(t, async (exchange) => {
    asked.resolve();
    let received = 0;
    for (;;) {
      const piece = await exchange.receive(100);
      if (piece instanceof Uint8Array) received += piece.length;
      else {
        exchange.reply({ status: 200, body: JSON.stringify({ ...piece, received }) });
        return;
      }
    }
  });
  const caller = await open();
  caller.send('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n');
  await asked.promise;
  await new Promise((resolve) => setImmediate(resolve));
  caller.send('abc');
  t.same(JSON.parse((await caller.response()).body), { kind: 'complete', received: 3 });
});

t.test('chunked too; one that is too large, or whose caller leaves, ends early', async (t) => {
  const kinds: string[] = [];
  const took = deferred();
  const { connect: open, ended } = await serve(t, async (exchange) => {
    for (;;) {
      const piece = await exchange.receive(100_000);
      if (piece instanceof Uint8Array) {
        took.resolve();
        continue;
      }
      kinds.push(piece.kind);
      exchange.reply({ status: 200, body: '{}' });
      return;
    }
  });
  const chunked = 'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n';
  const whole = await open();
  whole.send(`${chunked}3\r\nabc\r\n`);
  await took.promise;
  whole.send('0\r\n\r\n');
  await whole.response();
  const declared = await open();
  declared.send('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\nx');
  await declared.response();
  const grown = await open();
  grown.send(`${chunked}30d40\r\n${'x'.repeat(200_000)}\r\n`);
  await grown.response();
  const gone = await open();
  gone.send('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nx');
  await new Promise((resolve) => setImmediate(resolve));
  gone.close();
  await ended(4);
  await new Promise((resolve) => setImmediate(resolve));
  t.same(kinds, ['complete', 'too-large', 'too-large', 'gone']);
});

/** Sends so many pieces; `asked` counts those that were read. */
function sender(count: number, asked: { pieces: number }, failsAt = Infinity): Handler {
  return (exchange) =>
    exchange.file({
      headers: { 'Content-Disposition': 'attachment' },
      type: 'application/octet-stream',
      length: count * PIECE.length,
      pieces: (async function* () {
        for (let i = 0; i < count; i += 1) {
          if (i === failsAt) throw new Error('the disk failed');
          asked.pieces += 1;
          yield PIECE;
        }
      })(),
    });
}

t.test('a file is read as its caller takes it', async (t) => {
  const asked = { pieces: 0 };
  const { port, server, ends, ended } = await serve(t, sender(64, asked));
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
  await once(socket, 'readable');
  // The server runs in this process: after some turns it has passed what the socket takes.
  for (let turn = 0; turn < 200; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  t.ok(asked.pieces < 32, `${asked.pieces} pieces were read for a caller that reads nothing`);
  t.ok(server.bufferedBytes <= PIECE.length);
  let text = Buffer.alloc(0);
  let bytes = 0;
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    if (text.length < 1000) text = Buffer.concat([text, chunk]);
    bytes += chunk.length;
    const head = text.indexOf('\r\n\r\n') + 4;
    if (head > 4 && bytes === head + 64 * PIECE.length) break;
  }
  t.match(text.toString('latin1', 0, 400), /^HTTP\/1\.1 200 OK\r\n[^]*content-disposition: attachment/i);
  await ended(1);
  t.match(ends, [{ status: 200, outcome: 'complete', responseBytes: 64 * PIECE.length }]);
  t.equal(server.bufferedBytes, 0);
});

t.test('HEAD has its length; a failure midway or a caller that leaves closes the connection', async (t) => {
  const asked = { pieces: 0 };
  const {
    connect: open,
    ends,
    ended,
    faults,
    server,
  } = await serve(t, {
    '/': { GET: sender(4, asked) },
    '/bad': { GET: sender(4, asked, 2) },
    '/long': { GET: sender(4096, asked) },
  });
  const head = await (await open()).request('HEAD', '/').response({ head: true });
  t.equal(head.field('content-length'), String(4 * PIECE.length));
  t.equal(asked.pieces, 0);
  const bad = await open();
  await t.rejects(bad.request('GET', '/bad').response(), /the connection ended/);
  const leaving = await open();
  leaving.request('GET', '/long');
  await once(leaving.socket, 'data');
  leaving.close();
  await ended(3);
  t.match(faults, [{ message: 'the disk failed' }]);
  t.same(
    ends.map(({ outcome }) => outcome),
    ['complete', 'gone', 'gone'],
  );
  t.equal(server.bufferedBytes, 0);
});
