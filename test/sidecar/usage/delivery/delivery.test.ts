import t from 'tap';
import type { SinkAnswer } from '../../../../sidecar/usage/delivery/sink.js';
import { deferred } from '../../../support/http-server.js';
import { DeliveryWorld, MemorySource, turn } from '../../../support/memory-delivery.js';
import { usageRecord } from '../../../support/usage-records.js';

const close = (id: string): ReturnType<typeof usageRecord> => usageRecord(id, 'close');
const closes = (ids: string): ReturnType<typeof close>[] => ids.split('').map(close);
const LATER: SinkAnswer = { kind: 'later', why: 'status 503' };

t.test('closes alone are sent, after they waited for company, and the cursor passes all', async (t) => {
  const world = new DeliveryWorld();
  const delivery = await world.start();
  world.append(usageRecord('a', 'open'), close('a'));
  delivery.notify();
  await world.pass(60);
  world.append(usageRecord('b', 'open'), close('b'), usageRecord('c', 'open'));
  delivery.notify();
  await world.pass(39);
  t.strictSame(world.ids, [], 'not yet');
  await world.pass(1);
  t.strictSame(world.ids, [['a', 'b']]);
  t.equal(world.savedCount, 5);
  t.same(world.counted, { delivered: 2, refused: 0, retried: 0 });
  t.equal(delivery.backlogBytes, 0);
  t.equal(delivery.oldestMs, 0);
  t.equal(world.clock.pending, 0, 'nothing is polled');
  await delivery.stop();
});

t.test('what is not durable is not sent', async (t) => {
  const world = new DeliveryWorld();
  const delivery = await world.start();
  world.append(close('a'));
  world.source.records.push(close('b'));
  delivery.notify();
  await world.pass(100);
  t.strictSame(world.ids, [['a']]);
  t.equal(world.savedCount, 1);
  await delivery.stop();
});

t.test('a batch has at most so many events and bytes, and a backlog goes out batch after batch', async (t) => {
  const world = new DeliveryWorld();
  world.append(...closes('abcdefg'));
  const delivery = await world.start();
  await world.pass(100);
  t.strictSame(world.ids, [
    ['a', 'b', 'c', 'd', 'e'],
    ['f', 'g'],
  ]);
  await delivery.stop();

  const small = new DeliveryWorld();
  small.append(...closes('abc'));
  const bytes = JSON.stringify(world.batches[0]?.[0]).length;
  const careful = await small.start({ maxBytes: 2 * bytes + 2 });
  await small.pass(100);
  t.strictSame(small.ids, [['a', 'b'], ['c']]);
  await careful.stop();

  const tiny = new DeliveryWorld();
  tiny.append(...closes('ab'));
  const alone = await tiny.start({ maxBytes: 1 });
  await turn();
  t.strictSame(tiny.ids, [['a'], ['b']], 'an event that is too long goes alone; a full backlog does not wait');
  await alone.stop();
});

t.test('one batch is in flight, and the cursor waits for its answer', async (t) => {
  const world = new DeliveryWorld();
  const answer = deferred<SinkAnswer>();
  world.answer = () => answer.promise;
  world.append(close('a'));
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  world.append(close('b'));
  delivery.notify();
  await world.pass(10_000);
  t.strictSame(world.ids, [['a']]);
  t.equal(world.savedCount, 0);
  t.equal(delivery.oldestMs, 10_000);
  answer.resolve({ kind: 'accepted' });
  await world.pass(0);
  await world.pass(0);
  t.strictSame(world.ids, [['a'], ['b']]);
  t.equal(world.savedCount, 2);
  await delivery.stop();
});

t.test('a sink that is down is tried again after waits that double up to their bound', async (t) => {
  const world = new DeliveryWorld();
  world.append(close('a'));
  world.answer = () => LATER;
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  for (const wait of [1000, 2000, 4000, 8000, 8000]) {
    const sent = world.batches.length;
    await world.pass(wait - 1);
    t.equal(world.batches.length, sent, `${wait} ms are waited`);
    delivery.notify();
    await turn();
    t.equal(world.batches.length, sent, 'news do not cut a wait short');
    await world.pass(1);
    t.equal(world.batches.length, sent + 1);
  }
  t.equal(world.counted.retried, 6);
  t.equal(delivery.backlogBytes, 10);
  world.answer = () => ({ kind: 'accepted' });
  await world.pass(8000);
  t.equal(world.savedCount, 1);
  t.equal(world.log.lines.filter(({ event }) => event === 'usage delivery resumed').length, 1);

  world.append(close('b'));
  world.answer = () => LATER;
  delivery.notify();
  await world.pass(0);
  const sent = world.batches.length;
  await world.pass(1000);
  t.equal(world.batches.length, sent + 1, 'after a success the first wait is short again');
  await delivery.stop();
});

t.test('waits are drawn, and a Retry-After that is longer wins', async (t) => {
  const world = new DeliveryWorld();
  world.random = 0;
  world.append(close('a'));
  const answers: SinkAnswer[] = [LATER, { ...LATER, retryAfterMs: 60_000 }, { ...LATER, retryAfterMs: 1 }];
  world.answer = () => answers[world.batches.length - 1] ?? { kind: 'accepted' };
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  await world.pass(499);
  t.equal(world.batches.length, 1);
  await world.pass(1);
  t.equal(world.batches.length, 2, 'half of the step at the least');
  await world.pass(59_999);
  t.equal(world.batches.length, 2);
  await world.pass(1);
  t.equal(world.batches.length, 3);
  await world.pass(1999);
  t.equal(world.batches.length, 3, 'one that is shorter does not');
  await world.pass(1);
  t.equal(world.savedCount, 1);
  await delivery.stop();
});

t.test('the event that is refused is found, kept and passed; the others arrive in order', async (t) => {
  const world = new DeliveryWorld();
  world.append(...closes('abcde'));
  world.answer = (batch) => {
    if (world.letters.length === 0) t.equal(world.savedCount, 0, 'the cursor stays before a refused event');
    return batch.some(({ id }) => id === 'd') ? { kind: 'refused', status: 400 } : { kind: 'accepted' };
  };
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  t.strictSame(world.ids, [['a', 'b', 'c', 'd', 'e'], ['a', 'b'], ['c', 'd', 'e'], ['c'], ['d', 'e'], ['d'], ['e']]);
  t.match(world.letters, [{ at: '2026-10-03T00:00:00.000Z', status: 400, event: { id: 'd' } }]);
  t.equal(world.savedCount, 5);
  t.same(world.counted, { delivered: 4, refused: 1, retried: 0 });
  const line = world.log.lines.find(({ event }) => event === 'usage event refused');
  t.strictSame(line, { event: 'usage event refused', usageId: 'd', status: 400 }, 'by its id only');
  await delivery.stop();
});

t.test('a sink that names the refused ones is believed, unless it names none that exist', async (t) => {
  const world = new DeliveryWorld();
  world.append(...closes('abcd'));
  world.answer = (batch) => {
    const indices = batch.flatMap(({ id }, i) => ('bc'.includes(id) ? [i] : []));
    return indices.length > 0 ? { kind: 'refused', status: 422, indices } : { kind: 'accepted' };
  };
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  t.strictSame(world.ids, [
    ['a', 'b', 'c', 'd'],
    ['a', 'd'],
  ]);
  t.strictSame(
    world.letters.map(({ event }) => event.id),
    ['b', 'c'],
  );

  world.append(close('e'), close('f'));
  world.answer = (batch) =>
    batch.length > 1 ? { kind: 'refused', status: 400, indices: [7, -1] } : { kind: 'accepted' };
  delivery.notify();
  await world.pass(0);
  t.strictSame(world.ids.slice(2), [['e', 'f'], ['e'], ['f']]);
  await delivery.stop();
});

t.test('a sink that goes down while a batch is halved gets only the rest again', async (t) => {
  const world = new DeliveryWorld();
  world.append(...closes('abcd'));
  const answers: SinkAnswer[] = [{ kind: 'refused', status: 400 }, { kind: 'accepted' }, LATER];
  world.answer = () => answers[world.batches.length - 1] ?? { kind: 'accepted' };
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  t.equal(world.savedCount, 2, 'the first half is the sink’s');
  await world.pass(8000);
  t.strictSame(world.ids.slice(3), [['c', 'd']]);
  t.same(world.counted, { delivered: 4, refused: 0, retried: 1 });
  await delivery.stop();
});

t.test('while dead letters cannot be kept, the refused event waits', async (t) => {
  const world = new DeliveryWorld();
  world.append(close('a'));
  world.roomForLetters = false;
  world.answer = () => ({ kind: 'refused', status: 400 });
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  t.match(world.log.lines.at(-1), { event: 'usage delivery waits', reason: 'dead letters full' });
  world.roomForLetters = true;
  world.beforeBury = () => {
    throw new Error('EIO');
  };
  await world.pass(1000);
  t.match(world.log.lines.at(-1), { event: 'usage delivery failed' });
  t.equal(world.savedCount, 0);
  world.beforeBury = () => undefined;
  await world.pass(2000);
  t.equal(world.letters.length, 1);
  t.equal(world.savedCount, 1);
  await delivery.stop();
});

t.test('a cursor that cannot be saved is saved later, and nothing is sent twice for it', async (t) => {
  const world = new DeliveryWorld();
  world.append(close('a'));
  world.beforeSave = () => {
    throw new Error('ENOSPC');
  };
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  await world.pass(1000);
  t.equal(world.savedCount, 0);
  world.beforeSave = () => undefined;
  await world.pass(2000);
  t.equal(world.savedCount, 1);
  t.strictSame(world.ids, [['a']]);
  await delivery.stop();
});

t.test('a crash between the answer and the cursor sends the same events again, under the same ids', async (t) => {
  const world = new DeliveryWorld();
  world.append(close('a'), close('b'));
  world.beforeSave = () => new Promise(() => undefined);
  await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  t.equal(world.batches.length, 1);
  world.beforeSave = () => undefined;
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  t.equal(world.batches.length, 2);
  t.strictSame(world.batches[1], world.batches[0]);
  t.equal(world.savedCount, 2);
  await delivery.stop();
});

t.test('delivery goes on where the cursor stands, and from the start when that is lost', async (t) => {
  for (const [saved, ids] of [
    [{ kind: 'at', position: MemorySource.position(1) }, [['b']]],
    [{ kind: 'at', position: MemorySource.position(2) }, []],
    [{ kind: 'at', position: { segment: 9, offset: 0 } }, [['a', 'b']]],
    [{ kind: 'lost', why: 'unreadable' }, [['a', 'b']]],
    [{ kind: 'none' }, [['a', 'b']]],
  ] as const) {
    const world = new DeliveryWorld();
    world.append(close('a'), close('b'));
    world.saved = saved;
    const delivery = await world.start({ maxAgeMs: 0 });
    await world.pass(0);
    t.strictSame(world.ids, ids, JSON.stringify(saved));
    await delivery.stop();
  }
});

t.test('damage and a disk that fails are told; whole records are sent', async (t) => {
  const world = new DeliveryWorld();
  world.append(close('a'));
  world.source.fault = new Error('EIO');
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  t.match(world.log.lines.at(-1), { event: 'usage delivery failed', retryAfterMs: 1000 });
  world.source.fault = undefined;
  world.source.damaged = true;
  await world.pass(1000);
  t.strictSame(world.ids, [['a']]);
  t.ok(world.log.lines.some(({ event, count }) => event === 'usage spool damaged' && count === 1));
  await delivery.stop();
});

t.test('segments behind the cursor are pruned, but not those that others still read', async (t) => {
  const world = new DeliveryWorld();
  world.keepFrom = { segment: 2, offset: 0 };
  world.append(...Array.from({ length: 13 }, (_, i) => close(`n${i}`)));
  const delivery = await world.start({ maxAgeMs: 0 });
  await world.pass(0);
  t.strictSame(world.source.prunes, [{ segment: 2, offset: 0 }]);
  world.keepFrom = { segment: Infinity, offset: 0 };
  world.append(close('z'));
  delivery.notify();
  await world.pass(0);
  t.strictSame(world.source.prunes[1], MemorySource.position(14));
  for (const before of world.source.prunes) t.ok(world.isSaved(before), 'never past what the file says');
  await delivery.stop();
});

t.test('what could not be pruned is pruned when it can be, without anything new to deliver', async (t) => {
  const world = new DeliveryWorld();
  world.keepFrom = { segment: 1, offset: 0 };
  world.source.pinned = 2;
  world.append(...Array.from({ length: 13 }, (_, i) => close(`n${i}`)));
  world.saved = { kind: 'at', position: world.source.end };
  const delivery = await world.start();
  await delivery.prune();
  t.strictSame(world.source.prunes, [], 'others read it all');
  world.keepFrom = { segment: Infinity, offset: 0 };
  await delivery.prune();
  world.source.pinned = Infinity;
  await delivery.prune();
  await delivery.prune();
  const before = MemorySource.position(13);
  t.strictSame(world.source.prunes, [before, before], 'again once the pin is gone, and not after that');
  await delivery.stop();
  world.source.pinned = 0;
  world.saved = { kind: 'at', position: MemorySource.position(99) };
  await delivery.prune();
  t.equal(world.source.prunes.length, 2, 'the spool may be another process’s');
});

t.test('stop', async (t) => {
  await t.test('sends what waits, and settles at once for all who ask', async (t) => {
    const world = new DeliveryWorld();
    world.append(close('a'));
    const delivery = await world.start();
    await Promise.all([delivery.stop(), delivery.stop()]);
    t.strictSame(world.ids, [['a']]);
    t.equal(world.savedCount, 1);
    world.append(close('b'));
    delivery.notify();
    await world.pass(10_000);
    t.equal(world.batches.length, 1, 'nothing is sent after it');
    t.equal(world.clock.pending, 0);
  });

  await t.test('lets the batch in flight finish', async (t) => {
    const world = new DeliveryWorld();
    const answer = deferred<SinkAnswer>();
    world.answer = () => answer.promise;
    world.append(close('a'));
    const delivery = await world.start({ maxAgeMs: 0 });
    await world.pass(0);
    const stopped = delivery.stop();
    await world.pass(499);
    answer.resolve({ kind: 'accepted' });
    await stopped;
    t.equal(world.savedCount, 1);
  });

  await t.test('cuts the batch in flight after its bound', async (t) => {
    const world = new DeliveryWorld();
    world.answer = (_, signal) =>
      new Promise((resolve) => signal.addEventListener('abort', () => resolve({ kind: 'later', why: 'AbortError' })));
    world.append(close('a'));
    const delivery = await world.start({ maxAgeMs: 0 });
    await world.pass(0);
    const stopped = delivery.stop();
    await world.pass(500);
    await stopped;
    t.equal(world.savedCount, 0);
    t.equal(world.clock.pending, 0);
  });

  await t.test('does not wait for a sink that is down', async (t) => {
    const world = new DeliveryWorld();
    world.answer = () => LATER;
    world.append(close('a'));
    const delivery = await world.start({ maxAgeMs: 0 });
    await world.pass(0);
    await delivery.stop();
    t.equal(world.batches.length, 1);
    t.equal(world.clock.pending, 0);
  });

  await t.test('may come before and during the start', async (t) => {
    const world = new DeliveryWorld();
    world.append(close('a'));
    const never = world.make();
    await never.stop();
    const delivery = world.make();
    const started = delivery.start();
    await delivery.stop();
    await started;
    await world.pass(1000);
    t.strictSame(world.ids, []);
  });
});
