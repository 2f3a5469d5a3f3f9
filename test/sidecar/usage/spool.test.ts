import { constants } from 'node:fs';
import { readFile, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { MAX_UNSYNCED_WITH_PROGRESS } from '../../../sidecar/usage/spool.js';
import { systemDisk } from '../../../sidecar/usage/disk.js';
import { listSegments, verify } from '../../../sidecar/usage/reader.js';
import { segmentPath, START } from '../../../sidecar/usage/spool-format.js';
import { systemError } from '../../support/fake-disk.js';
import { DIR, settled, SpoolHarness } from '../../support/spool-harness.js';
import { readAll, usageRecord } from '../../support/usage-records.js';

/** Whether a promise has settled by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let done = false;
  void promise.then(() => (done = true));
  await settled();
  return done;
}

function open(harness: SpoolHarness, ...ids: readonly string[]): UsageRecord[] {
  const records = ids.map((id) => usageRecord(id, 'open'));
  for (const record of records) harness.spool.append(record);
  return records;
}

function close(harness: SpoolHarness, id: string): Promise<boolean> {
  const record = usageRecord(id, 'close');
  harness.spool.append(record);
  return harness.spool.sync(record);
}

t.test('records that no caller awaits are written after 5 ms, with one sync', async (t) => {
  const harness = await SpoolHarness.start();
  open(harness, 'a', 'b');
  await harness.pass(4.9);
  t.strictSame(harness.groups, []);
  await harness.pass(0.1);
  t.strictSame(harness.groups, [2]);
  t.equal(harness.disk.calls.filter(({ call }) => call === 'sync').length, 1);
  t.strictSame(await harness.durable(), ['a:open', 'b:open']);
});

t.test('on the machine’s disk a write to a new file is durable without another call', async (t) => {
  const path = join(t.testdir(), 'segment');
  const file = await systemDisk.open(path, 'create');
  t.teardown(() => file.close());
  const links = await Promise.all(
    (await readdir('/proc/self/fd')).map(async (fd) => [fd, await readlink(`/proc/self/fd/${fd}`).catch(() => '')]),
  );
  const [fd] = links.find(([, to]) => to === path) ?? [];
  const [, flags = ''] = /flags:\s*([0-7]+)/.exec(await readFile(`/proc/self/fdinfo/${fd}`, 'utf8')) ?? [];
  t.equal(parseInt(flags, 8) & constants.O_DSYNC, constants.O_DSYNC);
});

t.test('an awaited record is written at once, with those of the same turn', async (t) => {
  const harness = await SpoolHarness.start();
  open(harness, 'a', 'b', 'c');
  const closed = ['a', 'b'].map((id) => close(harness, id));
  t.ok(await isSettled(Promise.all(closed)));
  t.strictSame(harness.groups, [5]);
  t.equal(harness.disk.calls.filter(({ call }) => call === 'sync').length, 1);
  t.strictSame(await harness.durable(), ['a:open', 'b:open', 'c:open', 'a:close', 'b:close']);
  t.ok(await isSettled(close(harness, 'c')));
  t.strictSame(harness.groups, [5, 1]);
});

t.test('64 records are written at once', async (t) => {
  const harness = await SpoolHarness.start();
  open(harness, ...Array.from({ length: 64 }, (_, i) => `n${i}`));
  await settled();
  t.strictSame(harness.groups, [64]);
});

t.test('one sync at a time; records that arrive meanwhile are the next group', async (t) => {
  const harness = await SpoolHarness.start();
  let go = (): void => undefined;
  harness.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  open(harness, 'a');
  await harness.pass(5);
  open(harness, ...Array.from({ length: 200 }, (_, i) => `n${i}`));
  const closed = close(harness, 'a');
  await harness.pass(100);
  t.strictSame(harness.groups, []);
  t.equal(harness.disk.calls.filter(({ call }) => call === 'sync').length, 1, 'one in flight');
  go();
  await settled();
  t.notOk(await isSettled(closed));
  go();
  t.ok(await isSettled(closed));
  t.strictSame(harness.groups, [1, 201]);
});

t.test('a record that is durable, or was never appended, is not waited for', async (t) => {
  const harness = await SpoolHarness.start();
  const [record] = open(harness, 'a');
  await harness.pass(5);
  t.ok(await isSettled(harness.spool.sync(record!)));
  t.ok(await isSettled(harness.spool.sync(usageRecord('b', 'close'))));
});

t.test('a full segment is followed by another; its folder is synced before its records count', async (t) => {
  const harness = await SpoolHarness.start({ segmentBytes: 1000 });
  for (const id of ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']) {
    open(harness, id);
    await harness.pass(5);
  }
  const segments = await listSegments(DIR, harness.disk);
  t.ok(segments.length > 1);
  t.strictSame(
    await harness.durable(),
    ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map((id) => `${id}:open`),
  );
  t.ok(harness.disk.calls.filter(({ call }) => call === 'syncDir').length >= segments.length);

  harness.disk.wait = (call) => (call === 'syncDir' ? new Promise(() => undefined) : undefined);
  while (harness.spool.reading.unsynced === 0) {
    open(harness, 'x');
    await harness.pass(5);
  }
  t.ok(
    (await listSegments(DIR, harness.disk)).length > segments.length,
    'a new one is begun and its name is not durable',
  );
});

t.test('segments that are pruned are gone from a folder that is synced after', async (t) => {
  const harness = await SpoolHarness.start({ segmentBytes: 1000 });
  for (const id of ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']) {
    open(harness, id);
    await close(harness, id);
    await harness.pass(5);
  }
  const before = harness.disk.calls.length;
  await harness.spool.prune({ segment: 2, offset: 0 });
  const calls = harness.disk.calls.slice(before).map(({ call }) => call);
  t.strictSame([calls.includes('remove'), calls.lastIndexOf('syncDir') > calls.lastIndexOf('remove')], [true, true]);
});

t.test('a failed sync is not repeated on that file: the next segment has the unacknowledged records', async (t) => {
  const harness = await SpoolHarness.start();
  open(harness, 'a');
  await harness.pass(5);
  const before = harness.spool.position;
  let failures = 1;
  harness.disk.fail = (call, name) =>
    call === 'sync' && name.endsWith('1.seg') && failures-- > 0 ? systemError('EIO') : undefined;
  const closed = close(harness, 'a');
  await harness.pass(5);
  t.ok(await isSettled(closed), 'it is durable in the new segment');
  const calls = harness.disk.calls.slice(harness.disk.calls.findIndex(({ call }) => call === 'sync') + 1);
  const after = calls.slice(calls.findIndex(({ call }) => call === 'sync') + 1);
  t.notOk(after.some(({ call, name }) => (call === 'sync' || call === 'write') && name.endsWith('1.seg')));
  t.strictSame(await harness.durable(), ['a:open', 'a:close']);
  t.match(harness.spool.position, { segment: 2 });
  t.equal(harness.disk.content(segmentPath(DIR, 1)).length, before.offset, 'unacknowledged records are cut off');
  t.strictSame(harness.health, [{ ok: false, why: 'write' }]);
});

for (const call of ['open', 'write', 'sync', 'syncDir'] as const)
  t.test(`${call} fails for a while: nothing is lost, new requests wait for three successful probes`, async (t) => {
    const harness = await SpoolHarness.start();
    harness.disk.fail = (now) => (now === call ? systemError('ENOSPC') : undefined);
    open(harness, 'a', 'b');
    const closed = close(harness, 'a');
    await harness.pass(5);
    t.equal(harness.errors.length, 2, 'tried in a second segment');
    t.strictSame(harness.spool.health, { ok: false, why: 'write' });
    await harness.pass(3000);
    t.notOk(await isSettled(closed));
    t.strictSame(harness.spool.health, { ok: false, why: 'write' }, 'late too, but for this reason');
    harness.disk.fail = () => undefined;
    await harness.pass(1000);
    t.ok(await isSettled(closed));
    t.notOk(harness.spool.health.ok, 'one good probe');
    await harness.pass(1000);
    t.notOk(harness.spool.health.ok, 'two');
    await harness.pass(1000);
    t.strictSame(harness.spool.health, { ok: true });
    t.strictSame(await harness.durable(), ['a:open', 'b:open', 'a:close']);
    t.strictSame(harness.health, [{ ok: false, why: 'write' }, { ok: true }]);
    t.strictSame((await harness.left()).length, 3, 'nor does a reader without a position get one twice');
  });

t.test('a failed probe between successful ones restarts the count', async (t) => {
  const harness = await SpoolHarness.start();
  harness.disk.fail = (call) => (call === 'sync' ? systemError('EIO') : undefined);
  open(harness, 'a');
  await harness.pass(5);
  harness.disk.fail = () => undefined;
  await harness.pass(1000);
  await harness.pass(1000);
  harness.disk.fail = (call, name) => (call === 'write' && name === 'probe' ? systemError('EIO') : undefined);
  await harness.pass(1000);
  harness.disk.fail = () => undefined;
  await harness.pass(1000);
  await harness.pass(1000);
  t.notOk(harness.spool.health.ok);
  await harness.pass(1000);
  t.ok(harness.spool.health.ok);
  t.notOk(
    [...harness.disk.files.keys()].some((path) => path.endsWith('probe')),
    'the probe is removed',
  );
});

t.test('a disk that hangs: late after 2 s, healthy after it continues', async (t) => {
  const harness = await SpoolHarness.start();
  let go = (): void => undefined;
  const hung = new Promise<void>((resolve) => (go = resolve));
  harness.disk.wait = (call) => (call === 'sync' ? hung : undefined);
  open(harness, 'a');
  await harness.pass(5);
  await harness.pass(1990);
  t.ok(harness.spool.health.ok);
  await harness.pass(6);
  t.strictSame(harness.spool.health, { ok: false, why: 'late' });
  t.equal(harness.spool.reading.unsynced, 1);
  t.ok(harness.spool.reading.oldestMs > 2000);
  go();
  await settled();
  t.equal(harness.spool.reading.unsynced, 0);
  for (let probe = 0; probe < 3; probe++) {
    t.notOk(harness.spool.health.ok);
    await harness.pass(1000);
  }
  t.ok(harness.spool.health.ok);
});

t.test('too little free space and too large a backlog', async (t) => {
  const harness = await SpoolHarness.start({ maxBacklogBytes: 2000, segmentBytes: 1000 });
  harness.disk.freeBytes = 999;
  await harness.pass(1000);
  t.strictSame(harness.spool.health, { ok: false, why: 'space' });
  harness.disk.freeBytes = 1000;
  await harness.pass(3000);
  await harness.pass(1000);
  await harness.pass(1000);
  t.ok(harness.spool.health.ok);

  for (let i = 0; i < 8; i++) {
    open(harness, `n${i}`);
    void close(harness, `n${i}`);
    await harness.pass(5);
  }
  t.ok(harness.spool.reading.bytes > 2000);
  await harness.pass(1000);
  t.strictSame(harness.spool.health, { ok: false, why: 'backlog' });
  await harness.spool.prune(harness.spool.position);
  t.ok(harness.spool.reading.bytes <= 2000);
  for (let probe = 0; probe < 3; probe++) await harness.pass(1000);
  t.ok(harness.spool.health.ok);
});

t.test('a spool that starts on a full disk is unhealthy before its first request', async (t) => {
  const harness = await SpoolHarness.start();
  await harness.spool.close();
  harness.disk.freeBytes = 0;
  await harness.open();
  t.strictSame(harness.spool.health, { ok: false, why: 'space' });
});

t.test('unreadable free space counts as a failing disk', async (t) => {
  const harness = await SpoolHarness.start();
  harness.disk.fail = (call) => (call === 'free' ? systemError('EIO') : undefined);
  await harness.pass(1000);
  t.strictSame(harness.spool.health, { ok: false, why: 'write' });
});

t.test('a close waits for the disk as long as configured, and is written afterwards', async (t) => {
  const harness = await SpoolHarness.start();
  harness.disk.fail = (call) => (call === 'write' ? systemError('ENOSPC') : undefined);
  open(harness, 'a');
  const closed = close(harness, 'a');
  await harness.pass(9999);
  t.notOk(await isSettled(closed));
  await harness.pass(1);
  t.ok(await isSettled(closed));
  t.strictSame(harness.overdue, ['a']);
  harness.disk.fail = () => undefined;
  await harness.pass(1000);
  t.strictSame(await harness.durable(), ['a:open', 'a:close']);
});

t.test('if too many records wait only progress is dropped', async (t) => {
  const harness = await SpoolHarness.start();
  harness.disk.fail = (call) => (call === 'write' ? systemError('ENOSPC') : undefined);
  for (let i = 0; i < MAX_UNSYNCED_WITH_PROGRESS; i++) harness.spool.append(usageRecord('a', 'progress'));
  harness.spool.append(usageRecord('a', 'progress'));
  open(harness, 'b');
  harness.spool.append(usageRecord('a', 'close'));
  t.equal(harness.dropped, 1);
  t.equal(harness.spool.reading.unsynced, MAX_UNSYNCED_WITH_PROGRESS + 2);
});

t.test('prune keeps what a running request or a reader needs', async (t) => {
  const harness = await SpoolHarness.start({ segmentBytes: 1 });
  open(harness, 'a');
  await harness.pass(5);
  open(harness, 'b');
  await harness.pass(5);
  const upTo = harness.spool.position;
  void close(harness, 'b');
  await harness.pass(5);
  t.strictSame(await listSegments(DIR, harness.disk), [1, 2, 3]);
  t.equal(await harness.spool.prune(harness.spool.position), 1);
  t.strictSame(await listSegments(DIR, harness.disk), [1, 2, 3], 'a has no close');
  void close(harness, 'a');
  await harness.pass(5);
  t.equal(await harness.spool.prune(upTo), 2);
  t.strictSame(await listSegments(DIR, harness.disk), [2, 3, 4]);
  t.strictSame((await readAll(DIR, { disk: harness.disk, from: START })).records.length, 3);
  await harness.spool.prune({ segment: 99, offset: 0 });
  t.strictSame(await listSegments(DIR, harness.disk), [4], 'the newest stays, so that no number is used twice');
  harness.disk.fail = (call) => (call === 'remove' ? systemError('EIO') : undefined);
  open(harness, 'c');
  await harness.pass(5);
  await t.rejects(harness.spool.prune(harness.spool.position), { code: 'EIO' });
});

t.test('close() writes what is left and marks the end', async (t) => {
  const harness = await SpoolHarness.start();
  open(harness, 'a');
  const record = usageRecord('a', 'close');
  harness.spool.append(record);
  t.equal(await harness.spool.close(), 0);
  t.equal(await harness.spool.close(), 0, 'twice');
  t.equal(harness.clock.pending, 0, 'no timer is left');
  await harness.open();
  t.match(harness.recovered, { ended: true, cutBytes: 0, quarantined: [], estimated: [] });
  t.strictSame(await harness.left(), ['a:open', 'a:close']);
  await harness.spool.close();
  t.strictSame(await listSegments(DIR, harness.disk), [1], 'nothing to write, no new segment');
});

t.test('close() on a failing or hanging disk takes no longer than its bound', async (t) => {
  const harness = await SpoolHarness.start();
  harness.disk.fail = (call) => (call === 'write' ? systemError('EIO') : undefined);
  open(harness, 'a', 'b');
  t.equal(await harness.spool.close(), 2);
  await harness.open();
  harness.disk.fail = () => undefined;
  harness.disk.wait = (call) => (call === 'sync' ? new Promise(() => undefined) : undefined);
  open(harness, 'c');
  const closed = harness.spool.close();
  await harness.pass(9999);
  t.notOk(await isSettled(closed));
  await harness.pass(1);
  t.equal(await closed, 1);
});

/** Appends a closing record, which is then replaced before it is durable. */
function appendClose(
  harness: SpoolHarness,
  id: string,
): { close: UsageRecord; cancelled: UsageRecord; synced: Promise<boolean> } {
  const close = usageRecord(id, 'close');
  harness.spool.append(close);
  return { close, cancelled: { ...close, outcome: 'cancelled' }, synced: harness.spool.sync(close) };
}

async function outcomes(harness: SpoolHarness): Promise<string[]> {
  t.strictSame((await verify(DIR, true, harness.disk)).findings, []);
  const { records } = await readAll(DIR, { disk: harness.disk, until: harness.spool.position });
  return records.map(({ id, outcome }) => `${id}:${outcome}`);
}

t.test('a close is replaced before it is written, while it is written, and not after', async (t) => {
  const harness = await SpoolHarness.start();
  const first = appendClose(harness, 'a');
  t.ok(harness.spool.revise(first.close, first.cancelled));
  await first.synced;
  t.notOk(harness.spool.revise(first.cancelled, first.close), 'a durable record stays');
  t.strictSame(await outcomes(harness), ['a:cancelled']);

  let go = (): void => undefined;
  harness.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  const [b, c, d] = [appendClose(harness, 'b'), appendClose(harness, 'c'), appendClose(harness, 'd')];
  const before = harness.spool.position;
  await settled();
  t.ok(harness.spool.revise(b.close, b.cancelled));
  go();
  await settled();
  t.strictSame(harness.spool.position, before, 'nothing of the group counts');
  t.ok(harness.spool.revise(d.close, d.cancelled), 'while it is written again');
  go();
  await settled();
  go();
  await Promise.all([b.synced, c.synced, d.synced]);
  t.strictSame(await outcomes(harness), ['a:cancelled', 'b:cancelled', 'c:done', 'd:cancelled']);
  harness.disk.wait = () => undefined;

  const e = appendClose(harness, 'e');
  const shorter = { ...e.close, requestId: 'r' };
  harness.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  await settled();
  t.ok(harness.spool.revise(e.close, shorter), 'a shorter record leaves no bytes of the longer one');
  go();
  harness.disk.wait = () => undefined;
  await e.synced;
  t.match((await readAll(DIR, { disk: harness.disk, until: harness.spool.position })).records.at(-1), {
    requestId: 'r',
  });
  t.strictSame(await harness.spool.close(), 0);
  t.strictSame((await verify(DIR, false, harness.disk)).findings, []);
});

t.test('a close is replaced while the folder of a new segment is synced, and while the disk fails', async (t) => {
  const harness = await SpoolHarness.start();
  let go = (): void => undefined;
  harness.disk.wait = (call) => (call === 'syncDir' ? new Promise((resolve) => (go = resolve)) : undefined);
  const a = appendClose(harness, 'a');
  await settled();
  t.ok(harness.spool.revise(a.close, a.cancelled));
  harness.disk.wait = () => undefined;
  go();
  await a.synced;
  t.strictSame(await outcomes(harness), ['a:cancelled']);

  harness.disk.fail = (call) => (call === 'sync' ? systemError('EIO') : undefined);
  const b = appendClose(harness, 'b');
  await settled();
  t.ok(harness.spool.revise(b.close, b.cancelled));
  harness.disk.fail = () => undefined;
  await harness.pass(1000);
  await b.synced;
  t.strictSame(await outcomes(harness), ['a:cancelled', 'b:cancelled']);
});
