import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import t, { type Test } from 'tap';
import { systemClock } from '../../../../sidecar/lib/clock.js';
import { usageEvent, type CloseRecord, type SinkAnswer } from '../../../../sidecar/usage/delivery/sink.js';
import { HttpSink, retryAfter, type HttpSinkOptions } from '../../../../sidecar/usage/delivery/http-sink.js';
import { FakeClock } from '../../../support/fake-clock.js';
import { deadPort, UsageSink } from '../../../support/usage-sink.js';
import { usageRecord } from '../../../support/usage-records.js';

const SECRET = 'sink-secret-canary';
const price = { version: '2026-10-03.4', picodollars: '123' };
const EVENTS = ['a', 'b'].map((id) => usageEvent(usageRecord(id, 'close', { price }) as CloseRecord, '/edge-1'));

function sinkTo(url: string, options: Partial<HttpSinkOptions> = {}): HttpSink {
  return new HttpSink({ clock: systemClock, date: () => 0, url, timeoutMs: 30_000, ...options });
}

/** The outcome of an answer. */
async function answerTo(t: Test, answer: (response: ServerResponse) => void): Promise<SinkAnswer> {
  const server = await UsageSink.start(t);
  server.answer = ({ response }) => answer(response);
  return await sinkTo(server.url).deliver(EVENTS, new AbortController().signal);
}

t.test('a batch is CloudEvents 1.0 in batched content mode, with the secret', async (t) => {
  const server = await UsageSink.start(t);
  const sink = sinkTo(server.url, { secret: () => Promise.resolve(SECRET) });
  t.strictSame(await sink.deliver(EVENTS, new AbortController().signal), { kind: 'accepted' });
  const [request] = server.requests;
  t.equal(request?.method, 'POST');
  t.equal(request?.path, '/usage');
  t.equal(request?.headers['content-type'], 'application/cloudevents-batch+json');
  t.equal(request?.headers.authorization, `Bearer ${SECRET}`);
  t.strictSame(
    JSON.parse(request?.body ?? ''),
    ['a', 'b'].map((id) => ({
      specversion: '1.0',
      id,
      source: '/edge-1',
      type: 'ai.runanywhere.usage.v1',
      time: '2026-10-03T00:00:00.000Z',
      subject: 'acme',
      datacontenttype: 'application/json',
      data: { ...usageRecord(id, 'close'), price },
    })),
  );
  t.notOk(request?.body.includes(SECRET));
});

t.test('without a secret none is sent; with an unreadable one nothing is', async (t) => {
  const server = await UsageSink.start(t);
  await sinkTo(server.url).deliver(EVENTS, new AbortController().signal);
  t.equal(server.requests[0]?.headers.authorization, undefined);
  const sink = sinkTo(server.url, { secret: () => Promise.reject(new Error(SECRET)) });
  t.strictSame(await sink.deliver(EVENTS, new AbortController().signal), { kind: 'later', why: 'Error' });
  t.equal(server.requests.length, 1);
});

t.test('the outcome of each answer', async (t) => {
  const cases: readonly (readonly [statuses: readonly number[], kind: SinkAnswer['kind']])[] = [
    [[200, 201, 202, 204, 299], 'accepted'],
    [[400, 409, 413, 422], 'refused'],
    [[408, 425, 428, 429, 500, 502, 503, 504], 'later'],
    // These are not caused by an event.
    [[401, 402, 403, 404, 405, 410, 415, 421, 431, 451], 'later'],
    [[300, 301, 302, 303, 304, 307, 308], 'later'],
  ];
  for (const [statuses, kind] of cases) {
    for (const status of statuses) {
      const answer = await answerTo(t, (response) => response.writeHead(status).end());
      t.match(
        answer,
        kind === 'accepted' ? { kind } : kind === 'refused' ? { kind, status } : { kind, why: `status ${status}` },
      );
    }
  }
});

t.test('no redirect is followed, so the secret is sent nowhere else', async (t) => {
  const elsewhere = await UsageSink.start(t);
  for (const status of [301, 302, 307, 308]) {
    const server = await UsageSink.start(t);
    server.answer = ({ response }) => response.writeHead(status, { location: elsewhere.url }).end();
    const sink = sinkTo(server.url, { secret: () => Promise.resolve(SECRET) });
    t.match(await sink.deliver(EVENTS, new AbortController().signal), { kind: 'later', why: `status ${status}` });
  }
  t.equal(elsewhere.requests.length, 0);
});

t.test('Retry-After is respected, in seconds and as a date, within a bound', async (t) => {
  const answer = await answerTo(t, (response) => response.writeHead(503, { 'retry-after': '7' }).end());
  t.strictSame(answer, { kind: 'later', why: 'status 503', retryAfterMs: 7000 });
  const now = Date.parse('2026-10-03T00:00:00Z');
  t.equal(retryAfter('Sat, 03 Oct 2026 00:01:00 GMT', now), 60_000);
  t.equal(retryAfter('Fri, 02 Oct 2026 00:01:00 GMT', now), 0, 'a past date is now');
  t.equal(retryAfter('86400', now), 600_000);
  t.equal(retryAfter('Sat, 03 Oct 2099 00:01:00 GMT', now), 600_000);
  for (const broken of ['', 'soon', '-1x', null]) t.equal(retryAfter(broken, now), undefined, broken ?? 'none');
});

t.test('an incomplete answer is none', async (t) => {
  const cut = await answerTo(t, (response) => {
    response.writeHead(200, { 'content-length': '10' }).write('half', () => response.destroy());
  });
  t.match(cut, { kind: 'later' });
  const chunked = await answerTo(t, (response) => {
    response.writeHead(200).write('half', () => response.destroy());
  });
  t.match(chunked, { kind: 'later' });
  const before = await answerTo(t, (response) => response.destroy());
  t.match(before, { kind: 'later', why: 'UND_ERR_SOCKET' });
});

t.test('of a long answer only a part is read', async (t) => {
  const server = await UsageSink.start(t);
  const closed = new Promise<void>((resolve) => {
    server.answer = ({ response }) => {
      response.writeHead(200).on('close', resolve);
      const more = (): void => void response.write(Buffer.alloc(64 * 1024), () => response.destroyed || more());
      more();
    };
  });
  t.strictSame(await sinkTo(server.url).deliver(EVENTS, new AbortController().signal), { kind: 'accepted' });
  await closed;
});

t.test('a hanging sink is given up after the timeout, in the head and in the body', async (t) => {
  for (const begin of [false, true]) {
    const server = await UsageSink.start(t);
    const clock = new FakeClock();
    server.answer = ({ response }) => {
      if (begin) response.writeHead(200).write('...');
    };
    const answer = sinkTo(server.url, { clock, timeoutMs: 1000 }).deliver(EVENTS, new AbortController().signal);
    await server.came(1);
    const closed = once(server.requests[0]!.response, 'close');
    clock.advance(999);
    t.equal(clock.pending, 1);
    clock.advance(1);
    t.strictSame(await answer, { kind: 'later', why: 'TimeoutError' });
    await closed;
    t.equal(clock.pending, 0);
  }
});

t.test('a signal ends a running request, and one that was aborted before sends nothing', async (t) => {
  const server = await UsageSink.start(t);
  server.answer = () => undefined;
  const stop = new AbortController();
  const answer = sinkTo(server.url).deliver(EVENTS, stop.signal);
  await server.came(1);
  stop.abort();
  t.strictSame(await answer, { kind: 'later', why: 'AbortError' });
  t.strictSame(await sinkTo(server.url).deliver(EVENTS, stop.signal), { kind: 'later', why: 'AbortError' });
  t.equal(server.requests.length, 1);
});

t.test('no server', async (t) => {
  const url = `http://127.0.0.1:${await deadPort()}/`;
  t.strictSame(await sinkTo(url).deliver(EVENTS, new AbortController().signal), { kind: 'later', why: 'ECONNREFUSED' });
});
