import t from 'tap';
import { encode, encodeMark, segmentPath } from '../../../sidecar/usage/spool-format.js';
import { systemError } from '../../support/fake-disk.js';
import { DIR, settled, SpoolHarness } from '../../support/spool-harness.js';
import { readAll, usageRecord } from '../../support/usage-records.js';

const FIRST = segmentPath(DIR, 1);
const HEAD = encodeMark({ kind: 'head', after: null });

/** A harness whose disk has `bytes` as its first segment, and the spool that was opened on it. */
async function startOn(...bytes: readonly Buffer[]): Promise<SpoolHarness> {
  const harness = await SpoolHarness.start();
  await harness.spool.close();
  harness.disk.put(FIRST, Buffer.concat([HEAD, ...bytes]));
  await harness.open();
  return harness;
}

t.test('a torn end is cut off, wherever it is torn', async (t) => {
  const whole = encode(usageRecord('a', 'close'));
  const torn = encode(usageRecord('b', 'open'));
  for (let bytes = 1; bytes < torn.length; bytes++) {
    const harness = await startOn(whole, torn.subarray(0, bytes));
    t.match(harness.recovered, { cutBytes: bytes, quarantined: [], estimated: [] }, `${bytes} bytes`);
    t.equal(harness.disk.content(FIRST).length, HEAD.length + whole.length);
  }
  const zeros = await startOn(whole, Buffer.alloc(5000));
  t.match(zeros.recovered, { cutBytes: 5000, quarantined: [] }, 'blocks that were never written');
});

t.test('a damaged record in the middle is quarantined and reported once', async (t) => {
  const bad = encode(usageRecord('b', 'close'));
  bad[40] = 0x7e;
  const harness = await startOn(encode(usageRecord('a', 'close')), bad, encode(usageRecord('c', 'close')));
  const offset = HEAD.length + encode(usageRecord('a', 'close')).length;
  const file = `${DIR}/quarantine/${'1'.padStart(20, '0')}-${offset}.bad`;
  const place = { segment: 1, offset, bytes: bad.length, file };
  t.strictSame(harness.recovered.quarantined, [{ ...place, known: false }]);
  t.strictSame(harness.disk.content(file), bad);
  t.strictSame(await harness.left(), ['a:close', 'c:close']);
  await harness.spool.close();
  await harness.open();
  t.strictSame(harness.recovered.quarantined, [{ ...place, known: true }]);
});

t.test('damage that cannot be copied, on a full disk, is reported and left in place', async (t) => {
  const harness = await startOn(encode(usageRecord('a', 'close')));
  await harness.spool.close();
  harness.disk.put(FIRST, Buffer.concat([HEAD, Buffer.from('x\n'.repeat(10))]));
  harness.disk.fail = (call, name) => (call === 'write' && name.endsWith('.bad') ? systemError('ENOSPC') : undefined);
  await harness.open();
  t.match(harness.recovered.quarantined, [{ bytes: 20, file: undefined, known: false }]);
  await harness.spool.close();
  harness.disk.fail = () => undefined;
  await harness.open();
  t.match(harness.recovered.quarantined, [{ bytes: 20, known: false, file: /bad$/ }], 'the next start copies it');
});

/** Damages the close of `a` in the spool, as a failing disk might. */
function damageCloseOf(harness: SpoolHarness, id: string): void {
  for (const [path, { bytes }] of harness.disk.files) {
    const at = bytes.indexOf(`"id":"${id}","requestId":"r-${id}","kind":"close"`);
    if (at < 0) continue;
    const damaged = Buffer.from(bytes);
    damaged[at + 1] = 0x7e;
    harness.disk.put(path, damaged);
    return;
  }
  throw new Error(`no close of ${id}`);
}

t.test('a close damaged after the spool was closed is reported, and no second one is made', async (t) => {
  const harness = await SpoolHarness.start();
  for (const kind of ['open', 'close'] as const) harness.spool.append(usageRecord('a', kind));
  await harness.spool.close();
  damageCloseOf(harness, 'a');
  for (const start of ['first', 'second']) {
    await harness.open();
    t.match(harness.recovered, { closesLost: 1, estimated: [] }, `${start} start`);
    t.equal(harness.recovered.open.size, 0, 'its segment can be pruned');
    await harness.spool.close();
  }
});

t.test('a close damaged while the spool is in use gets no second one after an unclean end', async (t) => {
  const harness = await SpoolHarness.start();
  for (const kind of ['open', 'close'] as const) harness.spool.append(usageRecord('a', kind));
  harness.spool.append(usageRecord('b', 'open'));
  await harness.pass(5);
  harness.disk.crash(() => Buffer.alloc(0));
  damageCloseOf(harness, 'a');
  await harness.open();
  t.match(harness.recovered, { closesLost: 1, estimated: [{ id: 'b' }] });
  t.equal(harness.recovered.estimated.length, 1);
});

t.test('a close damaged after a start is reported, also after an unclean end', async (t) => {
  const harness = await SpoolHarness.start();
  harness.spool.append(usageRecord('a', 'open'));
  for (const kind of ['open', 'close'] as const) harness.spool.append(usageRecord('b', kind));
  await harness.pass(5);
  harness.disk.crash(() => Buffer.alloc(0));
  await harness.open();
  t.match(harness.recovered, { closesLost: 0, estimated: [{ id: 'a' }] });
  harness.spool.append(usageRecord('c', 'open'));
  await harness.pass(5);
  t.strictSame(await harness.durable(), ['a:open', 'b:open', 'b:close', 'a:close', 'c:open']);
  harness.disk.crash(() => Buffer.alloc(0));
  damageCloseOf(harness, 'a');
  damageCloseOf(harness, 'b');
  await harness.open();
  t.match(harness.recovered, { closesLost: 2, estimated: [{ id: 'c' }] }, 'of this process, not of the previous one');
});

t.test('the mark of a recovery waits for its closes, and no running request is before an end', async (t) => {
  const harness = await SpoolHarness.start();
  harness.spool.append(usageRecord('a', 'open'));
  await harness.pass(5);
  harness.disk.crash(() => Buffer.alloc(0));
  await harness.open();
  harness.spool.append(usageRecord('b', 'open'));
  harness.disk.fail = (call) => (call === 'sync' ? systemError('EIO') : undefined);
  await harness.pass(5);
  harness.disk.crash((unsynced) => unsynced);
  harness.disk.fail = () => undefined;
  await harness.open();
  t.match(harness.recovered, { closesLost: 0 });
  t.notOk(
    [...harness.disk.files.values()].some(({ bytes }) => bytes.includes('"recovered"')),
    'not marked yet',
  );
  harness.spool.append(usageRecord('c', 'open'));
  await harness.pass(5);
  await harness.spool.close();
  await harness.open();
  t.match(harness.recovered, { closesLost: 0, estimated: [{ id: 'c' }] }, 'closed while c ran');
});

t.test('a request without a close is billed at its last progress, once', async (t) => {
  const price = { version: '2026-10-03.4', picodollars: '42000' };
  const progress = usageRecord('a', 'progress', { completionTokens: 256, at: '2026-10-03T00:00:07.000Z', price });
  const harness = await startOn(
    encode(usageRecord('a', 'open')),
    encode(usageRecord('b', 'open')),
    encode(usageRecord('c', 'open')),
    encode(progress),
    encode(usageRecord('c', 'close')),
  );
  await harness.pass(5);
  const { records } = await readAll(DIR, { disk: harness.disk, until: harness.spool.position });
  t.strictSame(records.slice(-2), [
    { ...progress, kind: 'close', outcome: 'failed', estimated: true },
    { ...usageRecord('b', 'open'), kind: 'close', outcome: 'failed', estimated: true },
  ]);
  await harness.spool.close();
  await harness.open();
  t.strictSame(harness.recovered.estimated, [], 'a second start finds it closed');
});

t.test('a progress record whose open record is damaged is billed', async (t) => {
  const harness = await startOn(Buffer.from('rubbish\n'), encode(usageRecord('a', 'progress')));
  t.match(harness.recovered.estimated, [{ id: 'a', completionTokens: 34 }]);
});

t.test('segments of a request that recovery closed are kept until its close is durable', async (t) => {
  const harness = await startOn(encode(usageRecord('a', 'open')));
  harness.disk.wait = (call) => (call === 'sync' ? new Promise(() => undefined) : undefined);
  await harness.pass(5);
  await harness.spool.prune({ segment: 99, offset: 0 });
  t.ok(harness.disk.files.has(FIRST));
});

t.test('what a killed process left in the page cache is synced before it counts', async (t) => {
  const harness = await SpoolHarness.start();
  harness.disk.wait = (call) => (call === 'sync' ? new Promise(() => undefined) : undefined);
  harness.spool.append(usageRecord('a', 'close'));
  await harness.pass(5);
  // The process has ended; the machine has not.
  harness.disk.wait = () => undefined;
  await harness.open();
  t.match(harness.recovered, { estimated: [], position: { segment: 1 } });
  harness.disk.crash(
    () => Buffer.alloc(0),
    () => false,
  );
  await harness.open();
  t.strictSame(await harness.left(), ['a:close']);
});

t.test('an unreadable disk prevents the start, and the lock is released', async (t) => {
  const harness = await startOn(encode(usageRecord('a', 'open')), Buffer.from('torn'));
  await harness.spool.close();
  for (const failing of ['list', 'open', 'size', 'read'] as const) {
    harness.disk.fail = (call) => (call === failing ? systemError('EIO') : undefined);
    await t.rejects(harness.open(), { code: 'EIO' }, failing);
  }
  harness.disk.fail = () => undefined;
  await harness.open();
  await settled();
  t.strictSame(harness.recovered.estimated, []);
});
