/** Files of a spool that something other than its sidecar removes, renames or replaces. */
import t from 'tap';
import { segmentPath } from '../../../sidecar/usage/segments.js';
import { verify } from '../../../sidecar/usage/verify.js';
import { systemError } from '../../support/fake-disk.js';
import { DIR, settled, SpoolWorld } from '../../support/spool-harness.js';
import { usageRecord } from '../../support/usage-records.js';

const FIRST = segmentPath(DIR, 1);

/** A request from its open to its durable close. */
async function request(world: SpoolWorld, id: string): Promise<void> {
  world.spool.append(usageRecord(id, 'open'));
  const close = usageRecord(id, 'close');
  world.spool.append(close);
  await world.spool.sync(close);
}

function shorts(...ids: readonly string[]): string[] {
  return ids.flatMap((id) => [`${id}:open`, `${id}:close`]);
}

/** Ends the spool, and looks at what it left as a next start would. */
async function ended(world: SpoolWorld): Promise<{ lost: number; records: string[]; findings: readonly object[] }> {
  const lost = await world.spool.close();
  const { findings } = await verify(DIR, false, world.disk);
  return { lost, records: await world.left(), findings };
}

t.test('the open segment is removed: noticed with the next probe, written again, nothing is lost', async (t) => {
  const world = await SpoolWorld.start();
  await request(world, 'a');
  await world.pass(1000);
  const before = world.spool.position;
  const content = world.disk.content(FIRST);
  world.disk.files.delete(FIRST);
  await request(world, 'b');
  t.strictSame(world.spool.health, { ok: true }, 'a caller is answered before anything can be known');

  await world.pass(1000);
  t.strictSame(world.spool.health, { ok: false, why: 'removed' });
  t.match(world.removed, [{ what: 'segment', segment: 1, outcome: 'restored', records: 2 }]);
  t.ok(world.disk.content(FIRST).subarray(0, content.length).equals(content), 'positions are what they were');
  t.match(before, { segment: 1, offset: content.length });

  await request(world, 'c');
  t.match(world.spool.position, { segment: 2 }, 'a file that was copied is not written on');
  for (const ok of [false, false, true]) {
    await world.pass(1000);
    t.equal(world.spool.health.ok, ok);
  }
  t.equal(world.removed.length, 1);
  t.strictSame(await ended(world), { lost: 0, records: shorts('a', 'b', 'c'), findings: [] });
});

t.test('a segment that is full before the next probe is written again before the next one begins', async (t) => {
  const world = await SpoolWorld.start({ segmentBytes: 2000 });
  await request(world, 'a');
  world.disk.files.delete(FIRST);
  const ids = ['b', 'c', 'd', 'e', 'f', 'g', 'h'];
  for (const id of ids) await request(world, id);
  t.ok(world.spool.position.segment > 1);
  t.match(world.removed, [{ segment: 1, outcome: 'restored' }]);
  t.strictSame(world.spool.health, { ok: false, why: 'removed' });
  t.strictSame(await ended(world), { lost: 0, records: shorts('a', ...ids), findings: [] });
});

t.test('a spool that is closed before the next probe is whole too', async (t) => {
  const world = await SpoolWorld.start();
  await request(world, 'a');
  world.disk.files.delete(FIRST);
  t.strictSame(await ended(world), { lost: 0, records: shorts('a'), findings: [] });

  const running = await SpoolWorld.start();
  running.spool.append(usageRecord('a', 'open'));
  await running.pass(5);
  running.disk.files.delete(FIRST);
  t.strictSame(await running.spool.close(), 0);
  t.strictSame(await running.left(), ['a:open'], 'also with a request under way, which the next start closes');
});

t.test('a file that took the name of the open segment is kept aside', async (t) => {
  const world = await SpoolWorld.start();
  await request(world, 'a');
  world.disk.files.delete(FIRST);
  world.disk.put(FIRST, Buffer.from('from a backup'));
  await world.pass(1000);
  t.match(world.removed, [{ segment: 1, outcome: 'restored' }]);
  const kept = `${DIR}/quarantine/00000000000000000001.seg.replaced`;
  t.equal(world.disk.content(kept).toString(), 'from a backup');
  t.strictSame(await ended(world), { lost: 0, records: shorts('a'), findings: [] });
});

t.test('while it cannot be written again nothing is acknowledged, and nothing is lost', async (t) => {
  const world = await SpoolWorld.start();
  await request(world, 'a');
  world.disk.files.delete(FIRST);
  world.disk.fail = (call, name) =>
    call === 'write' && name.endsWith('.restored') ? systemError('ENOSPC') : undefined;
  await world.pass(1000);
  t.match(world.removed, [{ segment: 1, outcome: 'pending' }]);
  t.strictSame(world.spool.health, { ok: false, why: 'removed' });

  let answered = false;
  void request(world, 'b').then(() => (answered = true));
  for (let probe = 0; probe < 4; probe++) {
    await world.pass(1000);
    t.notOk(world.spool.health.ok);
  }
  t.notOk(answered);
  world.disk.fail = () => undefined;
  await world.pass(1000);
  t.ok(answered);
  t.match(world.removed, [{ outcome: 'pending' }, { outcome: 'restored' }]);
  t.strictSame(await ended(world), { lost: 0, records: shorts('a', 'b'), findings: [] });
});

t.test('a closed segment that is removed is lost, and reported once; one that was pruned is not', async (t) => {
  const world = await SpoolWorld.start({ segmentBytes: 500 });
  for (const id of ['a', 'b', 'c', 'd']) await request(world, id);
  t.ok(world.spool.position.segment >= 3);
  await world.spool.prune({ segment: 2, offset: 0 });
  await world.pass(1000);
  t.strictSame(world.removed, []);
  const bytes = world.disk.content(segmentPath(DIR, 2)).length;
  const all = world.spool.reading.bytes;
  world.disk.files.delete(segmentPath(DIR, 2));
  await world.pass(1000);
  t.match(world.removed, [{ segment: 2, bytes, outcome: 'lost' }]);
  t.equal(world.spool.reading.bytes, all - bytes);
  t.strictSame(world.spool.health, { ok: false, why: 'removed' });
  await world.pass(3000);
  t.equal(world.removed.length, 1);
});

t.test('a prune under way is no removal', async (t) => {
  const world = await SpoolWorld.start({ segmentBytes: 500 });
  for (const id of ['a', 'b', 'c', 'd', 'e', 'f']) await request(world, id);
  t.ok(world.spool.position.segment > 4);
  let go = (): void => undefined;
  world.disk.wait = (call) => (call === 'syncDir' ? new Promise((resolve) => (go = resolve)) : undefined);
  const pruned = world.spool.prune({ segment: 3, offset: 0 });
  await world.pass(1000);
  t.strictSame(world.removed, []);
  go();
  await pruned;
  world.disk.wait = () => undefined;
  world.disk.fail = (call) => (call === 'remove' ? systemError('EIO') : undefined);
  const { bytes } = world.spool.reading;
  await t.rejects(world.spool.prune({ segment: 4, offset: 0 }));
  t.equal(world.spool.reading.bytes, bytes);
  world.disk.fail = () => undefined;
  await world.pass(1000);
  t.strictSame(world.removed, [], 'nor is one that failed');
});

t.test('removed while a write is under way: noticed when that is over', async (t) => {
  const world = await SpoolWorld.start();
  await request(world, 'a');
  let go = (): void => undefined;
  world.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  const b = request(world, 'b');
  await settled();
  world.disk.files.delete(FIRST);
  await world.pass(1000);
  t.strictSame(world.removed, []);
  world.disk.wait = () => undefined;
  go();
  await b;
  await settled();
  t.match(world.removed, [{ segment: 1, outcome: 'restored' }]);
  t.strictSame(world.spool.health, { ok: false, why: 'removed' });
  t.strictSame(await ended(world), { lost: 0, records: shorts('a', 'b'), findings: [] });
});

t.test('a lock that was removed is reported; another process that has it stops new work while it has it', async (t) => {
  const world = await SpoolWorld.start();
  world.lock = { kind: 'restored' };
  await world.pass(1000);
  world.lock = { kind: 'kept' };
  t.match(world.removed, [{ what: 'lock' }]);
  t.strictSame(world.spool.health, { ok: false, why: 'removed' });
  await world.pass(1000);
  await world.pass(1000);
  await world.pass(1000);
  t.strictSame(world.spool.health, { ok: true });

  world.lock = { kind: 'held', pid: 4711 };
  await world.pass(1000);
  await world.pass(1000);
  t.strictSame(world.taken, [4711, 4711]);
  t.strictSame(world.spool.health, { ok: false, why: 'taken' });
  await request(world, 'a');
  t.strictSame(await world.durable(), shorts('a'), 'what runs is recorded');
  await world.spool.close();
});
