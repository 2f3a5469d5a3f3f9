/**
 * Answers that are complete before the request's body: what follows on the connection, and when it ends. uWS closes a connection that
 * brings nothing for 10 s, so that each of these tests takes as long; they run side by side.
 */
import t, { type Test } from 'tap';
import { serve, type RunningServer } from '../../support/http-server.js';

const POST = 'POST / HTTP/1.1\r\nHost: a\r\n';
const CHUNKED = `${POST}Transfer-Encoding: chunked\r\n\r\n`;
const LENGTH = `${POST}Content-Length: 5\r\n\r\n`;
/** More than sockets and uWS hold. */
const LONG = 'x'.repeat(16 * 1024 * 1024);

/** A server that answers each request at once, and counts them. */
async function early(t: Test): Promise<RunningServer & { readonly served: () => number }> {
  let served = 0;
  const running = await serve(t, {
    '/': {
      POST: (exchange) => {
        served += 1;
        exchange.reply({ status: 401, body: '{}' });
      },
    },
    '/long': { POST: (exchange) => exchange.reply({ status: 200, body: LONG }) },
    '/stream': {
      POST: (exchange) => {
        const stream = exchange.stream();
        stream.event('a');
        stream.end();
      },
    },
  });
  return { ...running, served: () => served };
}

t.jobs = 10;

t.test('a body that is late leaves the connection open for the next request, until it is idle', async (t) => {
  const { connect, served } = await early(t);
  const caller = await connect();
  caller.send(LENGTH);
  const first = await caller.response();
  t.equal(first.status, 401);
  t.equal(first.field('connection'), undefined);
  caller.send('hello');
  caller.send(`${LENGTH}hello`);
  t.equal((await caller.response()).status, 401);
  caller.send(LENGTH);
  t.equal((await caller.response()).status, 401);
  caller.send('hello');
  t.equal(await caller.rest(), '', 'closed once it is idle');
  t.equal(served(), 3);
});

t.test('an idle connection is kept for as long as its answer says', async (t) => {
  const { connect } = await early(t);
  const caller = await connect();
  const from = performance.now();
  const answer = await caller.request('GET', '/nowhere').response();
  const [, seconds = ''] = /^timeout=(\d+)$/.exec(answer.field('keep-alive') ?? '') ?? [];
  t.ok(Number(seconds) > 0);
  await caller.rest();
  const idleMs = performance.now() - from;
  t.ok(idleMs >= Number(seconds) * 1000, `${idleMs} ms`);
});

t.test('a body and the next request in one packet', async (t) => {
  const { connect, served } = await early(t);
  const caller = await connect();
  caller.send(LENGTH);
  await caller.response();
  caller.send(`hello${LENGTH}hello`);
  t.equal((await caller.response()).status, 401);
  t.equal(served(), 2);
});

for (const [framing, head] of Object.entries({ 'a length': LENGTH, chunks: CHUNKED }))
  t.test(`a body with ${framing} that never comes`, async (t) => {
    const { connect } = await early(t);
    const caller = await connect();
    caller.send(head);
    t.equal((await caller.response()).status, 401);
    t.equal(await caller.rest(), '');
  });

t.test('after a late chunked body the connection ends at once, and serves nothing that follows', async (t) => {
  const { connect, served } = await early(t);
  for (const rest of ['0\r\n\r\n', `0\r\nX:${LENGTH}hello`, `0\r\n\r\n${LENGTH}hello`]) {
    const before = served();
    const caller = await connect();
    caller.send(`${CHUNKED}5\r\nhello\r\n`);
    const response = await caller.response();
    t.equal(response.field('connection'), 'close');
    const from = performance.now();
    caller.send(rest);
    t.equal(await caller.rest(), '');
    t.ok(performance.now() - from < 5000, 'before uWS would find it idle');
    t.equal(served(), before + 1);
  }
});

t.test('the answer to HEAD closes the connection of a body that is late', async (t) => {
  const { connect } = await early(t);
  const caller = await connect();
  caller.send('HEAD /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n');
  const response = await caller.response({ head: true });
  t.equal(response.field('connection'), 'close');
  caller.send('hello');
  t.equal(await caller.rest(), '');
});

t.test('a stream that ended before its request', async (t) => {
  const { connect } = await early(t);
  const caller = await connect();
  caller.send(LENGTH.replace('/ ', '/stream '));
  const response = await caller.response();
  t.same(response.chunks, ['data: a\n\n']);
  t.same(response.trailers, []);
  caller.send('hello');
  t.equal(await caller.rest(), '');
});

t.test('a chunked request’s stream is the last answer on its connection', async (t) => {
  const { connect, served } = await early(t);
  const caller = await connect();
  caller.send(`${CHUNKED.replace('/ ', '/stream ')}0\r\n\r\n`);
  t.equal((await caller.response()).field('connection'), 'close');
  caller.send(`${LENGTH}hello`);
  t.equal(await caller.rest(), '');
  t.equal(served(), 0);
});

t.test('a caller that sends its body late and reads nothing of a long answer', async (t) => {
  const { connect, ended, ends } = await early(t);
  const caller = await connect();
  caller.socket.pause();
  caller.send(LENGTH.replace('/ ', '/long '));
  await new Promise((sent) => caller.socket.write('hell', sent));
  caller.send('o');
  await ended(1);
  t.equal(ends[0]?.outcome, 'gone', 'the connection ends once its socket had no room for long');
});

t.test('a refused head’s answer arrives although the caller is still sending', async (t) => {
  const { connect } = await early(t);
  const caller = await connect();
  caller.send(`${POST}Idempotency-Key: a\r\nIdempotency-Key: a\r\nContent-Length: ${LONG.length}\r\n\r\n`);
  await new Promise<void>((sent) => caller.socket.write(LONG, () => sent()));
  t.equal((await caller.response()).status, 400);
  t.equal(await caller.rest(), '');
});
