import t from 'tap';
import fc from 'fast-check';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import {
  AuthorizerClient,
  type AuthorizerClientOptions,
  Breaker,
  type AllowedCall,
  type Blocked,
} from '../../../sidecar/access/authorizer-client.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { FakeClock } from '../../support/fake-clock.js';
import { deferred } from '../../support/http-server.js';
import { shortDir } from '../../support/short-dir.js';
import { rounds } from '../../support/long-form.js';

/** The HTTP client against real servers that misbehave. */
interface Owner {
  teardown(fn: () => void): void;
}

interface Running {
  readonly server: Server;
  readonly url: string;
  readonly client: (changes?: Partial<AuthorizerClientOptions>, clock?: FakeClock) => AuthorizerClient;
}

async function authorizer(t: Owner, listener: RequestListener, socket?: string): Promise<Running> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => {
    if (socket === undefined) server.listen(0, '127.0.0.1', resolve);
    else server.listen(socket, resolve);
  });
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const url =
    socket === undefined ? `http://127.0.0.1:${(server.address() as AddressInfo).port}/check` : 'http://a/check';
  return {
    server,
    url,
    client: (changes, clock) => {
      const client = new AuthorizerClient(clock ?? systemClock, { url, timeoutMs: 30_000, connections: 4, ...changes });
      t.teardown(() => client.close());
      return client;
    },
  };
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts).toString();
}

t.test('a request, over TCP and over a Unix socket', async (t) => {
  const socket = join(shortDir(t), 'auth.sock');
  for (const at of [undefined, socket]) {
    const seen: object[] = [];
    const { client } = await authorizer(
      t,
      (request, response) => {
        void bodyOf(request).then((body) => {
          const { method, url, headers } = request;
          seen.push({ method, url, body, type: headers['content-type'], proof: headers.authorization });
          response.end('{"denied":{}}');
        });
      },
      at,
    );
    let secret = 'old';
    const asking = client({ ...(at !== undefined && { socket: at }), secret: () => secret });
    t.same(await asking.ask({ keyHash: 'é' }), { kind: 'json', value: { denied: {} } });
    secret = 'new';
    await asking.ask({ keyHash: 'é' });
    const asked = { method: 'POST', url: '/check', body: '{"keyHash":"é"}', type: 'application/json' };
    t.same(seen, [
      { ...asked, proof: 'Bearer old' },
      { ...asked, proof: 'Bearer new' },
    ]);
  }
});

t.test('invalid answers', async (t) => {
  const elsewhere = await authorizer(t, (_request, response) => response.end('{"caller":{}}'));
  const answers: Record<string, { respond: RequestListener; is: object }> = {
    'an error': { respond: (_request, response) => response.writeHead(500).end('{}'), is: { why: 'status 500' } },
    'no content': { respond: (_request, response) => response.writeHead(204).end(), is: { why: 'status 204' } },
    'a redirect': {
      respond: (_request, response) => response.writeHead(307, { location: elsewhere.url }).end(),
      is: { why: 'status 307' },
    },
    'unavailable, and not overloaded': {
      respond: (_request, response) => response.writeHead(503).end(),
      is: { why: 'status 503' },
    },
    'not JSON': { respond: (_request, response) => response.end('<html>'), is: { why: 'answer is not JSON' } },
    empty: { respond: (_request, response) => response.end(), is: { why: 'answer is not JSON' } },
    'cut off in the body': {
      respond: (_request, response) => {
        response.writeHead(200, { 'content-length': 100 }).write('{"caller"', () => response.destroy());
      },
      is: { why: 'answer incomplete' },
    },
    'cut off before a byte': {
      respond: (request) => request.socket.destroy(),
      is: { why: 'ECONNRESET' },
    },
    'no HTTP': { respond: (request) => request.socket.end('hello\r\n\r\n'), is: { why: 'HPE_INVALID_CONSTANT' } },
    'too long': {
      respond: (_request, response) => response.end(`{"a":"${'x'.repeat(64 * 1024)}"}`),
      is: { why: 'answer too long' },
    },
    'long without end': {
      respond: (_request, response) => {
        const more = (): void => void response.write('x'.repeat(16 * 1024), (error) => !error && more());
        more();
      },
      is: { why: 'answer too long' },
    },
  };
  for (const [name, { respond, is }] of Object.entries(answers)) {
    const { client } = await authorizer(t, respond);
    t.same(await client().ask({}), { kind: 'failed', ...is }, name);
  }
  const gone = await authorizer(t, (_request, response) => response.end());
  gone.server.close();
  t.same(await gone.client().ask({}), { kind: 'failed', why: 'ECONNREFUSED' });
});

t.test('an authorizer reports overload by 429, or by 503 with a time', async (t) => {
  for (const [status, retryAfter, retryAfterMs] of [
    [429, undefined, 1000],
    [429, '7', 7000],
    [429, '0', 1000],
    [429, 'Fri, 31 Dec 1999 23:59:59 GMT', 1000],
    [503, '5', 5000],
    [503, '999999', 60_000],
  ] as const) {
    const { client } = await authorizer(t, (_request, response) => {
      response.writeHead(status, retryAfter === undefined ? {} : { 'retry-after': retryAfter }).end('{}');
    });
    t.same(await client().ask({}), { kind: 'overloaded', retryAfterMs }, `${status} ${String(retryAfter)}`);
  }
});

t.test('the time limit runs from the request to the last byte', async (t) => {
  for (const started of [false, true]) {
    const clock = new FakeClock();
    const reached = deferred();
    const left = deferred();
    const { client } = await authorizer(t, (request, response) => {
      request.socket.on('close', () => left.resolve());
      if (started) response.writeHead(200, { 'content-length': 10 }).write('{', () => reached.resolve());
      else reached.resolve();
    });
    const asking = client({ timeoutMs: 2000 }, clock).ask({});
    await reached.promise;
    clock.advance(2000);
    t.same(await asking, { kind: 'failed', why: 'timeout' });
    await left.promise;
    t.equal(clock.pending, 0);
  }
});

t.test('a connection is kept, and one that was closed meanwhile causes no failure', async (t) => {
  let connections = 0;
  const asked = new Map<object, number>();
  const { server, client } = await authorizer(t, ({ socket }, response) => {
    const count = (asked.get(socket) ?? 0) + 1;
    asked.set(socket, count);
    // The third request on a connection finds it closed, as after a long idle time.
    if (count === 3) socket.destroy();
    else response.end('{}');
  });
  server.on('connection', () => (connections += 1));
  const asking = client();
  for (const expected of [1, 1, 2]) {
    t.same(await asking.ask({}), { kind: 'json', value: {} });
    t.equal(connections, expected);
  }
});

t.test('bytes that an authorizer sends behind an answer are the answer to no other lookup', async (t) => {
  const answer = (who: string): string => {
    const body = JSON.stringify({ who });
    return `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  };
  const other = answer('other');
  let own = 0;
  for (const excess of [other, other.repeat(20), other.slice(0, -4), 'HTTP/1.1 200 OK\r\n', '{"who":"other"}']) {
    const server = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      socket.on('data', (bytes) => {
        const who = /"who":"(\w+)"/.exec(bytes.toString())?.[1];
        if (who !== undefined) socket.write(answer(who) + excess);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.teardown(() => server.close());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const client = new AuthorizerClient(systemClock, { url, timeoutMs: 30_000, connections: 1 });
    t.teardown(() => client.close());
    const ask = async (who: string): Promise<void> => {
      const reply = await client.ask({ who });
      if (reply.kind !== 'json') return;
      t.same(reply.value, { who });
      own += 1;
    };
    const names = ['a', 'b', 'c', 'd'];
    for (const who of names) await ask(who);
    await Promise.all(names.map(ask));
  }
  t.ok(own >= 16, `${own} of 40 were answered`);
});

const OPTIONS = { failures: 3, openMs: 1000, trialMs: 100 };

function permit(breaker: Breaker): AllowedCall {
  const entered = breaker.enter();
  if (entered.kind === 'blocked') throw new Error(`blocked for ${entered.retryAfterMs}`);
  return entered;
}

function blocked(breaker: Breaker): Pick<Blocked, 'why' | 'retryAfterMs'> | 'let in' {
  const entered = breaker.enter();
  return entered.kind === 'blocked' ? { why: entered.why, retryAfterMs: entered.retryAfterMs } : 'let in';
}

function blockedFor(breaker: Breaker): number {
  return breaker.blockedForMs;
}

t.test('it opens after consecutive failures, not after as many in all', async (t) => {
  const breaker = new Breaker(new FakeClock(), OPTIONS);
  for (const end of ['failed', 'failed', 'succeeded', 'failed', 'failed', 'succeeded'] as const) {
    permit(breaker)[end]('timeout');
  }
  t.equal(breaker.state, 'closed');
  for (let i = 0; i < 3; i += 1) permit(breaker).failed('timeout');
  t.equal(breaker.state, 'open');
});

t.test('consecutive failures of one cause count once, but a trial always counts', async (t) => {
  const clock = new FakeClock();
  const breaker = new Breaker(clock, OPTIONS);
  for (const cause of ['a', 'a', 'a', 'b', 'b']) permit(breaker).failed('timeout', cause);
  t.equal(breaker.state, 'closed');
  permit(breaker).failed('timeout', 'a');
  t.equal(breaker.state, 'open');
  clock.advance(1000);
  permit(breaker).failed('timeout', 'a');
  t.equal(breaker.state, 'open');
});

t.test('open, then one trial at a time, then closed or open again', async (t) => {
  const clock = new FakeClock();
  const reported: string[] = [];
  const breaker = new Breaker(clock, {
    ...OPTIONS,
    opened: (reason, forMs) => reported.push(`${reason} ${forMs}`),
    closed: () => reported.push('closed'),
  });
  for (let i = 0; i < 3; i += 1) permit(breaker).failed('timeout');
  t.same(blocked(breaker), { why: 'failing', retryAfterMs: 1000 });
  clock.advance(999.5);
  t.same(blocked(breaker), { why: 'failing', retryAfterMs: 1 }, 'the returned wait is never too short');
  clock.advance(0.5);
  t.equal(breaker.state, 'half-open');
  const trial = permit(breaker);
  t.same(blocked(breaker), { why: 'failing', retryAfterMs: 100 }, 'by then the trial is over');
  trial.failed('status 500');
  t.same(blocked(breaker), { why: 'failing', retryAfterMs: 1000 }, 'now one failure is enough');
  clock.advance(1000);
  permit(breaker).succeeded();
  t.equal(breaker.state, 'closed');
  t.equal(breaker.blockedForMs, 0);
  t.same(reported, ['timeout 1000', 'status 500 1000', 'closed']);
});

t.test('results of calls from before it opened are ignored, and each permit counts once', async (t) => {
  const clock = new FakeClock();
  const breaker = new Breaker(clock, OPTIONS);
  const early = permit(breaker);
  const twice = permit(breaker);
  for (let i = 0; i < 5; i += 1) twice.failed('timeout');
  t.equal(breaker.state, 'closed');
  for (let i = 0; i < 2; i += 1) permit(breaker).failed('timeout');
  t.equal(breaker.state, 'open');
  early.succeeded();
  t.equal(breaker.state, 'open');
  clock.advance(1000);
  permit(breaker).succeeded();
  for (let i = 0; i < 2; i += 1) permit(breaker).failed('timeout');
  t.equal(breaker.state, 'closed', 'old failures are forgotten');
});

t.test('a service that requests a pause is not called for as long as it requests', async (t) => {
  const clock = new FakeClock();
  const breaker = new Breaker(clock, OPTIONS);
  permit(breaker).overloaded(7000);
  t.same(blocked(breaker), { why: 'overloaded', retryAfterMs: 7000 });
  clock.advance(7000);
  permit(breaker).overloaded(2000);
  t.same(blocked(breaker), { why: 'overloaded', retryAfterMs: 2000 });
});

t.test('a trial that is never answered does not keep it open forever', async (t) => {
  const clock = new FakeClock();
  const breaker = new Breaker(clock, OPTIONS);
  for (let i = 0; i < 3; i += 1) permit(breaker).failed('timeout');
  clock.advance(1000);
  permit(breaker);
  clock.advance(100);
  permit(breaker).succeeded();
  t.equal(breaker.state, 'closed');
});

t.test('whatever happens, Retry-After is exact and only trials run while it is not closed', async (t) => {
  const event = fc.oneof(
    fc.record({ kind: fc.constantFrom('succeeded', 'failed', 'overloaded'), which: fc.nat(9) }),
    fc.record({ kind: fc.constant('ask'), which: fc.constant(0) }),
    fc.record({ kind: fc.constant('wait'), which: fc.integer({ min: 1, max: 700 }) }),
  );
  let openings = 0;
  fc.assert(
    fc.property(fc.array(event, { maxLength: 80, size: 'max' }), (events) => {
      const clock = new FakeClock();
      const breaker = new Breaker(clock, { ...OPTIONS, opened: () => (openings += 1) });
      const held: AllowedCall[] = [];
      for (const { kind, which } of events) {
        if (kind === 'wait') clock.advance(which);
        else if (kind === 'ask') {
          const before = breaker.state;
          const entered = breaker.enter();
          if (entered.kind === 'blocked') {
            if (before === 'closed' || entered.retryAfterMs < 1 || entered.retryAfterMs > 1000) return false;
            // Exact: one ms earlier it is still open, and then it is not.
            clock.advance(entered.retryAfterMs - 1);
            if (blockedFor(breaker) !== 1) return false;
            clock.advance(1);
            if (blockedFor(breaker) !== 0) return false;
          } else {
            if (before === 'open') return false;
            held.push(entered);
            // A second one is refused while the first is the trial.
            if (before === 'half-open' && breaker.enter().kind === 'allowed') return false;
          }
        } else {
          const [one] = held.splice(which % Math.max(1, held.length), 1);
          if (kind === 'overloaded') one?.overloaded(500);
          else if (kind === 'failed') one?.failed('timeout');
          else one?.succeeded();
        }
      }
      return true;
    }),
    { numRuns: rounds({ short: 80, long: 3000 }) },
  );
  t.ok(openings > rounds({ short: 30, long: 500 }), `${openings} openings occurred`);
});
