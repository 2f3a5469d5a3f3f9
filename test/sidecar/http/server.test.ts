import { createServer as createTcpServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import t from 'tap';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { contractError } from '../../../sidecar/domain/errors.js';
import type { Signal } from '../../../sidecar/lib/abort.js';
import { addressText, hostInstead } from '../../../sidecar/http/addresses.js';
import { Server, type Handler } from '../../../sidecar/http/server.js';
import { deferred, serve } from '../../support/http-server.js';
import { RawConnection } from '../../support/raw-http.js';
import type { RawResponse } from '../../support/raw-http.js';
import { NO_FILES } from '../../support/request-head.js';

const DATE = /Date: [A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\r\n/g;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const hello: Handler = (exchange) => exchange.reply({ status: 200, body: '{"hello":"wörld"}' });

function undated(response: RawResponse): string {
  return response.raw.replace(DATE, 'Date: -\r\n');
}

function errorOf(response: RawResponse): { code: string; message: string } {
  return (JSON.parse(response.body) as { error: { code: string; message: string } }).error;
}

t.test('a whole reply, byte for byte, twice on one connection', async (t) => {
  const { connect } = await serve(t, hello);
  const caller = await connect();
  for (const id of ['a', 'b']) {
    caller.request('GET', '/', { 'x-request-id': id });
    const response = await caller.response();
    t.equal(
      undated(response),
      'HTTP/1.1 200 OK\r\n' +
        'Content-Type: application/json\r\n' +
        `x-request-id: ${id}\r\n` +
        'Access-Control-Expose-Headers: x-request-id\r\n' +
        'Keep-Alive: timeout=7\r\n' +
        'Date: -\r\n' +
        'Content-Length: 18\r\n' +
        '\r\n' +
        '{"hello":"w\xc3\xb6rld"}',
    );
  }
});

t.test('an error, byte for byte', async (t) => {
  const { connect } = await serve(t, (exchange) =>
    exchange.fail(contractError('capacity_exceeded', 'Full.', { retryAfterMs: 1200.2 }), {
      'Server-Timing': 'ra-queue;dur=1',
    }),
  );
  const caller = await connect();
  caller.request('POST', '/', { 'x-request-id': 'a' }, '{}');
  t.equal(
    undated(await caller.response()),
    'HTTP/1.1 429 Too Many Requests\r\n' +
      'Content-Type: application/json\r\n' +
      'Retry-After: 2\r\n' +
      'retry-after-ms: 1201\r\n' +
      'Server-Timing: ra-queue;dur=1\r\n' +
      'x-request-id: a\r\n' +
      'Access-Control-Expose-Headers: x-request-id, Retry-After, Server-Timing\r\n' +
      'Keep-Alive: timeout=7\r\n' +
      'Date: -\r\n' +
      'Content-Length: 111\r\n' +
      '\r\n' +
      '{"error":{"message":"Full. Please try again in 2s.","type":"capacity","code":"capacity_exceeded","param":null}}',
  );
});

t.test('an error that a retry cannot correct has x-should-retry: false', async (t) => {
  const { connect } = await serve(t, (exchange) => exchange.fail(contractError('invalid_api_key', 'No.')));
  const caller = await connect();
  const response = await caller.request('GET', '/').response();
  t.equal(response.status, 401);
  t.equal(response.field('x-should-retry'), 'false');
  t.equal(response.field('retry-after'), undefined);
});

t.test('a caller’s well-formed request id is kept, otherwise one is made', async (t) => {
  const { connect } = await serve(t, (exchange) => exchange.reply({ status: 200, body: exchange.head.requestId }));
  const caller = await connect();
  for (const id of ['a', 'A.z_9:-', 'x'.repeat(128)]) {
    const response = await caller.request('GET', '/', { 'X-Request-ID': id }).response();
    t.equal(response.field('x-request-id'), id);
    t.equal(response.body, id);
  }
  for (const id of ['', 'a b', 'x'.repeat(129), 'a\u00e9b', '<a>', 'a,b']) {
    const response = await caller.request('GET', '/', { 'X-Request-ID': id }).response();
    t.match(response.field('x-request-id'), UUID, JSON.stringify(id));
  }
  caller.send('GET / HTTP/1.1\r\nHost: a\r\nx-request-id: a\r\nx-request-id: b\r\n\r\n');
  t.match((await caller.response()).field('x-request-id'), UUID, 'two ids count as none');
});

t.test('HEAD is GET without its body, and the connection continues', async (t) => {
  const { connect } = await serve(t, hello);
  const caller = await connect();
  const head = await caller.request('HEAD', '/').response({ head: true });
  const get = await caller.request('GET', '/').response();
  t.equal(head.field('content-length'), get.field('content-length'));
  t.equal(head.field('content-type'), 'application/json');
  t.equal(get.body, '{"hello":"wörld"}');
});

t.test('unknown paths and methods', async (t) => {
  const { connect, ends } = await serve(t, { '/v1/models': { GET: hello }, '/v1/chat': { POST: hello } });
  const caller = await connect();

  for (const path of ['/', '/v1/models/', '/v1/Models', '/v1/%6dodels', '/__proto__', '/v1/models/x', '/constructor']) {
    const response = await caller.request('GET', path).response();
    t.equal(response.status, 404, path);
    t.equal(errorOf(response).code, 'not_found');
    t.match(response.field('x-request-id'), UUID);
  }
  t.equal(
    (await caller.request('GET', '/v1/models?limit=3').response()).status,
    200,
    'a query is not part of the path',
  );
  t.equal((await caller.request('HEAD', '/nothing').response({ head: true })).status, 404);

  for (const [method, path, allow] of [
    ['POST', '/v1/models', 'GET, HEAD, OPTIONS'],
    ['GET', '/v1/chat', 'POST, OPTIONS'],
    ['BREW', '/v1/chat', 'POST, OPTIONS'],
    ['post', '/v1/chat', 'POST, OPTIONS'],
    ['HEAD', '/v1/chat', 'POST, OPTIONS'],
    ['constructor', '/v1/chat', 'POST, OPTIONS'],
  ] as const) {
    const response = await caller.request(method, path).response({ head: method === 'HEAD' });
    t.equal(response.status, 405, `${method} ${path}`);
    t.equal(response.field('allow'), allow);
    t.equal(response.field('x-should-retry'), 'false');
    if (method !== 'HEAD') t.equal(errorOf(response).code, 'bad_request');
  }
  t.same(
    [...new Set(ends.map((end) => end.route))],
    [undefined, '/v1/models', '/v1/chat'],
    'reported ends name routes only',
  );
});

t.test('OPTIONS', async (t) => {
  const { connect } = await serve(t, { '/chat': { POST: hello } }, { origins: ['https://app.example'] });
  const ask = async (path: string, headers: Readonly<Record<string, string>> = {}): Promise<RawResponse> =>
    (await connect()).request('OPTIONS', path, headers).response();

  const caller = await connect();
  const preflight = await caller
    .request('OPTIONS', '/chat', {
      'x-request-id': 'a',
      Origin: 'https://app.example',
      'Access-Control-Request-Method': 'POST',
      'Access-Control-Request-Headers': 'authorization,content-type, X-Stainless-OS,x-evil',
    })
    .response();
  t.equal(
    undated(preflight),
    'HTTP/1.1 204 No Content\r\n' +
      'Allow: POST, OPTIONS\r\n' +
      'Access-Control-Allow-Methods: POST, OPTIONS\r\n' +
      'Access-Control-Allow-Headers: authorization, content-type, x-stainless-os\r\n' +
      'Access-Control-Max-Age: 7200\r\n' +
      'x-request-id: a\r\n' +
      'Access-Control-Expose-Headers: x-request-id\r\n' +
      'Access-Control-Allow-Origin: https://app.example\r\n' +
      'Timing-Allow-Origin: https://app.example\r\n' +
      'Vary: Origin\r\n' +
      'Connection: close\r\n' +
      'Date: -\r\n' +
      '\r\n',
  );
  caller.request('GET', '/nothing');
  t.equal(await caller.rest(), '', 'its connection serves no other request');

  const stranger = await ask('/chat', { Origin: 'https://evil.example', 'Access-Control-Request-Method': 'POST' });
  t.equal(stranger.status, 204);
  t.equal(stranger.field('access-control-allow-origin'), undefined);
  t.equal(stranger.field('access-control-allow-methods'), undefined);
  t.equal((await ask('/chat')).field('allow'), 'POST, OPTIONS');
  t.equal((await ask('/nothing')).status, 404);
});

t.test('heads that two parsers may read differently are refused and their connection is closed', async (t) => {
  let handled = 0;
  const { connect } = await serve(t, (exchange) => {
    handled++;
    exchange.reply({ status: 200 });
  });
  const get = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';
  const cases: [string, string][] = [
    ['Content-Length: 3\r\nContent-Length: 5', 'abc'],
    ['Content-Length: 3\r\nContent-Length: 3', 'abc'],
    ['Authorization: Bearer a\r\nAuthorization: Bearer b', ''],
    ['x-ra-account: a\r\nx-ra-account: b', ''],
    ['Transfer-Encoding: gzip', '0\r\n\r\n'],
    ['Transfer-Encoding: gzip, chunked', '0\r\n\r\n'],
    ['Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked', '0\r\n\r\n'],
    ['Content-Length: ', ''],
  ];
  for (const [fields, body] of cases) {
    const caller = await connect();
    caller.send(`POST / HTTP/1.1\r\nHost: a\r\n${fields}\r\n\r\n${body}`);
    const response = await caller.response();
    t.equal(response.status, 400, fields);
    t.equal(errorOf(response).code, 'bad_request');
    t.equal(response.field('connection'), 'close');
    t.equal(await caller.rest(), '', 'closed');

    const smuggler = await connect();
    smuggler.send(`POST / HTTP/1.1\r\nHost: a\r\n${fields}\r\n\r\n${body}${get}`);
    t.notMatch(await smuggler.rest(), '200 OK', 'a request behind it is not served');
  }
  const head = await connect();
  head.send('HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n');
  t.equal((await head.response({ head: true })).status, 400);
  t.equal(await head.rest(), '');
  t.equal(handled, 0);
});

t.test('requests that uWS itself refuses never reach a handler', async (t) => {
  let answered = 0;
  const { connect } = await serve(t, (exchange) => {
    answered++;
    exchange.reply({ status: 200 });
  });
  const line = 'POST / HTTP/1.1\r\nHost: a\r\n';
  for (const [request, status] of [
    [`${line}Content-Length: abc\r\n\r\n`, 400],
    [`${line}Content-Length: -1\r\n\r\n`, 400],
    [`${line}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n`, 400],
    ['GET / HTTP/1.1\r\n\r\n', 400],
    [`${line}X: ${'y'.repeat(5000)}\r\n\r\n`, 431],
    ['GET / HTTP/1.0\r\nHost: a\r\n\r\n', 505],
  ] as const) {
    const caller = await connect();
    caller.send(request);
    t.match(await caller.rest(), new RegExp(`^HTTP/1\\.1 ${status} [^]*Connection: close`), JSON.stringify(request));
  }
  t.equal(answered, 0);
});

t.test('requests in one packet', async (t) => {
  const late = deferred();
  const { connect, ends, ended } = await serve(t, {
    '/now': { GET: hello },
    '/later': {
      GET: async (exchange) => {
        await late.promise;
        exchange.reply({ status: 200 });
      },
    },
  });
  const request = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;

  const lucky = await connect();
  lucky.send(request('/now') + request('/now'));
  t.equal((await lucky.response()).status, 200);
  t.equal((await lucky.response()).status, 200, 'served in turn while each is answered at once');

  const unlucky = await connect();
  unlucky.send(request('/later') + request('/now'));
  t.equal(await unlucky.rest(), '', 'otherwise uWS closes the connection');
  await ended(3);
  t.match(ends[2], { route: '/later', outcome: 'gone', status: 499 });
  late.resolve();
});

t.test('a handler that fails', async (t) => {
  const secret = new Error('secret');
  const { connect, faults } = await serve(t, {
    '/throws': {
      POST: () => {
        throw secret;
      },
    },
    '/rejects': {
      POST: async (exchange) => {
        await exchange.body(10);
        throw secret;
      },
    },
    '/late': {
      POST: async (exchange) => {
        exchange.reply({ status: 200, body: '{}' });
        throw secret;
      },
    },
    '/forges': { POST: (exchange) => exchange.reply({ status: 200, headers: { a: 'b\r\nc: d' } }) },
  });
  const caller = await connect();
  for (const path of ['/throws', '/rejects', '/forges']) {
    const response = await caller.request('POST', path, {}, 'abc').response();
    t.equal(response.status, 500, path);
    t.equal(errorOf(response).code, 'internal');
    t.notMatch(response.raw, 'secret');
  }
  t.equal((await caller.request('POST', '/late', {}, 'abc').response()).status, 200);
  t.equal(faults.length, 4);
  t.equal(faults[0], secret);
});

t.test('only the first answer counts', async (t) => {
  const { connect, ends } = await serve(t, (exchange) => {
    exchange.reply({ status: 200, body: '1' });
    exchange.reply({ status: 201, body: '2' });
    exchange.fail(contractError('internal', '3'));
    const stream = exchange.stream();
    stream.event('4');
    stream.end('a;dur=1');
    stream.end();
  });
  const caller = await connect();
  t.equal((await caller.request('GET', '/').response()).body, '1');
  t.equal((await caller.request('GET', '/').response()).body, '1');
  t.equal(ends.length, 2);
  t.match(ends[0], { status: 200, outcome: 'complete', responseBytes: 1, requestBytes: 0, route: '/' });
});

t.test('other bodies', async (t) => {
  const { connect } = await serve(t, {
    '/bytes': {
      GET: (exchange) =>
        exchange.reply({ status: 200, headers: { 'content-type': 'image/png' }, body: Buffer.from([0, 255]) }),
    },
    '/none': { GET: (exchange) => exchange.reply({ status: 202 }) },
    '/204': { GET: (exchange) => exchange.reply({ status: 204 }) },
  });
  const caller = await connect();
  const bytes = await caller.request('GET', '/bytes').response();
  t.equal(bytes.field('content-type'), 'image/png');
  t.ok(bytes.raw.endsWith('\r\n\r\n\0\xff'));
  const none = await caller.request('GET', '/none').response();
  t.equal(none.field('connection'), 'close', 'there is no evidence that its caller reads');
  t.equal(none.field('content-length'), '0');
  t.equal(none.field('content-type'), undefined);
  const other = await connect();
  t.equal((await other.request('GET', '/204').response()).field('content-length'), undefined);
});

t.test('endConnections() ends each connection with its next answer', async (t) => {
  const release = deferred();
  const waiting = deferred();
  const { server, connect, ends } = await serve(t, {
    '/': { GET: hello },
    '/wait': {
      GET: async (exchange) => {
        waiting.resolve();
        await release.promise;
        await hello(exchange);
      },
    },
  });
  const idle = await connect();
  t.equal((await idle.request('GET', '/').response()).field('connection'), undefined);
  const caller = await connect();
  caller.request('GET', '/wait');
  await waiting.promise;

  server.endConnections();
  server.endConnections();
  release.resolve();
  const last = await caller.response();
  t.equal(last.status, 200, 'running requests are finished');
  t.equal(last.field('connection'), 'close');
  t.equal(await caller.rest(), '');

  for (const [name, connection] of Object.entries({ idle, new: await connect() })) {
    t.equal((await connection.request('GET', '/').response()).field('connection'), 'close', `${name}: served once`);
    t.equal(await connection.rest(), '', name);
  }
  t.equal(ends.length, 4);
});

t.test('close() disconnects waiting callers', async (t) => {
  const seen = deferred<Signal>();
  const { server, connect, ends } = await serve(t, (exchange) => seen.resolve(exchange.gone));
  const caller = await connect();
  caller.request('GET', '/');
  const gone = await seen.promise;
  await server.close();
  t.ok(gone.aborted);
  t.match(ends, [{ outcome: 'gone' }]);
  t.equal(await caller.rest(), '');
  await t.rejects(connect(), { code: 'ECONNREFUSED' });
});

t.test('an address that is in use', async (t) => {
  const other = createTcpServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => other.once('listening', resolve));
  t.teardown(() => other.close());
  const first = await serve(t, hello);
  for (const port of [(other.address() as AddressInfo).port, first.port]) {
    const server = new Server({
      routes: {},
      origins: [],
      clock: systemClock,
      limits: { totalBytes: 1 },
      onFault: () => undefined,
    });
    await t.rejects(server.listen('127.0.0.1', port), { message: `cannot listen on 127.0.0.1:${port}: EADDRINUSE` });
    await server.close();
    await t.rejects(server.listen('127.0.0.1', 0), { message: 'a server listens once' });
  }
});

t.test(':: takes callers of IPv4 and IPv6', async (t) => {
  t.equal(hostInstead('::', 'EAFNOSUPPORT'), '0.0.0.0', 'of a kernel without IPv6');
  for (const [host, code] of [
    ['::1', 'EAFNOSUPPORT'],
    ['::', 'EADDRINUSE'],
    ['::', undefined],
  ] as const)
    t.equal(hostInstead(host, code), undefined);
  t.equal(addressText('::', 8080), '[::]:8080');
  t.equal(addressText('127.0.0.1', 8080), '127.0.0.1:8080');
  const server = new Server({
    routes: { '/': { GET: hello } },
    origins: [],
    clock: systemClock,
    limits: { totalBytes: 1 },
    onFault: () => undefined,
  });
  t.teardown(() => server.close());
  const { port } = await server.listen('::', 0);
  const hasIPv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
  for (const host of ['127.0.0.1', ...(hasIPv6 ? ['[::1]'] : [])])
    t.equal((await fetch(`http://${host}:${port}/`)).status, 200, host);
});

t.test('an address can be used again at once, although its old connections linger', async (t) => {
  const make = (): Server =>
    new Server({
      routes: { '/': { GET: hello } },
      origins: [],
      clock: systemClock,
      limits: { totalBytes: 1 },
      onFault: () => undefined,
    });
  const scout = make();
  const { port } = await scout.listen('127.0.0.1', 0);
  await scout.close();
  for (let round = 0; round < 2; round++) {
    const server = make();
    t.same(await server.listen('127.0.0.1', port), { port });
    await t.rejects(make().listen('127.0.0.1', port), { message: /cannot listen/ }, 'it is not shared');
    const caller = await RawConnection.open(port);
    await caller.request('GET', '/').response();
    await server.close();
    t.equal(await caller.rest(), '', 'the server closed first');
    caller.close();
    await server.close();
  }
});

t.test('a wrapper of exchanges sees all answers, the server’s own refusals too', async (t) => {
  const seen: unknown[] = [];
  const { connect } = await serve(
    t,
    { '/': { GET: hello } },
    {
      wrap: (exchange) => ({
        head: exchange.head,
        gone: exchange.gone,
        ...NO_FILES,
        body: (limit) => exchange.body(limit),
        stream: (headers) => exchange.stream(headers),
        pieces: (headers) => exchange.pieces(headers),
        reply: (reply) => {
          seen.push(reply.status);
          exchange.reply(reply);
        },
        fail: (error, headers) => {
          seen.push(error.status);
          exchange.fail(error, headers);
        },
      }),
    },
  );
  const caller = await connect();
  for (const [method, path] of [
    ['GET', '/'],
    ['POST', '/'],
    ['GET', '/nowhere'],
  ] as const)
    await caller.request(method, path).response();
  await caller.send('GET / HTTP/1.1\r\nHost: a\r\nAuthorization: b\r\nAuthorization: c\r\n\r\n').response();
  t.strictSame(seen, [200, 405, 404, 400]);
});

t.test('a path with names in it matches one segment for each, and at its end all that follows', async (t) => {
  const named =
    (name: string): Handler =>
    (exchange) =>
      exchange.reply({ status: 200, body: `"${name} ${exchange.head.route ?? ''}"` });
  const routes = {
    '/keys': { GET: named('all') },
    '/keys/{id}': { GET: named('one') },
    '/keys/{id}/rotate': { GET: named('rotate') },
    '/a.b/{name}/c': { GET: named('dot') },
  };
  const { connect } = await serve(t, routes);
  const caller = await connect();
  for (const [path, body] of [
    ['/keys', '"all /keys"'],
    ['/keys/x', '"one /keys/{id}"'],
    ['/keys/x/y', '"one /keys/{id}"'],
    ['/keys/x/rotate', '"rotate /keys/{id}/rotate"'],
    ['/keys/x/y/rotate', '"one /keys/{id}"'],
    ['/a.b/x/c', '"dot /a.b/{name}/c"'],
  ] as const)
    t.equal((await caller.request('GET', path).response()).body, body, path);
  for (const path of ['/keys/', '/axb/x/c', '/a.b//c'])
    t.equal((await caller.request('GET', path).response()).status, 404, path);
});
