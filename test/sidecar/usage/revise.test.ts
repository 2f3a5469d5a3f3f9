/** A closing record is replaced before it is durable. */
import t from 'tap';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { verify } from '../../../sidecar/usage/verify.js';
import { systemError } from '../../support/fake-disk.js';
import { DIR, settled, SpoolHarness } from '../../support/spool-harness.js';
import { readAll, usageRecord } from '../../support/usage-records.js';

function append(
  harness: SpoolHarness,
  id: string,
): { close: UsageRecord; cancelled: UsageRecord; synced: Promise<void> } {
  const close = usageRecord(id, 'close');
  harness.spool.append(close);
  return { close, cancelled: { ...close, outcome: 'cancelled' }, synced: harness.spool.sync(close) };
}

async function outcomes(harness: SpoolHarness): Promise<string[]> {
  t.strictSame((await verify(DIR, true, harness.disk)).findings, []);
  const { records } = await readAll(DIR, { disk: harness.disk, until: harness.spool.position });
  return records.map(({ id, outcome }) => `${id}:${outcome}`);
}

t.test('before it is written, while it is written, and after', async (t) => {
  const harness = await SpoolHarness.start();
  const first = append(harness, 'a');
  t.ok(harness.spool.revise(first.close, first.cancelled));
  await first.synced;
  t.notOk(harness.spool.revise(first.cancelled, first.close), 'a durable record stays');
  t.strictSame(await outcomes(harness), ['a:cancelled']);

  let go = (): void => undefined;
  harness.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  const [b, c, d] = [append(harness, 'b'), append(harness, 'c'), append(harness, 'd')];
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

  const e = append(harness, 'e');
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

t.test('while the folder of a new segment is synced, and while the disk fails', async (t) => {
  const harness = await SpoolHarness.start();
  let go = (): void => undefined;
  harness.disk.wait = (call) => (call === 'syncDir' ? new Promise((resolve) => (go = resolve)) : undefined);
  const a = append(harness, 'a');
  await settled();
  t.ok(harness.spool.revise(a.close, a.cancelled));
  harness.disk.wait = () => undefined;
  go();
  await a.synced;
  t.strictSame(await outcomes(harness), ['a:cancelled']);

  harness.disk.fail = (call) => (call === 'sync' ? systemError('EIO') : undefined);
  const b = append(harness, 'b');
  await settled();
  t.ok(harness.spool.revise(b.close, b.cancelled));
  harness.disk.fail = () => undefined;
  await harness.pass(1000);
  await b.synced;
  t.strictSame(await outcomes(harness), ['a:cancelled', 'b:cancelled']);
});
