/** Callers that send requests and do not read, and callers that read the buffered answers later, over real sockets. */
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Handler, Server } from '../../../sidecar/http/server.js';
import { serve } from '../../support/http-server.js';
import { RawConnection } from '../../support/raw-http.js';
import { shortDir } from '../../support/short-dir.js';
import { unreading } from '../../support/unreading.js';

const MIB = 1 << 20;
/** More than the kernel buffers for one connection: `tcp_wmem` and `tcp_rmem` bound that. */
const SOCKETS_BYTES = 48 * MIB;
const DOCUMENT = Buffer.alloc(92_000, 'd');
/** Characters of one, two, three and four bytes, at every offset of a block once. */
const TEXT = 'aö中🌍'.repeat(400_000);

const document: Handler = (exchange) => exchange.reply({ status: 200, body: DOCUMENT });

/**
 * The path of a Unix socket of the server. The kernel buffers some 200 KB for one, whatever its bounds for TCP: a longer answer
 * waits in the server for certain.
 */
async function unixSocket(t: Test, server: Server): Promise<string> {
  const path = join(shortDir(t), 'ra.sock');
  await server.listenUnix(path, 0o600);
  return path;
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** What a server without a bound would buffer. */
const FLOOD_BYTES = 64 * MIB;

t.test('pipelined requests whose answers are not read are not all accepted', async (t) => {
  for (const method of ['GET', 'HEAD', 'OPTIONS']) {
    const { port, ends } = await serve(t, { '/': { GET: document } });
    const socket = unreading(port);
    const requests = `${method} / HTTP/1.1\r\nHost: a\r\n\r\n`.repeat(2000);
    let sent = 0;
    for (; !socket.destroyed && sent < FLOOD_BYTES && ends.length < 1000; sent += requests.length) {
      socket.write(requests);
      await turn();
    }
    t.ok(socket.destroyed, `${method}: the connection ended after ${sent} bytes`);
    const bytes = ends.reduce((sum, { responseBytes }) => sum + responseBytes, 0);
    t.ok(bytes < SOCKETS_BYTES, `${method}: ${ends.length} answers with ${bytes} bytes of body`);
    t.ok(ends.length < 1000, `${method}: ${ends.length} answers`);
    socket.destroy();
  }
});

/**
 * Requests that come one in a packet, and the most that may be answered. (Short answers would fill the sockets too,
 * later.)
 */
const ONE_BY_ONE: Record<string, { readonly request: string; readonly most: number }> = {
  'a document': { request: 'GET / HTTP/1.1\r\nHost: a\r\n\r\n', most: SOCKETS_BYTES / DOCUMENT.length },
  'no body': { request: 'OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n', most: 1 },
  'after chunks': { request: 'GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', most: 1 },
};

/** Turns of the loop in which an acceptable request is accepted. */
const TURNS = 20;

for (const [what, { request, most }] of Object.entries(ONE_BY_ONE)) {
  t.test(`one request a packet without reading ends the connection: ${what}`, async (t) => {
    let [taken, answered] = [0, 0];
    const { port } = await serve(
      t,
      { '/': { GET: document } },
      { onExchange: () => (taken += 1), onExchangeEnd: ({ outcome }) => (answered += outcome === 'complete' ? 1 : 0) },
    );
    const socket = unreading(port);
    for (let sent = 1; !socket.destroyed && answered <= most; sent++) {
      socket.write(request);
      // Until it was answered, or will not be.
      for (let turns = 0; turns < TURNS && answered < sent; turns++) await turn();
    }
    t.ok(socket.destroyed, 'it ended');
    t.ok(answered > 0 && answered <= most, `${answered} answers to ${taken} requests`);
    socket.destroy();
  });
}

t.test('a late reader gets every byte of a whole reply, and its connection continues', async (t) => {
  const { connect, port, server, ended } = await serve(t, {
    '/text': { GET: (exchange) => exchange.reply({ status: 200, body: TEXT }) },
    '/kept': { GET: (exchange) => exchange.reply({ status: 200, body: Buffer.from(TEXT) }) },
  });
  const socket = await unixSocket(t, server);
  for (const at of [port, socket]) {
    for (const path of ['/text', '/kept']) {
      const caller = await RawConnection.open(at);
      t.teardown(() => caller.close());
      caller.socket.pause();
      caller.request('GET', path);
      // Another connection’s answer shows that the server’s loop ran.
      for (let i = 0; i < 20; i++) await (await connect()).request('HEAD', path).response({ head: true });
      if (path === '/kept') t.equal(server.bufferedBytes, 0, 'bytes that the handler keeps anyway are not counted');
      else if (at === socket) t.equal(server.bufferedBytes, Buffer.byteLength(TEXT), 'buffered bytes are counted');
      caller.socket.resume();
      const response = await caller.response();
      t.equal(response.field('content-length'), String(Buffer.byteLength(TEXT)));
      t.ok(response.body === TEXT, 'no byte is missing or repeated');
      t.equal((await caller.request('HEAD', path).response({ head: true })).status, 200);
    }
  }
  await ended(88);
  t.equal(server.bufferedBytes, 0);
});

t.test('a late reader gets every byte before its connection is closed', async (t) => {
  const { connect } = await serve(t, (exchange) => exchange.reply({ status: 200, body: TEXT }));
  for (const headers of [{ Connection: 'close' }, { 'Transfer-Encoding': 'chunked' }]) {
    const caller = await connect();
    caller.socket.pause();
    caller.request('GET', '/', headers, 'Connection' in headers ? undefined : '0\r\n\r\n');
    for (let i = 0; i < 20; i++) await (await connect()).request('HEAD', '/').response({ head: true });
    caller.socket.resume();
    t.ok((await caller.response()).body === TEXT);
    t.equal(await caller.rest(), '', 'closed, and nothing else');
  }
});

t.test('pipelined requests of a reading caller are answered in order', async (t) => {
  const names = Array.from({ length: 20 }, (_, i) => `/${i}`);
  const long = 'é'.repeat(20_000);
  const { connect } = await serve(
    t,
    Object.fromEntries(
      names.map((name, i): [string, { GET: Handler }] => [
        name,
        { GET: (exchange) => exchange.reply({ status: 200, body: i % 5 === 4 ? name + long : name }) },
      ]),
    ),
  );
  const caller = await connect();
  caller.send(names.map((name) => `GET ${name} HTTP/1.1\r\nHost: a\r\n\r\n`).join(''));
  for (const [i, name] of names.entries()) t.equal((await caller.response()).body, i % 5 === 4 ? name + long : name);
});

t.test('streams whose ends are unread on a kept connection do not accumulate', async (t) => {
  const frame = 'x'.repeat(4096);
  const { port, ends } = await serve(
    t,
    (exchange) => {
      const stream = exchange.stream();
      // Below half of a stream’s share, above which it would ask anyway.
      for (let i = 0; i < 24; i++) stream.event(frame);
      stream.end('x;dur=1');
    },
    { limits: { totalBytes: 1 << 30, backlog: { streamBytes: 256 * 1024, totalBytes: MIB } } },
  );
  const socket = unreading(port);
  const bytes = (): number => ends.reduce((sum, { responseBytes }) => sum + responseBytes, 0);
  for (let sent = 1; !socket.destroyed && bytes() < FLOOD_BYTES; sent++) {
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    for (let turns = 0; turns < TURNS && ends.length < sent; turns++) await turn();
  }
  t.ok(socket.destroyed, `the connection ended after ${ends.length} streams of ${bytes()} bytes`);
  t.ok(bytes() < SOCKETS_BYTES);
  socket.destroy();
});
