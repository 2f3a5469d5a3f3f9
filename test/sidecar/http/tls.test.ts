import { once } from 'node:events';
import { connect as connectPlain } from 'node:net';
import type { TLSSocket } from 'node:tls';
import t, { type Test } from 'tap';
import type { Exchange, EventStream } from '../../../sidecar/http/exchange.js';
import { connectTls, presented, testPair } from '../../support/certificates.js';
import { serve, type RunningServer } from '../../support/http-server.js';
import { eventually } from '../../support/processes.js';

const [a, b] = [testPair('a'), testPair('b')];

/** A reply that no socket accepts at once: longer than what `tcp_wmem` and `tcp_rmem` allow a kernel to buffer. */
const LONG = 'x'.repeat(48 << 20);

const streams: EventStream[] = [];

function start(t: Test): Promise<RunningServer> {
  return serve(
    t,
    {
      '/short': { GET: (exchange: Exchange) => exchange.reply({ status: 200, body: '{"ok":true}' }) },
      '/long': { GET: (exchange: Exchange) => exchange.reply({ status: 200, body: LONG }) },
      '/empty': { GET: (exchange: Exchange) => exchange.reply({ status: 204 }) },
      '/stream': {
        GET: (exchange: Exchange) => {
          streams.push(exchange.stream());
        },
      },
    },
    { tls: a },
  );
}

/** Sends a request and returns all that arrives until the server ends the connection, or until `enough` matches. */
async function ask(socket: TLSSocket, path: string, enough: RegExp, method = 'GET'): Promise<string> {
  socket.write(`${method} ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  const parts: string[] = [];
  let tail = '';
  for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    const text = chunk.toString('latin1');
    parts.push(text);
    tail = (tail + text).slice(-4096);
    if (enough.test(tail)) break;
  }
  return parts.join('');
}

async function open(t: Test, port: number, options = {}): Promise<TLSSocket> {
  const socket = await connectTls(port, options);
  t.teardown(() => socket.destroy());
  return socket;
}

t.test('TLS 1.2 and 1.3, nothing older, and no plain HTTP', async (t) => {
  const { port, ends } = await start(t);
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const socket = await open(t, port, { minVersion: version, maxVersion: version });
    t.equal(socket.getProtocol(), version);
    t.match(await ask(socket, '/short', /true}$/), /^HTTP\/1\.1 200 OK\r\n[^]*\r\n\r\n{"ok":true}$/);
  }
  t.strictSame(
    ends.map(({ scheme }) => scheme),
    ['https', 'https'],
  );
  const old = { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
  await t.rejects(connectTls(port, old));
  const plain = connectPlain(port, '127.0.0.1');
  plain.write('GET /short HTTP/1.1\r\nHost: localhost\r\n\r\n');
  let received = '';
  plain.setEncoding('latin1').on('data', (text) => (received += String(text)));
  await once(plain, 'close');
  t.notMatch(received, /HTTP/);
});

t.test('every kind of answer, on one connection where it may be kept', async (t) => {
  const { port } = await start(t);
  const socket = await open(t, port);
  t.equal(presented(socket), 'a.test');
  t.match(await ask(socket, '/short', /\r\n\r\n$/, 'HEAD'), /Content-Length: 11\r\n[^]*\r\n\r\n$/i);
  t.match(await ask(socket, '/short', /true}$/), /200 OK/);
  const streamed = ask(socket, '/stream', /\r\n0\r\n\r\n$/);
  await eventually('the stream is open', () => streams.length > 0);
  const stream = streams.pop();
  stream?.event('first');
  stream?.end('ra-ttft;dur=1');
  t.match(await streamed, /data: first\n\n\r\n3c\r\n: \r\nDate: .{29}\r\nContent-Length: 5\r\n\r\n0\r\n\r\n$/);
  t.match(await ask(socket, '/empty', /close[^]*\r\n\r\n$/), /204 No Content/);
});

t.test('a long reply arrives whole although its reader is slow', async (t) => {
  const { port, server } = await start(t);
  const socket = await open(t, port, { highWaterMark: 16 * 1024 });
  socket.pause();
  socket.write('GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await eventually('the reply waits', () => server.bufferedBytes > 0);
  t.ok(server.bufferedBytes <= LONG.length);
  let bytes = 0;
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > LONG.length) break;
  }
  t.ok(bytes > LONG.length);
  await eventually('nothing waits', () => server.bufferedBytes === 0);
});

t.test('a certificate is renewed while streams run and callers connect', async (t) => {
  const { port, server } = await start(t);
  const STREAMS = 20;
  const open1 = await Promise.all(Array.from({ length: STREAMS }, () => open(t, port)));
  const bodies = open1.map((socket) => ask(socket, '/stream', /\r\n0\r\n\r\n$/));
  await eventually('all streams are open', () => streams.length === STREAMS);
  const names = new Set<string>();
  let connecting = true;
  const callers = Array.from({ length: 4 }, async () => {
    let last = '';
    while (connecting) {
      const socket = await connectTls(port);
      last = presented(socket);
      names.add(last);
      if (!/true}$/.test(await ask(socket, '/short', /true}$/))) throw new Error('no answer');
      socket.destroy();
    }
    return last;
  });
  for (const [i, pair] of [b, a, b].entries()) {
    await new Promise((done) => setImmediate(done));
    server.renewTls(pair);
    for (const stream of streams) stream.event(`after ${i}`);
  }
  await eventually('callers get the new certificate', () => names.has('b.test'));
  connecting = false;
  await Promise.all(callers);
  const later = await open(t, port);
  t.equal(presented(later), 'b.test');
  for (const stream of streams.splice(0)) stream.end();
  for (const body of await Promise.all(bodies)) t.match(body, /after 0[^]*after 1[^]*after 2[^]*\r\n0\r\n/);
});

t.test('a pair that uWS cannot use throws, and the previous one stays', async (t) => {
  const { port, server } = await start(t);
  t.throws(() => server.renewTls({ keyFile: a.keyFile, certFile: b.certFile }));
  t.throws(() => server.renewTls({ keyFile: '/nowhere', certFile: b.certFile }));
  t.equal(presented(await open(t, port)), 'a.test');
});
