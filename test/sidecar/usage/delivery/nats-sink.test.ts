import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { usageEvent, type CloseRecord, type UsageEvent } from '../../../../sidecar/usage/delivery/sink.js';
import { accountToken, NatsSink, subjectOf, type Published } from '../../../../sidecar/usage/delivery/nats-sink.js';
import { deferred } from '../../../support/http-server.js';
import { turn } from '../../../support/memory-delivery.js';
import { usageRecord } from '../../../support/usage-records.js';
import { anyText } from '../../../support/texts.js';

/** `a1 b1 a2`: the second event of the account `a`. */
function events(names: string): UsageEvent[] {
  return names
    .split(' ')
    .map((id) => usageEvent(usageRecord(id, 'close', { account: id.slice(0, 1) }) as CloseRecord, '/s'));
}

/** A stream whose messages a test answers one by one. */
class Stream {
  readonly asked: string[] = [];
  closed = 0;
  connects = 0;
  readonly #waiting = new Map<string, (published: Published) => void>();

  sink(window = 64): NatsSink {
    const stream = {
      publish: ({ id }: { id: string }): Promise<Published> => {
        this.asked.push(id);
        return new Promise((resolve) => this.#waiting.set(id, resolve));
      },
      close: () => Promise.resolve(void (this.closed += 1)),
    };
    const connect = (): Promise<typeof stream> => {
      this.connects += 1;
      return Promise.resolve(stream);
    };
    return new NatsSink({ connect, subject: 'usage.{account}', window });
  }

  async answer(id: string, published: Published = { kind: 'stored' }): Promise<void> {
    await turn();
    this.#waiting.get(id)?.(published);
    await turn();
  }
}

const FOREVER = new AbortController().signal;

t.test('events of one account are sent one after another, accounts in parallel', async (t) => {
  const stream = new Stream();
  const answer = stream.sink().deliver(events('a1 b1 a2 c1 b2'), FOREVER);
  await turn();
  t.strictSame(stream.asked, ['a1', 'b1', 'c1']);
  await stream.answer('b1');
  t.strictSame(stream.asked, ['a1', 'b1', 'c1', 'b2']);
  for (const id of ['c1', 'b2', 'a1', 'a2']) await stream.answer(id);
  t.strictSame(await answer, { kind: 'accepted' });
  t.equal(stream.connects, 1);
});

t.test('no more accounts at once than the window', async (t) => {
  const stream = new Stream();
  const answer = stream.sink(2).deliver(events('a1 b1 c1 d1'), FOREVER);
  await turn();
  t.strictSame(stream.asked, ['a1', 'b1']);
  await stream.answer('b1');
  t.strictSame(stream.asked, ['a1', 'b1', 'c1']);
  for (const id of ['a1', 'c1', 'd1']) await stream.answer(id);
  t.strictSame(await answer, { kind: 'accepted' });
});

t.test('after a failure nothing more is sent, and stored events are reported', async (t) => {
  for (const broken of [true, false]) {
    const stream = new Stream();
    const sink = stream.sink();
    const answer = sink.deliver(events('a1 b1 a2 b2'), FOREVER);
    await stream.answer('a1', { kind: 'failed', why: 'JetStream 10077', broken });
    await stream.answer('b1');
    t.strictSame(await answer, { kind: 'later', stored: [1], why: 'JetStream 10077' });
    t.strictSame(stream.asked, ['a1', 'b1'], 'no b2 either: the stream fails');
    t.equal(stream.closed, broken ? 1 : 0);
    const again = sink.deliver(events('a1'), FOREVER);
    await stream.answer('a1');
    t.strictSame(await again, { kind: 'accepted' });
    t.equal(stream.connects, broken ? 2 : 1);
  }
});

t.test('a refused event delays its own account until it is a dead letter', async (t) => {
  const stream = new Stream();
  const answer = stream.sink().deliver(events('a1 b1 a2 b2'), FOREVER);
  await stream.answer('a1', { kind: 'refused', status: 10_054 });
  await stream.answer('b1');
  await stream.answer('b2');
  t.strictSame(await answer, { kind: 'refused', indices: [0], stored: [1, 3], status: 10_054 });
  t.strictSame(stream.asked, ['a1', 'b1', 'b2']);
});

t.test('while another event has to be sent again, a refused one is no dead letter yet', async (t) => {
  const stream = new Stream();
  const answer = stream.sink().deliver(events('a1 b1'), FOREVER);
  await stream.answer('b1', { kind: 'refused', status: 10_054 });
  await stream.answer('a1', { kind: 'failed', why: 'JetStream 10077', broken: false });
  t.strictSame(await answer, { kind: 'later', stored: [], why: 'JetStream 10077' });
});

t.test('an abort ends it at once, with the events stored by then', async (t) => {
  const stream = new Stream();
  const stop = new AbortController();
  const answer = stream.sink().deliver(events('a1 b1 a2'), stop.signal);
  await stream.answer('a1');
  stop.abort();
  t.strictSame(await answer, { kind: 'later', stored: [0], why: 'AbortError' });
  t.equal(stream.closed, 1);
  await stream.answer('a2');
  await stream.answer('b1');
});

t.test('an unreachable server, an abort during the connection, and a connection that comes too late', async (t) => {
  const refused = new NatsSink({
    connect: () => Promise.reject(Object.assign(new Error('x'), { code: 'ECONNREFUSED' })),
    subject: '{account}',
    window: 1,
  });
  t.match(await refused.deliver(events('a1'), FOREVER), { kind: 'later', why: 'ECONNREFUSED' });

  const late = deferred<{ publish: () => Promise<Published>; close: () => Promise<void> }>();
  const slow = new NatsSink({ connect: () => late.promise, subject: '{account}', window: 1 });
  const stop = new AbortController();
  const answer = slow.deliver(events('a1'), stop.signal);
  stop.abort();
  t.match(await answer, { kind: 'later', why: 'AbortError' });
  let closed = false;
  late.resolve({
    publish: () => Promise.reject(new Error('must not be called')),
    close: () => Promise.resolve(void (closed = true)),
  });
  await turn();
  t.ok(closed);
});

t.test('an account is one token, and different accounts have different tokens', async (t) => {
  t.equal(accountToken('acme-7_X'), 'acme-7_X');
  t.equal(accountToken('a.b'), 'a%2Eb');
  t.equal(accountToken('a%2Eb'), 'a%252Eb');
  t.equal(accountToken('*'), '%2A');
  t.equal(accountToken('>'), '%3E');
  t.equal(accountToken('ü \r\n'), '%C3%BC%20%0D%0A');
  t.equal(accountToken('😀'), '%F0%9F%98%80');
  t.equal(accountToken(''), '%');
});

t.test('whatever an account’s name, its subject has as many tokens, and no wildcard', async () => {
  // No account has half of a surrogate pair: names arrive as UTF-8.
  const name = anyText();
  fc.assert(
    fc.property(name, (account) => {
      assert.match(subjectOf('a.{account}.b', account), /^a\.[A-Za-z0-9_%-]+\.b$/);
    }),
  );
  fc.assert(fc.property(name, name, (one, other) => (accountToken(one) === accountToken(other)) === (one === other)));
});

t.test('special characters of replacements are literal', async (t) => {
  t.equal(subjectOf('usage.{account}', '$&'), 'usage.%24%26');
});
