import { contractError } from '../../../sidecar/domain/errors.js';
import t from 'tap';
import type { EventStream, Exchange } from '../../../sidecar/http/exchange.js';
import { deferred, serve } from '../../support/http-server.js';
import { eventually } from '../../support/processes.js';
import { BARE_END, type RawResponse } from '../../support/raw-http.js';

const DATE = /Date: [A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT\r\n/g;

function undated(response: RawResponse): string {
  return response.raw.replace(DATE, 'Date: -\r\n');
}

const HEAD =
  'HTTP/1.1 200 OK\r\n' +
  'Content-Type: text/event-stream; charset=utf-8\r\n' +
  'Cache-Control: no-cache\r\n' +
  'X-Accel-Buffering: no\r\n' +
  'Server-Timing: ra-queue;dur=1\r\n' +
  'Trailer: Server-Timing\r\n' +
  'x-request-id: a\r\n' +
  'Access-Control-Expose-Headers: x-request-id, Server-Timing\r\n' +
  'Keep-Alive: timeout=7\r\n' +
  'Date: -\r\n' +
  'Transfer-Encoding: chunked\r\n' +
  '\r\n';

function greet(exchange: Exchange): void {
  const stream = exchange.stream({ 'Server-Timing': 'ra-queue;dur=1' });
  stream.event('{"text":"wörld 中 🌍"}');
  stream.comment('keep-alive');
  stream.event('[DONE]');
  stream.end('ra-ttft;dur=12.3');
}

t.test('a stream with a trailer, byte for byte, twice on one connection', async (t) => {
  const { connect, ends } = await serve(t, greet);
  const caller = await connect();
  for (let round = 0; round < 2; round++) {
    const response = await caller
      .request('POST', '/', { 'x-request-id': 'a', TE: 'gzip;q=0.5, Trailers' }, '{}')
      .response();
    t.equal(
      undated(response),
      HEAD +
        '22\r\ndata: {"text":"w\xc3\xb6rld \xe4\xb8\xad \xf0\x9f\x8c\x8d"}\n\n\r\n' +
        'e\r\n: keep-alive\n\n\r\n' +
        'e\r\ndata: [DONE]\n\n\r\n' +
        '0\r\nServer-Timing: ra-ttft;dur=12.3\r\nDate: -\r\n\r\n',
    );
    t.same(response.chunks, ['data: {"text":"wörld 中 🌍"}\n\n', ': keep-alive\n\n', 'data: [DONE]\n\n']);
  }
  t.match(ends[0], { status: 200, outcome: 'complete', responseBytes: 40 + 19 + 19 });
});

t.test('frames with names, and texts that a client’s splitlines would cut', async (t) => {
  const cut = JSON.stringify({ text: 'a\u2028b\u2029c\u0085d\u000b\u000c\u001c\u001d\u001e', wide: '中' });
  const failure = contractError('internal', 'It failed.');
  const { connect } = await serve(t, {
    '/plain': {
      GET: (exchange) => {
        const stream = exchange.stream();
        stream.event(cut);
        stream.end();
      },
    },
    '/named': {
      GET: (exchange) => {
        const stream = exchange.stream(
          {},
          { named: true, errorFrame: ({ code }) => `{"type":"error","code":"${code}"}` },
        );
        stream.event(cut, 'a.b');
        stream.comment('keep-alive');
        stream.fail(failure);
      },
    },
    '/only-comments': {
      GET: (exchange) => {
        const stream = exchange.stream({}, { errorFrame: () => '{}' });
        stream.comment('keep-alive');
        stream.fail(failure);
      },
    },
  });
  const caller = await connect();
  const bodyOf = async (path: string): Promise<string> => (await caller.request('GET', path).response()).body;
  const escaped = String.raw`{"text":"a\u2028b\u2029c\u0085d\u000b\f\u001c\u001d\u001e","wide":"中"}`;
  t.same(JSON.parse(escaped), JSON.parse(cut));
  t.match(await bodyOf('/plain'), `data: ${escaped}\n\n`);
  t.match(
    await bodyOf('/named'),
    `event: a.b\ndata: ${escaped}\n\n: keep-alive\nevent: error\ndata: {"type":"error","code":"internal"}\n\n`,
    'without a blank line after the comment',
  );
  t.match(await bodyOf('/only-comments'), ': keep-alive\n: \n\ndata: {}\n\n', 'the error is a part of its own');
});

t.test('a stream without a trailer', async (t) => {
  const sent = deferred<EventStream>();
  const { connect } = await serve(t, {
    '/at-once': {
      GET: (exchange) => {
        const stream = exchange.stream();
        stream.event('a');
        stream.event('b');
        stream.end();
      },
    },
    '/later': {
      GET: (exchange) => {
        const stream = exchange.stream();
        stream.event('a');
        sent.resolve(stream);
      },
    },
    '/empty': { GET: (exchange) => exchange.stream().end('ra-ttft;dur=1') },
  });
  const caller = await connect();
  const atOnce = await caller.request('GET', '/at-once').response();
  t.same(atOnce.chunks.slice(0, -1), ['data: a\n\n', 'data: b\n\n']);
  t.match(atOnce.chunks.at(-1), BARE_END, 'ends with a comment');
  t.same(atOnce.trailers, []);
  t.equal(atOnce.field('trailer'), undefined);

  caller.request('GET', '/later');
  await caller.until('data: a\n\n');
  (await sent.promise).end();
  t.match((await caller.response()).chunks, ['data: a\n\n', BARE_END]);

  const empty = await caller.request('GET', '/empty', { TE: 'trailers' }).response();
  t.same(empty.chunks, []);
  t.same(empty.trailers[0], ['Server-Timing', 'ra-ttft;dur=1']);
  for (const te of ['', 'gzip', 'trailers;q=0', 'x-trailers']) {
    const other = await caller.request('GET', '/empty', te === '' ? {} : { TE: te }).response();
    t.equal(other.field('trailer'), undefined, te);
    t.match(other.chunks, [BARE_END], 'its request takes no trailer');
    t.same(other.trailers, []);
  }
});

t.test('the head is sent at once, and each tick’s frames after it', async (t) => {
  const opened = deferred<EventStream>();
  const { connect } = await serve(t, (exchange) => opened.resolve(exchange.stream()));
  const caller = await connect();
  caller.request('GET', '/');
  await caller.until('Transfer-Encoding: chunked\r\n\r\n');
  const stream = await opened.promise;
  t.equal(stream.bytes, 0);
  stream.event('a');
  t.equal(stream.bytes, '9\r\ndata: a\n\n\r\n'.length);
  await caller.until('data: a\n\n');
  stream.end();
  stream.event('b');
  stream.end('x;dur=1');
  t.notMatch((await caller.response()).raw, 'data: b');
});

t.test('HEAD of a stream is its head', async (t) => {
  const { connect } = await serve(t, greet);
  const caller = await connect();
  const head = await caller.request('HEAD', '/').response({ head: true });
  t.equal(head.field('content-type'), 'text/event-stream; charset=utf-8');
  t.equal(head.field('transfer-encoding'), undefined);
  t.equal(head.field('connection'), 'close', 'there is no evidence that its caller reads');
});

t.test('a handler that fails during a stream ends it with one error frame', async (t) => {
  const { connect, faults, ends } = await serve(t, {
    '/open': {
      GET: async (exchange) => {
        const stream = exchange.stream();
        stream.event('a');
        await Promise.resolve();
        throw new Error('secret');
      },
    },
    '/forges': {
      GET: (exchange) => {
        exchange.stream().event('a\n\ndata: b');
      },
    },
    '/ended': {
      GET: async (exchange) => {
        greet(exchange);
        await Promise.resolve();
        throw new Error('secret');
      },
    },
  });
  const frame =
    'data: {"error":{"message":"The server failed on this request.","type":"server_error","code":"internal","param":null}}\n\n';
  const caller = await connect();
  t.match((await caller.request('GET', '/open').response()).chunks, ['data: a\n\n', frame, BARE_END]);
  t.match((await caller.request('GET', '/forges').response()).chunks, [frame, BARE_END]);
  t.equal((await caller.request('GET', '/ended').response()).chunks.length, 4);
  t.equal(faults.length, 3);
  t.strictSame(
    ends.map(({ status, code }) => [status, code]),
    [
      [200, 'internal'],
      [200, 'internal'],
      [200, undefined],
    ],
    'the report has the error that ended it, whatever its status',
  );
});

t.test('an exchange is reported when its head has arrived, and when it has ended', async (t) => {
  const reported: string[] = [];
  const { connect } = await serve(
    t,
    { '/': { GET: (exchange) => exchange.fail(contractError('cold', 'Loading.')) } },
    {
      onExchange: ({ method }) => reported.push(`begins ${method}`),
      onExchangeEnd: ({ status, code = 'well' }) => reported.push(`ends ${status} ${code}`),
    },
  );
  const caller = await connect();
  await caller.request('GET', '/').response();
  await caller.request('PUT', '/').response();
  await caller.request('GET', '/nowhere').response();
  t.strictSame(reported, [
    'begins GET',
    'ends 503 cold',
    'begins PUT',
    'ends 405 bad_request',
    'begins GET',
    'ends 404 not_found',
  ]);
});

/** Replies with the result of a body under a limit of 1,000 bytes, some handlers awaiting before. */
async function measure(exchange: Exchange): Promise<void> {
  await Promise.resolve();
  const body = await exchange.body(1000);
  exchange.reply({ status: 200, body: body.kind === 'body' ? Buffer.from(body.bytes ?? []).toString() : body.kind });
}

t.test('request bodies', async (t) => {
  const { connect, server, ends } = await serve(t, measure);

  const caller = await connect();
  t.equal((await caller.request('POST', '/', {}, 'abc').response()).body, 'abc');
  t.equal((await (await connect()).request('POST', '/').response()).body, '', 'none');
  t.equal((await (await connect()).request('POST', '/', { 'Content-Length': '0' }).response()).body, '');
  t.equal((await caller.request('POST', '/', {}, 'x'.repeat(1000)).response()).body.length, 1000);

  caller.request('POST', '/', { 'Content-Length': '4' }, 'ab').request('POST', '/');
  t.equal(await caller.rest(), '', 'after a wrong length, `ST /` is another request, before the answer');
  t.match(ends.at(-1), { requestBytes: 4, outcome: 'gone' });

  const waiting = await connect();
  waiting.request('POST', '/', { Expect: '100-continue', 'Content-Length': '3' });
  t.equal((await waiting.response()).status, 100);
  t.equal((await waiting.send('abc').response()).body, 'abc');

  const chunked = await connect();
  chunked.request('POST', '/', { 'Transfer-Encoding': 'chunked' }, '2\r\nab\r\n1').send('\r\nc\r\n0\r').send('\n\r\n');
  const answer = await chunked.response();
  t.equal(answer.body, 'abc');
  t.equal(answer.field('connection'), 'close', 'after a chunked body uWS may misread what follows');
  t.equal(await chunked.rest(), '');
  t.match(ends.at(-1), { requestBytes: 3, responseBytes: 3 });
  t.equal(server.bodyBytes, 0, 'all memory is released');
});

t.test('a stream’s prompt counts until its reader frees it', async (t) => {
  const { connect, server } = await serve(t, async (exchange) => {
    const body = await exchange.body(1000);
    const stream = exchange.stream();
    stream.event(`${server.bodyBytes} held`);
    if (body.kind === 'body') body.free();
    stream.event(`${server.bodyBytes} held`);
  });
  const caller = await connect();
  caller.request('POST', '/', {}, 'x'.repeat(600));
  await caller.until('data: 600 held\n\n');
  await caller.until('data: 0 held\n\n');
  caller.close();
});

t.test('a body that its handler does not free is freed when the caller disconnects', async (t) => {
  const begun = deferred();
  const { connect, server } = await serve(t, async (exchange) => {
    await exchange.body(1000);
    exchange.stream().event('begun');
    begun.resolve();
  });
  const caller = await connect();
  caller.request('POST', '/', {}, 'x'.repeat(600));
  await begun.promise;
  caller.close();
  await eventually('free', () => server.bodyBytes === 0);
});

t.test('a large body is paused until it is requested', async (t) => {
  const asked = deferred();
  const size = 8 << 20;
  const { connect, server } = await serve(t, async (exchange) => {
    await asked.promise;
    const body = await exchange.body(size);
    exchange.reply({ status: 200, body: String(body.kind === 'body' && body.bytes?.length) });
  });
  const caller = await connect();
  caller.request('POST', '/', { 'Content-Length': String(size) }, 'x'.repeat(size));
  // Another connection’s round trips show that the server’s loop ran while the body was paused.
  const other = await connect();
  for (let i = 0; i < 20; i++) await other.request('GET', '/nothing').response();
  t.ok(server.bodyBytes < 2 << 20, `${server.bodyBytes} held`);
  asked.resolve();
  t.equal((await caller.response()).body, String(size));

  const refusing = await serve(t, async (exchange) => {
    await Promise.resolve();
    exchange.reply({ status: 401, body: '{}' });
  });
  const stranger = await refusing.connect();
  stranger.request('POST', '/', { 'Content-Length': String(size) }, 'x'.repeat(size));
  t.equal((await stranger.response()).status, 401);
  t.equal((await stranger.request('GET', '/').response()).status, 401, 'a body that was not requested is skipped');
});

t.test('a body that takes too long', async (t) => {
  const { connect, ends, ended } = await serve(t, measure, { limits: { totalBytes: 1000, bodyMs: 5 } });
  const caller = await connect();
  caller.request('POST', '/', { 'Content-Length': '3' }, 'a');
  t.equal(await caller.rest(), '', 'its connection is closed');
  await ended(1);
  t.match(ends, [{ outcome: 'gone', status: 499 }]);
});

t.test('a caller that disconnects', async (t) => {
  interface Seen {
    readonly exchange: Exchange;
    readonly fired: Promise<void>;
    readonly fires: () => number;
  }
  let seen = deferred<Seen>();
  const take = (exchange: Exchange): void => {
    let fires = 0;
    const fired = deferred();
    exchange.gone.addEventListener('abort', () => {
      fires++;
      fired.resolve();
    });
    seen.resolve({ exchange, fired: fired.promise, fires: () => fires });
  };
  const { connect, ends, faults, server } = await serve(t, take);
  /** Sends the start of a request and passes on the exchange that the handler got. */
  const arrive = async (headers: Record<string, string>, body: string) => {
    seen = deferred<Seen>();
    const caller = await connect();
    caller.request('POST', '/', headers, body);
    return { caller, ...(await seen.promise) };
  };

  await t.test('in the middle of its body', async (t) => {
    const { caller, exchange, fired, fires } = await arrive({ 'Content-Length': '10' }, 'abc');
    const body = exchange.body(1000);
    caller.close();
    t.same(await body, { kind: 'gone' });
    await fired;
    exchange.reply({ status: 200, body: 'x' });
    exchange.stream().event('x');
    t.same(await exchange.body(1000), { kind: 'gone' });
    t.equal(fires(), 1);
    t.equal(server.bodyBytes, 0);
    t.match(ends.at(-1), { status: 499, outcome: 'gone', requestBytes: 3, responseBytes: 0 });
  });

  await t.test('while it waits, by closing or by a reset', async (t) => {
    for (const leave of ['destroy', 'resetAndDestroy', 'end'] as const) {
      const { caller, exchange, fired, fires } = await arrive({}, 'abc');
      t.equal((await exchange.body(1000)).kind, 'body');
      caller.socket[leave]();
      await fired;
      exchange.reply({ status: 200, body: 'x' });
      t.equal(fires(), 1, leave);
      t.ok(exchange.gone.aborted);
    }
  });

  await t.test('in the middle of a stream', async (t) => {
    const { caller, exchange, fired, fires } = await arrive({}, 'abc');
    const stream = exchange.stream();
    stream.event('a');
    await caller.until('data: a');
    caller.close();
    await fired;
    const { bytes } = stream;
    stream.event('b');
    stream.comment('c');
    stream.end('x;dur=1');
    t.equal(stream.bytes, bytes);
    t.equal(fires(), 1);
    t.match(ends.at(-1), { status: 200, outcome: 'gone', responseBytes: bytes });
  });

  await t.test('after the reply', async (t) => {
    const { caller, exchange, fires } = await arrive({}, 'abc');
    exchange.reply({ status: 200, body: 'x' });
    await caller.response();
    const before = ends.length;
    caller.socket.end();
    await caller.rest();
    t.equal(fires(), 0);
    t.equal(ends.length, before);
    t.notOk(exchange.gone.aborted);
  });

  await t.test('before anybody asked', async (t) => {
    const given = deferred<Exchange>();
    const quiet = await serve(t, (exchange) => given.resolve(exchange));
    const caller = await quiet.connect();
    caller.request('GET', '/');
    const exchange = await given.promise;
    caller.close();
    await quiet.ended(1);
    t.ok(exchange.gone.aborted);
    t.same(await exchange.body(1), { kind: 'gone' });
  });
  t.same(faults, []);
});
