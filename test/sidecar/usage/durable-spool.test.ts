import t from 'tap';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { MAX_ENTRIES_WITH_PROGRESS } from '../../../sidecar/usage/unsynced.js';
import { segmentPath, listSegments, START } from '../../../sidecar/usage/segments.js';
import { systemError } from '../../support/fake-disk.js';
import { DIR, settled, SpoolWorld } from '../../support/spool-harness.js';
import { readAll, usageRecord } from '../../support/usage-records.js';

/** Whether a promise is settled by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let done = false;
  void promise.then(() => (done = true));
  await settled();
  return done;
}

function open(world: SpoolWorld, ...ids: readonly string[]): UsageRecord[] {
  const records = ids.map((id) => usageRecord(id, 'open'));
  for (const record of records) world.spool.append(record);
  return records;
}

function close(world: SpoolWorld, id: string): Promise<void> {
  const record = usageRecord(id, 'close');
  world.spool.append(record);
  return world.spool.sync(record);
}

t.test('what nobody waits for is written after 5 ms, with one sync', async (t) => {
  const world = await SpoolWorld.start();
  open(world, 'a', 'b');
  await world.pass(4.9);
  t.strictSame(world.groups, []);
  await world.pass(0.1);
  t.strictSame(world.groups, [2]);
  t.equal(world.disk.calls.filter(({ call }) => call === 'sync').length, 1);
  t.strictSame(await world.durable(), ['a:open', 'b:open']);
});

t.test('what someone waits for waits for no company, but for what ends in the same turn', async (t) => {
  const world = await SpoolWorld.start();
  open(world, 'a', 'b', 'c');
  const closed = ['a', 'b'].map((id) => close(world, id));
  t.ok(await isSettled(Promise.all(closed)));
  t.strictSame(world.groups, [5]);
  t.equal(world.disk.calls.filter(({ call }) => call === 'sync').length, 1);
  t.strictSame(await world.durable(), ['a:open', 'b:open', 'c:open', 'a:close', 'b:close']);
  t.ok(await isSettled(close(world, 'c')));
  t.strictSame(world.groups, [5, 1]);
});

t.test('64 records are written at once', async (t) => {
  const world = await SpoolWorld.start();
  open(world, ...Array.from({ length: 64 }, (_, i) => `n${i}`));
  await settled();
  t.strictSame(world.groups, [64]);
});

t.test('one sync at a time; what comes meanwhile is the next group', async (t) => {
  const world = await SpoolWorld.start();
  let go = (): void => undefined;
  world.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  open(world, 'a');
  await world.pass(5);
  open(world, ...Array.from({ length: 200 }, (_, i) => `n${i}`));
  const closed = close(world, 'a');
  await world.pass(100);
  t.strictSame(world.groups, []);
  t.equal(world.disk.calls.filter(({ call }) => call === 'sync').length, 1, 'one in flight');
  go();
  await settled();
  t.notOk(await isSettled(closed));
  go();
  t.ok(await isSettled(closed));
  t.strictSame(world.groups, [1, 201]);
});

t.test('a record that is durable, or was never appended, is not waited for', async (t) => {
  const world = await SpoolWorld.start();
  const [record] = open(world, 'a');
  await world.pass(5);
  t.ok(await isSettled(world.spool.sync(record!)));
  t.ok(await isSettled(world.spool.sync(usageRecord('b', 'close'))));
});

t.test('a full segment is followed by another; its folder is synced before anything in it counts', async (t) => {
  const world = await SpoolWorld.start({ segmentBytes: 1000 });
  for (const id of ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']) {
    open(world, id);
    await world.pass(5);
  }
  const segments = await listSegments(DIR, world.disk);
  t.ok(segments.length > 1);
  t.strictSame(
    await world.durable(),
    ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map((id) => `${id}:open`),
  );
  t.ok(world.disk.calls.filter(({ call }) => call === 'syncDir').length >= segments.length);

  world.disk.wait = (call) => (call === 'syncDir' ? new Promise(() => undefined) : undefined);
  while (world.spool.reading.unsynced === 0) {
    open(world, 'x');
    await world.pass(5);
  }
  t.ok((await listSegments(DIR, world.disk)).length > segments.length, 'a new one is begun and its name is not safe');
});

t.test(
  'a sync that fails is not tried again on that file: the next segment has what was not acknowledged',
  async (t) => {
    const world = await SpoolWorld.start();
    open(world, 'a');
    await world.pass(5);
    const before = world.spool.position;
    let failures = 1;
    world.disk.fail = (call, name) =>
      call === 'sync' && name.endsWith('1.seg') && failures-- > 0 ? systemError('EIO') : undefined;
    const closed = close(world, 'a');
    await world.pass(5);
    t.ok(await isSettled(closed), 'it is durable in the new segment');
    const calls = world.disk.calls.slice(world.disk.calls.findIndex(({ call }) => call === 'sync') + 1);
    const after = calls.slice(calls.findIndex(({ call }) => call === 'sync') + 1);
    t.notOk(after.some(({ call, name }) => (call === 'sync' || call === 'write') && name.endsWith('1.seg')));
    t.strictSame(await world.durable(), ['a:open', 'a:close']);
    t.match(world.spool.position, { segment: 2 });
    t.equal(world.disk.content(segmentPath(DIR, 1)).length, before.offset, 'what did not count is cut');
    t.strictSame(world.health, [{ ok: false, why: 'write' }]);
  },
);

for (const call of ['open', 'write', 'sync', 'syncDir'] as const) {
  t.test(`${call} fails for a while: nothing is lost, new work waits for three good probes`, async (t) => {
    const world = await SpoolWorld.start();
    world.disk.fail = (now) => (now === call ? systemError('ENOSPC') : undefined);
    open(world, 'a', 'b');
    const closed = close(world, 'a');
    await world.pass(5);
    t.equal(world.errors.length, 2, 'tried in a second segment');
    t.strictSame(world.spool.health, { ok: false, why: 'write' });
    await world.pass(3000);
    t.notOk(await isSettled(closed));
    world.disk.fail = () => undefined;
    await world.pass(1000);
    t.ok(await isSettled(closed));
    t.notOk(world.spool.health.ok, 'one good probe');
    await world.pass(1000);
    t.notOk(world.spool.health.ok, 'two');
    await world.pass(1000);
    t.strictSame(world.spool.health, { ok: true });
    t.strictSame(await world.durable(), ['a:open', 'b:open', 'a:close']);
    t.strictSame(world.health, [{ ok: false, why: 'write' }, { ok: true }]);
    t.strictSame((await world.left()).length, 3, 'nor does a reader without a position meet one twice');
  });
}

t.test('a bad probe between good ones starts the count again', async (t) => {
  const world = await SpoolWorld.start();
  world.disk.fail = (call) => (call === 'sync' ? systemError('EIO') : undefined);
  open(world, 'a');
  await world.pass(5);
  world.disk.fail = () => undefined;
  await world.pass(1000);
  await world.pass(1000);
  world.disk.fail = (call, name) => (call === 'write' && name === 'probe' ? systemError('EIO') : undefined);
  await world.pass(1000);
  world.disk.fail = () => undefined;
  await world.pass(1000);
  await world.pass(1000);
  t.notOk(world.spool.health.ok);
  await world.pass(1000);
  t.ok(world.spool.health.ok);
  t.notOk(
    [...world.disk.files.keys()].some((path) => path.endsWith('probe')),
    'the probe is removed',
  );
});

t.test('a disk that hangs: late after 2 s, well after it came back', async (t) => {
  const world = await SpoolWorld.start();
  let go = (): void => undefined;
  const hung = new Promise<void>((resolve) => (go = resolve));
  world.disk.wait = (call) => (call === 'sync' ? hung : undefined);
  open(world, 'a');
  await world.pass(5);
  await world.pass(1990);
  t.ok(world.spool.health.ok);
  await world.pass(6);
  t.strictSame(world.spool.health, { ok: false, why: 'late' });
  t.equal(world.spool.reading.unsynced, 1);
  t.ok(world.spool.reading.oldestMs > 2000);
  go();
  await settled();
  t.equal(world.spool.reading.unsynced, 0);
  for (let probe = 0; probe < 3; probe++) {
    t.notOk(world.spool.health.ok);
    await world.pass(1000);
  }
  t.ok(world.spool.health.ok);
});

t.test('too little free space and too long a backlog', async (t) => {
  const world = await SpoolWorld.start({ maxBacklogBytes: 2000, segmentBytes: 1000 });
  world.disk.freeBytes = 999;
  await world.pass(1000);
  t.strictSame(world.spool.health, { ok: false, why: 'space' });
  world.disk.freeBytes = 1000;
  await world.pass(3000);
  await world.pass(1000);
  await world.pass(1000);
  t.ok(world.spool.health.ok);

  for (let i = 0; i < 8; i++) {
    open(world, `n${i}`);
    void close(world, `n${i}`);
    await world.pass(5);
  }
  t.ok(world.spool.reading.bytes > 2000);
  await world.pass(1000);
  t.strictSame(world.spool.health, { ok: false, why: 'backlog' });
  await world.spool.prune(world.spool.position);
  t.ok(world.spool.reading.bytes <= 2000);
  for (let probe = 0; probe < 3; probe++) await world.pass(1000);
  t.ok(world.spool.health.ok);
});

t.test('a spool that starts on a full disk says so before its first request', async (t) => {
  const world = await SpoolWorld.start();
  await world.spool.close();
  world.disk.freeBytes = 0;
  await world.open();
  t.strictSame(world.spool.health, { ok: false, why: 'space' });
});

t.test('a free space that cannot be read is a disk that fails', async (t) => {
  const world = await SpoolWorld.start();
  world.disk.fail = (call) => (call === 'free' ? systemError('EIO') : undefined);
  await world.pass(1000);
  t.strictSame(world.spool.health, { ok: false, why: 'write' });
});

t.test('a close waits for the disk for as long as is set, and is written afterwards', async (t) => {
  const world = await SpoolWorld.start();
  world.disk.fail = (call) => (call === 'write' ? systemError('ENOSPC') : undefined);
  open(world, 'a');
  const closed = close(world, 'a');
  await world.pass(9999);
  t.notOk(await isSettled(closed));
  await world.pass(1);
  t.ok(await isSettled(closed));
  t.strictSame(world.late, ['a']);
  world.disk.fail = () => undefined;
  await world.pass(1000);
  t.strictSame(await world.durable(), ['a:open', 'a:close']);
});

t.test('of too many that wait only progress is left out', async (t) => {
  const world = await SpoolWorld.start();
  world.disk.fail = (call) => (call === 'write' ? systemError('ENOSPC') : undefined);
  for (let i = 0; i < MAX_ENTRIES_WITH_PROGRESS; i++) world.spool.append(usageRecord('a', 'progress'));
  world.spool.append(usageRecord('a', 'progress'));
  open(world, 'b');
  world.spool.append(usageRecord('a', 'close'));
  t.equal(world.dropped, 1);
  t.equal(world.spool.reading.unsynced, MAX_ENTRIES_WITH_PROGRESS + 2);
});

t.test('prune keeps what a running request or a reader needs', async (t) => {
  const world = await SpoolWorld.start({ segmentBytes: 1 });
  open(world, 'a');
  await world.pass(5);
  open(world, 'b');
  await world.pass(5);
  const upTo = world.spool.position;
  void close(world, 'b');
  await world.pass(5);
  t.strictSame(await listSegments(DIR, world.disk), [1, 2, 3]);
  t.equal(await world.spool.prune(world.spool.position), 1);
  t.strictSame(await listSegments(DIR, world.disk), [1, 2, 3], 'a has no close');
  void close(world, 'a');
  await world.pass(5);
  t.equal(await world.spool.prune(upTo), 2);
  t.strictSame(await listSegments(DIR, world.disk), [2, 3, 4]);
  t.strictSame((await readAll(DIR, { disk: world.disk, from: START })).records.length, 3);
  await world.spool.prune({ segment: 99, offset: 0 });
  t.strictSame(await listSegments(DIR, world.disk), [4], 'the newest stays, so that no number comes twice');
  world.disk.fail = (call) => (call === 'remove' ? systemError('EIO') : undefined);
  open(world, 'c');
  await world.pass(5);
  await t.rejects(world.spool.prune(world.spool.position), { code: 'EIO' });
});

t.test('closing writes what is left and marks the end', async (t) => {
  const world = await SpoolWorld.start();
  open(world, 'a');
  const record = usageRecord('a', 'close');
  world.spool.append(record);
  t.equal(await world.spool.close(), 0);
  t.equal(await world.spool.close(), 0, 'twice');
  t.equal(world.clock.pending, 0, 'no timer is left');
  await world.open();
  t.match(world.recovered, { ended: true, cutBytes: 0, quarantined: [], estimated: [] });
  t.strictSame(await world.left(), ['a:open', 'a:close']);
  await world.spool.close();
  t.strictSame(await listSegments(DIR, world.disk), [1], 'nothing to write, no new segment');
});

t.test('closing on a disk that fails or hangs takes no longer than it may', async (t) => {
  const world = await SpoolWorld.start();
  world.disk.fail = (call) => (call === 'write' ? systemError('EIO') : undefined);
  open(world, 'a', 'b');
  t.equal(await world.spool.close(), 2);
  await world.open();
  world.disk.fail = () => undefined;
  world.disk.wait = (call) => (call === 'sync' ? new Promise(() => undefined) : undefined);
  open(world, 'c');
  const closed = world.spool.close();
  await world.pass(9999);
  t.notOk(await isSettled(closed));
  await world.pass(1);
  t.equal(await closed, 1);
});
