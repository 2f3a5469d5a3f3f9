/** Files of a spool that are removed, renamed or replaced by another program. */
import t from 'tap';
import { verify } from '../../../sidecar/usage/reader.js';
import { segmentPath } from '../../../sidecar/usage/spool-format.js';
import { systemError } from '../../support/fake-disk.js';
import { DIR, settled, SpoolHarness } from '../../support/spool-harness.js';
import { usageRecord } from '../../support/usage-records.js';

const FIRST = segmentPath(DIR, 1);

/** A request from its open record to its durable close. */
async function request(harness: SpoolHarness, id: string): Promise<void> {
  harness.spool.append(usageRecord(id, 'open'));
  const close = usageRecord(id, 'close');
  harness.spool.append(close);
  await harness.spool.sync(close);
}

function shorts(...ids: readonly string[]): string[] {
  return ids.flatMap((id) => [`${id}:open`, `${id}:close`]);
}

/** Ends the spool, and reads what it left as a next start would. */
async function ended(harness: SpoolHarness): Promise<{ lost: number; records: string[]; findings: readonly object[] }> {
  const lost = await harness.spool.close();
  const { findings } = await verify(DIR, false, harness.disk);
  return { lost, records: await harness.left(), findings };
}

t.test('the open segment is removed: noticed by the next probe, written again, nothing is lost', async (t) => {
  const harness = await SpoolHarness.start();
  await request(harness, 'a');
  await harness.pass(1000);
  const before = harness.spool.position;
  const content = harness.disk.content(FIRST);
  harness.disk.files.delete(FIRST);
  await request(harness, 'b');
  t.strictSame(harness.spool.health, { ok: true }, 'a caller is answered before the removal can be noticed');

  await harness.pass(1000);
  t.strictSame(harness.spool.health, { ok: false, why: 'removed' });
  t.match(harness.removed, [{ what: 'segment', segment: 1, outcome: 'restored', records: 2 }]);
  t.ok(harness.disk.content(FIRST).subarray(0, content.length).equals(content), 'positions are what they were');
  t.match(before, { segment: 1, offset: content.length });

  await request(harness, 'c');
  t.match(harness.spool.position, { segment: 2 }, 'a copied file is not appended to');
  for (const ok of [false, false, true]) {
    await harness.pass(1000);
    t.equal(harness.spool.health.ok, ok);
  }
  t.equal(harness.removed.length, 1);
  t.strictSame(await ended(harness), { lost: 0, records: shorts('a', 'b', 'c'), findings: [] });
});

t.test('a segment that is full before the next probe is written again before the next one begins', async (t) => {
  const harness = await SpoolHarness.start({ segmentBytes: 2000 });
  await request(harness, 'a');
  harness.disk.files.delete(FIRST);
  const ids = ['b', 'c', 'd', 'e', 'f', 'g', 'h'];
  for (const id of ids) await request(harness, id);
  t.ok(harness.spool.position.segment > 1);
  t.match(harness.removed, [{ segment: 1, outcome: 'restored' }]);
  t.strictSame(harness.spool.health, { ok: false, why: 'removed' });
  t.strictSame(await ended(harness), { lost: 0, records: shorts('a', ...ids), findings: [] });
});

t.test('a spool that is closed before the next probe is complete too', async (t) => {
  const harness = await SpoolHarness.start();
  await request(harness, 'a');
  harness.disk.files.delete(FIRST);
  t.strictSame(await ended(harness), { lost: 0, records: shorts('a'), findings: [] });

  const running = await SpoolHarness.start();
  running.spool.append(usageRecord('a', 'open'));
  await running.pass(5);
  running.disk.files.delete(FIRST);
  t.strictSame(await running.spool.close(), 0);
  t.strictSame(await running.left(), ['a:open'], 'also with a running request, which the next start closes');
});

t.test('a file with the name of the open segment is moved aside', async (t) => {
  const harness = await SpoolHarness.start();
  await request(harness, 'a');
  harness.disk.files.delete(FIRST);
  harness.disk.put(FIRST, Buffer.from('from a backup'));
  await harness.pass(1000);
  t.match(harness.removed, [{ segment: 1, outcome: 'restored' }]);
  const kept = `${DIR}/quarantine/00000000000000000001.seg.replaced`;
  t.equal(harness.disk.content(kept).toString(), 'from a backup');
  t.strictSame(await ended(harness), { lost: 0, records: shorts('a'), findings: [] });
});

t.test('while it cannot be written again nothing is acknowledged, and nothing is lost', async (t) => {
  const harness = await SpoolHarness.start();
  await request(harness, 'a');
  harness.disk.files.delete(FIRST);
  harness.disk.fail = (call, name) =>
    call === 'write' && name.endsWith('.restored') ? systemError('ENOSPC') : undefined;
  await harness.pass(1000);
  t.match(harness.removed, [{ segment: 1, outcome: 'pending' }]);
  t.strictSame(harness.spool.health, { ok: false, why: 'removed' });

  let answered = false;
  void request(harness, 'b').then(() => (answered = true));
  for (let probe = 0; probe < 4; probe++) {
    await harness.pass(1000);
    t.notOk(harness.spool.health.ok);
  }
  t.notOk(answered);
  harness.disk.fail = () => undefined;
  await harness.pass(1000);
  t.ok(answered);
  t.match(harness.removed, [
    { outcome: 'pending', known: false },
    { outcome: 'restored', known: true },
  ]);
  t.strictSame(await ended(harness), { lost: 0, records: shorts('a', 'b'), findings: [] });
});

for (const [when, kept] of [
  ['to nothing', 0],
  ['in the middle of a line', 300],
] as const) {
  for (const writtenOn of [false, true])
    t.test(`the open segment is cut ${when}, ${writtenOn ? 'and appended to' : 'and left'}: noticed`, async (t) => {
      const harness = await SpoolHarness.start();
      await request(harness, 'a');
      await harness.pass(1000);
      await request(harness, 'b');
      await harness.pass(1000);
      t.strictSame(harness.removed, []);
      const file = harness.disk.files.get(FIRST);
      if (!file) throw new Error('there is no segment');
      const { length } = file.bytes;
      file.bytes = Buffer.from(file.bytes.subarray(0, kept));
      if (writtenOn) {
        await request(harness, 'c');
        t.ok(harness.disk.content(FIRST).length > length, 'it has its length again');
      }
      await harness.pass(1000);
      t.strictSame(harness.spool.health, { ok: false, why: 'removed' });
      t.match(harness.removed, [{ what: 'segment', segment: 1, outcome: 'cut' }]);
      await request(harness, 'd');
      t.match(harness.spool.position, { segment: 2 }, 'it is written no more');
      for (const ok of [false, false, true]) {
        await harness.pass(1000);
        t.equal(harness.spool.health.ok, ok);
      }
      t.equal(harness.removed.length, 1, 'once');
      const { findings } = await ended(harness);
      t.not(findings.length, 0, '`usage verify` shows it');
    });
}

t.test('a closed segment that is removed is lost, and reported once; a pruned one is not', async (t) => {
  const harness = await SpoolHarness.start({ segmentBytes: 500 });
  for (const id of ['a', 'b', 'c', 'd']) await request(harness, id);
  t.ok(harness.spool.position.segment >= 3);
  await harness.spool.prune({ segment: 2, offset: 0 });
  await harness.pass(1000);
  t.strictSame(harness.removed, []);
  const bytes = harness.disk.content(segmentPath(DIR, 2)).length;
  const all = harness.spool.reading.bytes;
  harness.disk.files.delete(segmentPath(DIR, 2));
  await harness.pass(1000);
  t.match(harness.removed, [{ segment: 2, bytes, outcome: 'lost' }]);
  t.equal(harness.spool.reading.bytes, all - bytes);
  t.strictSame(harness.spool.health, { ok: false, why: 'removed' });
  await harness.pass(3000);
  t.equal(harness.removed.length, 1);
});

t.test('a closed segment that is truncated is reported once', async (t) => {
  const harness = await SpoolHarness.start({ segmentBytes: 500 });
  for (const id of ['a', 'b', 'c', 'd']) await request(harness, id);
  t.ok(harness.spool.position.segment >= 3);
  await harness.pass(1000);
  t.strictSame(harness.removed, []);
  const file = harness.disk.files.get(segmentPath(DIR, 2));
  if (!file) throw new Error('there is no segment');
  const bytes = file.bytes.length;
  const all = harness.spool.reading.bytes;
  file.bytes = file.bytes.subarray(0, bytes - 1);
  await harness.pass(1000);
  t.match(harness.removed, [{ segment: 2, bytes, outcome: 'cut' }]);
  t.equal(harness.spool.reading.bytes, all - 1);
  t.strictSame(harness.spool.health, { ok: false, why: 'removed' });
  await harness.pass(3000);
  t.equal(harness.removed.length, 1);
  t.not((await ended(harness)).findings.length, 0, '`usage verify` shows it');
});

t.test('pruning is no removal', async (t) => {
  const harness = await SpoolHarness.start({ segmentBytes: 500 });
  for (const id of ['a', 'b', 'c', 'd', 'e', 'f']) await request(harness, id);
  t.ok(harness.spool.position.segment > 4);
  let go = (): void => undefined;
  harness.disk.wait = (call) => (call === 'syncDir' ? new Promise((resolve) => (go = resolve)) : undefined);
  const pruned = harness.spool.prune({ segment: 3, offset: 0 });
  await harness.pass(1000);
  t.strictSame(harness.removed, []);
  go();
  await pruned;
  harness.disk.wait = () => undefined;
  harness.disk.fail = (call) => (call === 'remove' ? systemError('EIO') : undefined);
  const { bytes } = harness.spool.reading;
  await t.rejects(harness.spool.prune({ segment: 4, offset: 0 }));
  t.equal(harness.spool.reading.bytes, bytes);
  harness.disk.fail = () => undefined;
  await harness.pass(1000);
  t.strictSame(harness.removed, [], 'nor is a prune that failed');
});

t.test('removed during a write: noticed after it', async (t) => {
  const harness = await SpoolHarness.start();
  await request(harness, 'a');
  let go = (): void => undefined;
  harness.disk.wait = (call) => (call === 'sync' ? new Promise((resolve) => (go = resolve)) : undefined);
  const b = request(harness, 'b');
  await settled();
  harness.disk.files.delete(FIRST);
  await harness.pass(1000);
  t.strictSame(harness.removed, []);
  harness.disk.wait = () => undefined;
  go();
  await b;
  await settled();
  t.match(harness.removed, [{ segment: 1, outcome: 'restored' }]);
  t.strictSame(harness.spool.health, { ok: false, why: 'removed' });
  t.strictSame(await ended(harness), { lost: 0, records: shorts('a', 'b'), findings: [] });
});

t.test('a removed lock is reported; while another process has it new requests are refused', async (t) => {
  const harness = await SpoolHarness.start();
  harness.lock = { kind: 'restored' };
  await harness.pass(1000);
  harness.lock = { kind: 'kept' };
  t.match(harness.removed, [{ what: 'lock' }]);
  t.strictSame(harness.spool.health, { ok: false, why: 'removed' });
  await harness.pass(1000);
  await harness.pass(1000);
  await harness.pass(1000);
  t.strictSame(harness.spool.health, { ok: true });

  harness.lock = { kind: 'held', pid: 4711 };
  await harness.pass(1000);
  await harness.pass(1000);
  t.strictSame(harness.taken, [4711, 4711]);
  t.strictSame(harness.spool.health, { ok: false, why: 'taken' });
  await request(harness, 'a');
  t.strictSame(await harness.durable(), shorts('a'), 'running requests are recorded');
  await harness.spool.close();
});
