/** A closing record is replaced before it is durable. */
import t from 'tap';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { verify } from '../../../sidecar/usage/verify.js';
import { systemError } from '../../support/fake-disk.js';
import { DIR, settled, SpoolWorld } from '../../support/spool-harness.js';
import { readAll, usageRecord } from '../../support/usage-records.js';

function append(world: SpoolWorld, id: string): { close: UsageRecord; cancelled: UsageRecord; synced: Promise<void> } {
  const close = usageRecord(id, 'close');
  world.spool.append(close);
  return { close, cancelled: { ...close, outcome: 'cancelled' }, synced: world.spool.sync(close) };
}

async function outcomes(world: SpoolWorld): Promise<string[]> {
  t.strictSame((await verify(DIR, true, world.disk)).findings, []);
  const { records } = await readAll(DIR, { disk: world.disk, until: world.spool.position });
  return records.map(({ id, outcome }) => `${id}:${outcome}`);
}

t.test('before it is written, while it is written, and after', async (t) => {
  const world = await SpoolWorld.start();
  const first = append(world, 'a');
  t.ok(world.spool.revise(first.close, first.cancelled));
  await first.synced;
  t.notOk(world.spool.revise(first.cancelled, first.close), 'what is durable stays');
  t.strictSame(await outcomes(world), ['a:cancelled']);

  let go = (): void => undefined;
  world.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  const [b, c, d] = [append(world, 'b'), append(world, 'c'), append(world, 'd')];
  const before = world.spool.position;
  await settled();
  t.ok(world.spool.revise(b.close, b.cancelled));
  go();
  await settled();
  t.strictSame(world.spool.position, before, 'nothing of the group counts');
  t.ok(world.spool.revise(d.close, d.cancelled), 'while it is written again');
  go();
  await settled();
  go();
  await Promise.all([b.synced, c.synced, d.synced]);
  t.strictSame(await outcomes(world), ['a:cancelled', 'b:cancelled', 'c:done', 'd:cancelled']);
  world.disk.wait = () => undefined;

  const e = append(world, 'e');
  const shorter = { ...e.close, requestId: 'r' };
  world.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  await settled();
  t.ok(world.spool.revise(e.close, shorter), 'a shorter record leaves no rest behind');
  go();
  world.disk.wait = () => undefined;
  await e.synced;
  t.match((await readAll(DIR, { disk: world.disk, until: world.spool.position })).records.at(-1), { requestId: 'r' });
  t.strictSame(await world.spool.close(), 0);
  t.strictSame((await verify(DIR, false, world.disk)).findings, []);
});

t.test('while the folder of a new segment is synced, and while the disk fails', async (t) => {
  const world = await SpoolWorld.start();
  let go = (): void => undefined;
  world.disk.wait = (call) => (call === 'syncDir' ? new Promise((resolve) => (go = resolve)) : undefined);
  const a = append(world, 'a');
  await settled();
  t.ok(world.spool.revise(a.close, a.cancelled));
  world.disk.wait = () => undefined;
  go();
  await a.synced;
  t.strictSame(await outcomes(world), ['a:cancelled']);

  world.disk.fail = (call) => (call === 'sync' ? systemError('EIO') : undefined);
  const b = append(world, 'b');
  await settled();
  t.ok(world.spool.revise(b.close, b.cancelled));
  world.disk.fail = () => undefined;
  await world.pass(1000);
  await b.synced;
  t.strictSame(await outcomes(world), ['a:cancelled', 'b:cancelled']);
});
