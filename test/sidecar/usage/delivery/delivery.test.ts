import t from 'tap';
import { nextBatch, settle, type Settled } from '../../../../sidecar/usage/delivery/delivery.js';
import {
  usageEvent,
  type CloseRecord,
  type SinkAnswer,
  type UsageEvent,
} from '../../../../sidecar/usage/delivery/sink.js';
import { START } from '../../../../sidecar/usage/spool-format.js';
import { deferred } from '../../../support/http-server.js';
import { DeliveryHarness, MemorySource, turn } from '../../../support/memory-delivery.js';
import { usageRecord } from '../../../support/usage-records.js';

const close = (id: string): ReturnType<typeof usageRecord> => usageRecord(id, 'close');
const closes = (ids: string): ReturnType<typeof close>[] => ids.split('').map(close);
const LATER: SinkAnswer = { kind: 'later', why: 'status 503' };

t.test('only closing records are sent, after a wait for more of them, and the cursor passes all records', async (t) => {
  const harness = new DeliveryHarness();
  const delivery = await harness.start();
  harness.append(usageRecord('a', 'open'), close('a'));
  delivery.notify();
  await harness.pass(60);
  harness.append(usageRecord('b', 'open'), close('b'), usageRecord('c', 'open'));
  delivery.notify();
  await harness.pass(39);
  t.strictSame(harness.ids, [], 'not yet');
  await harness.pass(1);
  t.strictSame(harness.ids, [['a', 'b']]);
  t.equal(harness.savedCount, 5);
  t.same(harness.counted, { delivered: 2, refused: 0, retried: 0 });
  t.equal(delivery.backlogBytes, 0);
  t.equal(delivery.oldestMs, 0);
  t.equal(harness.clock.pending, 0, 'nothing is polled');
  await delivery.stop();
});

t.test('records that are not durable are not sent', async (t) => {
  const harness = new DeliveryHarness();
  const delivery = await harness.start();
  harness.append(close('a'));
  harness.source.records.push(close('b'));
  delivery.notify();
  await harness.pass(100);
  t.strictSame(harness.ids, [['a']]);
  t.equal(harness.savedCount, 1);
  await delivery.stop();
});

t.test('a batch has at most so many events and bytes, and a backlog is sent batch after batch', async (t) => {
  const harness = new DeliveryHarness();
  harness.append(...closes('abcdefg'));
  const delivery = await harness.start();
  await harness.pass(100);
  t.strictSame(harness.ids, [
    ['a', 'b', 'c', 'd', 'e'],
    ['f', 'g'],
  ]);
  await delivery.stop();

  const small = new DeliveryHarness();
  small.append(...closes('abc'));
  const bytes = JSON.stringify(harness.batches[0]?.[0]).length;
  const careful = await small.start({ maxBytes: 2 * bytes + 2 });
  await small.pass(100);
  t.strictSame(small.ids, [['a', 'b'], ['c']]);
  await careful.stop();

  const tiny = new DeliveryHarness();
  tiny.append(...closes('ab'));
  const alone = await tiny.start({ maxBytes: 1 });
  await turn();
  t.strictSame(tiny.ids, [['a'], ['b']], 'an event that is too long is sent alone; a full backlog does not wait');
  await alone.stop();
});

t.test('one batch is in flight, and the cursor waits for its answer', async (t) => {
  const harness = new DeliveryHarness();
  const answer = deferred<SinkAnswer>();
  harness.answer = () => answer.promise;
  harness.append(close('a'));
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  harness.append(close('b'));
  delivery.notify();
  await harness.pass(10_000);
  t.strictSame(harness.ids, [['a']]);
  t.equal(harness.savedCount, 0);
  t.equal(delivery.oldestMs, 10_000);
  answer.resolve({ kind: 'accepted' });
  await harness.pass(0);
  await harness.pass(0);
  t.strictSame(harness.ids, [['a'], ['b']]);
  t.equal(harness.savedCount, 2);
  await delivery.stop();
});

t.test('a sink that is down is retried after waits that double up to their bound', async (t) => {
  const harness = new DeliveryHarness();
  harness.append(close('a'));
  harness.answer = () => LATER;
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  for (const wait of [1000, 2000, 4000, 8000, 8000]) {
    const sent = harness.batches.length;
    await harness.pass(wait - 1);
    t.equal(harness.batches.length, sent, `${wait} ms are waited`);
    delivery.notify();
    await turn();
    t.equal(harness.batches.length, sent, 'new records do not shorten a wait');
    await harness.pass(1);
    t.equal(harness.batches.length, sent + 1);
  }
  t.equal(harness.counted.retried, 6);
  t.equal(delivery.backlogBytes, 10);
  harness.answer = () => ({ kind: 'accepted' });
  await harness.pass(8000);
  t.equal(harness.savedCount, 1);
  t.equal(harness.log.lines.filter(({ event }) => event === 'usage delivery resumed').length, 1);

  harness.append(close('b'));
  harness.answer = () => LATER;
  delivery.notify();
  await harness.pass(0);
  const sent = harness.batches.length;
  await harness.pass(1000);
  t.equal(harness.batches.length, sent + 1, 'after a success the first wait is short again');
  await delivery.stop();
});

t.test('waits are random, and a longer Retry-After wins', async (t) => {
  const harness = new DeliveryHarness();
  harness.random = 0;
  harness.append(close('a'));
  const answers: SinkAnswer[] = [LATER, { ...LATER, retryAfterMs: 60_000 }, { ...LATER, retryAfterMs: 1 }];
  harness.answer = () => answers[harness.batches.length - 1] ?? { kind: 'accepted' };
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  await harness.pass(499);
  t.equal(harness.batches.length, 1);
  await harness.pass(1);
  t.equal(harness.batches.length, 2, 'at least half of the step');
  await harness.pass(59_999);
  t.equal(harness.batches.length, 2);
  await harness.pass(1);
  t.equal(harness.batches.length, 3);
  await harness.pass(1999);
  t.equal(harness.batches.length, 3, 'a shorter one does not');
  await harness.pass(1);
  t.equal(harness.savedCount, 1);
  await delivery.stop();
});

t.test('a refused event is found, stored and passed; the others arrive in order', async (t) => {
  const harness = new DeliveryHarness();
  harness.append(...closes('abcde'));
  harness.answer = (batch) => {
    if (harness.letters.length === 0) t.equal(harness.savedCount, 0, 'the cursor stays before a refused event');
    return batch.some(({ id }) => id === 'd') ? { kind: 'refused', status: 400 } : { kind: 'accepted' };
  };
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  t.strictSame(harness.ids, [['a', 'b', 'c', 'd', 'e'], ['a', 'b'], ['c', 'd', 'e'], ['c'], ['d', 'e'], ['d'], ['e']]);
  t.match(harness.letters, [{ at: '2026-10-03T00:00:00.000Z', status: 400, event: { id: 'd' } }]);
  t.equal(harness.savedCount, 5);
  t.same(harness.counted, { delivered: 4, refused: 1, retried: 0 });
  const line = harness.log.lines.find(({ event }) => event === 'usage event refused');
  t.strictSame(line, { event: 'usage event refused', usageId: 'd', status: 400 }, 'logged by its id only');
  await delivery.stop();
});

t.test('a sink that names refused events is trusted, unless it names none that exist', async (t) => {
  const harness = new DeliveryHarness();
  harness.append(...closes('abcd'));
  harness.answer = (batch) => {
    const indices = batch.flatMap(({ id }, i) => ('bc'.includes(id) ? [i] : []));
    return indices.length > 0 ? { kind: 'refused', status: 422, indices } : { kind: 'accepted' };
  };
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  t.strictSame(harness.ids, [
    ['a', 'b', 'c', 'd'],
    ['a', 'd'],
  ]);
  t.strictSame(
    harness.letters.map(({ event }) => event.id),
    ['b', 'c'],
  );

  harness.append(close('e'), close('f'));
  harness.answer = (batch) =>
    batch.length > 1 ? { kind: 'refused', status: 400, indices: [7, -1] } : { kind: 'accepted' };
  delivery.notify();
  await harness.pass(0);
  t.strictSame(harness.ids.slice(2), [['e', 'f'], ['e'], ['f']]);
  await delivery.stop();
});

t.test('a sink that fails while a batch is halved gets only the rest again', async (t) => {
  const harness = new DeliveryHarness();
  harness.append(...closes('abcd'));
  const answers: SinkAnswer[] = [{ kind: 'refused', status: 400 }, { kind: 'accepted' }, LATER];
  harness.answer = () => answers[harness.batches.length - 1] ?? { kind: 'accepted' };
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  t.equal(harness.savedCount, 2, 'the sink has the first half');
  await harness.pass(8000);
  t.strictSame(harness.ids.slice(3), [['c', 'd']]);
  t.same(harness.counted, { delivered: 4, refused: 0, retried: 1 });
  await delivery.stop();
});

t.test('while dead letters cannot be stored, the refused event waits', async (t) => {
  const harness = new DeliveryHarness();
  harness.append(close('a'));
  harness.roomForLetters = false;
  harness.answer = () => ({ kind: 'refused', status: 400 });
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  t.match(harness.log.lines.at(-1), { event: 'usage delivery waits', reason: 'dead letters full' });
  harness.roomForLetters = true;
  harness.beforeBury = () => {
    throw new Error('EIO');
  };
  await harness.pass(1000);
  t.match(harness.log.lines.at(-1), { event: 'usage delivery failed' });
  t.equal(harness.savedCount, 0);
  harness.beforeBury = () => undefined;
  await harness.pass(2000);
  t.equal(harness.letters.length, 1);
  t.equal(harness.savedCount, 1);
  await delivery.stop();
});

t.test('a cursor that cannot be saved is saved later, and nothing is sent twice for it', async (t) => {
  const harness = new DeliveryHarness();
  harness.append(close('a'));
  harness.beforeSave = () => {
    throw new Error('ENOSPC');
  };
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  await harness.pass(1000);
  t.equal(harness.savedCount, 0);
  harness.beforeSave = () => undefined;
  await harness.pass(2000);
  t.equal(harness.savedCount, 1);
  t.strictSame(harness.ids, [['a']]);
  t.equal(harness.counted.retried, 0);
  await delivery.stop();
});

t.test('delivery continues from the cursor, and from the start if it is lost', async (t) => {
  for (const [saved, ids] of [
    [{ kind: 'at', position: MemorySource.at(1) }, [['b']]],
    [{ kind: 'at', position: MemorySource.at(2) }, []],
    [{ kind: 'at', position: { segment: 9, offset: 0 } }, [['a', 'b']]],
    [{ kind: 'lost', why: 'unreadable' }, [['a', 'b']]],
    [{ kind: 'none' }, [['a', 'b']]],
  ] as const) {
    const harness = new DeliveryHarness();
    harness.append(close('a'), close('b'));
    harness.saved = saved;
    const delivery = await harness.start({ maxAgeMs: 0 });
    await harness.pass(0);
    t.strictSame(harness.ids, ids, JSON.stringify(saved));
    await delivery.stop();
  }
});

t.test('damage and a failing disk are reported; valid records are sent', async (t) => {
  const harness = new DeliveryHarness();
  harness.append(close('a'));
  harness.source.fault = new Error('EIO');
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  t.match(harness.log.lines.at(-1), { event: 'usage delivery failed', retryAfterMs: 1000 });
  t.equal(harness.counted.retried, 0, 'no batch was sent');
  harness.source.fault = undefined;
  harness.source.damaged = true;
  await harness.pass(1000);
  t.strictSame(harness.ids, [['a']]);
  t.ok(harness.log.lines.some(({ event, count }) => event === 'usage spool damaged' && count === 1));
  await delivery.stop();
});

t.test('segments behind the cursor are pruned, but not those that others still read', async (t) => {
  const harness = new DeliveryHarness();
  harness.keepFrom = { segment: 2, offset: 0 };
  harness.append(...Array.from({ length: 13 }, (_, i) => close(`n${i}`)));
  const delivery = await harness.start({ maxAgeMs: 0 });
  await harness.pass(0);
  t.strictSame(harness.source.prunes, [{ segment: 2, offset: 0 }]);
  harness.keepFrom = { segment: Infinity, offset: 0 };
  harness.append(close('z'));
  delivery.notify();
  await harness.pass(0);
  t.strictSame(harness.source.prunes[1], MemorySource.at(14));
  for (const before of harness.source.prunes) t.ok(harness.isSaved(before), 'never past the saved cursor');
  await delivery.stop();
});

t.test('a segment that could not be pruned is pruned when it can be, without new events', async (t) => {
  const harness = new DeliveryHarness();
  harness.keepFrom = { segment: 1, offset: 0 };
  harness.source.pinned = 2;
  harness.append(...Array.from({ length: 13 }, (_, i) => close(`n${i}`)));
  harness.saved = { kind: 'at', position: harness.source.position };
  const delivery = await harness.start();
  await delivery.prune();
  t.strictSame(harness.source.prunes, [], 'others have read it all');
  harness.keepFrom = { segment: Infinity, offset: 0 };
  await delivery.prune();
  harness.source.pinned = Infinity;
  await delivery.prune();
  await delivery.prune();
  const before = MemorySource.at(13);
  t.strictSame(harness.source.prunes, [before, before], 'again once the pin is gone, and not after that');
  await delivery.stop();
  harness.source.pinned = 0;
  harness.saved = { kind: 'at', position: MemorySource.at(99) };
  await delivery.prune();
  t.equal(harness.source.prunes.length, 2, 'the spool may belong to another process');
});

t.test('stop', async (t) => {
  await t.test('sends what waits, and settles at once for all callers', async (t) => {
    const harness = new DeliveryHarness();
    harness.append(close('a'));
    const delivery = await harness.start();
    await Promise.all([delivery.stop(), delivery.stop()]);
    t.strictSame(harness.ids, [['a']]);
    t.equal(harness.savedCount, 1);
    harness.append(close('b'));
    delivery.notify();
    await harness.pass(10_000);
    t.equal(harness.batches.length, 1, 'nothing is sent after it');
    t.equal(harness.clock.pending, 0);
  });

  await t.test('lets the batch in flight finish', async (t) => {
    const harness = new DeliveryHarness();
    const answer = deferred<SinkAnswer>();
    harness.answer = () => answer.promise;
    harness.append(close('a'));
    const delivery = await harness.start({ maxAgeMs: 0 });
    await harness.pass(0);
    const stopped = delivery.stop();
    await harness.pass(499);
    answer.resolve({ kind: 'accepted' });
    await stopped;
    t.equal(harness.savedCount, 1);
  });

  await t.test('aborts the batch in flight after its bound', async (t) => {
    const harness = new DeliveryHarness();
    harness.answer = (_, signal) =>
      new Promise((resolve) => signal.addEventListener('abort', () => resolve({ kind: 'later', why: 'AbortError' })));
    harness.append(close('a'));
    const delivery = await harness.start({ maxAgeMs: 0 });
    await harness.pass(0);
    const stopped = delivery.stop();
    await harness.pass(500);
    await stopped;
    t.equal(harness.savedCount, 0);
    t.equal(harness.clock.pending, 0);
  });

  await t.test('does not wait for a sink that is down', async (t) => {
    const harness = new DeliveryHarness();
    harness.answer = () => LATER;
    harness.append(close('a'));
    const delivery = await harness.start({ maxAgeMs: 0 });
    await harness.pass(0);
    await delivery.stop();
    t.equal(harness.batches.length, 1);
    t.equal(harness.clock.pending, 0);
  });

  await t.test('may come before and during the start', async (t) => {
    const harness = new DeliveryHarness();
    harness.append(close('a'));
    const never = harness.make();
    await never.stop();
    const delivery = harness.make();
    const started = delivery.start();
    await delivery.stop();
    await started;
    await harness.pass(1000);
    t.strictSame(harness.ids, []);
  });
});

t.test('a long part without billed records is read in pieces', async (t) => {
  const source = new MemorySource();
  const open = usageRecord('a', 'open');
  source.records.push(...new Array<typeof open>(100_000).fill(open), open, usageRecord('a', 'close'));
  source.durable = source.records.length;
  const limits = { maxEvents: 5, maxBytes: 1000 };
  const first = await nextBatch(source, START, limits, '/test');
  t.match(first, { billed: [], after: MemorySource.at(100_000), drained: false });
  const second = await nextBatch(source, first.after, limits, '/test');
  t.match(second, { billed: [{ event: { id: 'a' } }], after: source.position, drained: true });
});

t.test('an event has nothing that only the store of a fleet needs', async (t) => {
  const stored = { claim: 'c', escrow: true, quota: 7 } as const;
  t.strictSame(usageEvent(usageRecord('a', 'close', stored) as CloseRecord, '/s').data, close('a'));
});

const EVENTS = 'abcd'.split('').map((id) => usageEvent(usageRecord(id, 'close') as CloseRecord, '/s'));
const ids = (events: readonly UsageEvent[]): string => events.map(({ id }) => id).join('');

/** Settles `abcd` with a sink that gives these answers, then accepts. */
async function settled(
  ...answers: readonly SinkAnswer[]
): Promise<Settled & { readonly sent: string[]; readonly buried: string }> {
  const sent: string[] = [];
  let buried = '';
  const next = [...answers];
  const sink = {
    deliver: (batch: readonly UsageEvent[]): Promise<SinkAnswer> => {
      sent.push(ids(batch));
      return Promise.resolve(next.shift() ?? { kind: 'accepted' });
    },
    close: () => Promise.resolve(),
  };
  const refuse = (events: readonly UsageEvent[]): Promise<boolean> => {
    buried += ids(events);
    return Promise.resolve(true);
  };
  return { ...(await settle(EVENTS, sink, refuse, new AbortController().signal)), sent, buried };
}

t.test('accepted events before a failure are settled up to the first that was not accepted', async (t) => {
  const later = { kind: 'later', why: 'x' } as const;
  t.match(await settled({ ...later, stored: [0, 1, 3] }), { settled: 2, accepted: 3, later });
  t.match(await settled({ ...later, stored: [1] }), { settled: 0, accepted: 1, later });
  t.match(await settled({ ...later, stored: [] }), { settled: 0, accepted: 0, later });
});

t.test('events accepted beside a refused one are not sent again, and the rest is', async (t) => {
  const outcome = await settled({ kind: 'refused', indices: [1], stored: [0, 3], status: 7 });
  t.strictSame(outcome, { settled: 4, accepted: 3, sent: ['abcd', 'c'], buried: 'b' });
});

t.test('a single event in a refused batch is the refused one', async (t) => {
  const outcome = await settled({ kind: 'refused', stored: [0, 1, 3], status: 7 });
  t.strictSame(outcome, { settled: 4, accepted: 3, sent: ['abcd'], buried: 'c' });
});

t.test('a sink that refuses what it has accepted leads to an end', async (t) => {
  const outcome = await settled({ kind: 'refused', indices: [0], stored: [0, 1, 2, 3], status: 7 });
  t.strictSame(outcome, { settled: 4, accepted: 4, sent: ['abcd'], buried: '' });
  const halved = await settled({ kind: 'refused', indices: [0], stored: [0], status: 7 });
  t.strictSame(halved.sent, ['abcd', 'b', 'cd']);
});
