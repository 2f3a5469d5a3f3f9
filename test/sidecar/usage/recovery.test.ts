import t from 'tap';
import { encode, encodeMark } from '../../../sidecar/usage/frame.js';
import { segmentPath } from '../../../sidecar/usage/segments.js';
import { systemError } from '../../support/fake-disk.js';
import { DIR, settled, SpoolWorld } from '../../support/spool-harness.js';
import { readAll, usageRecord } from '../../support/usage-records.js';

const FIRST = segmentPath(DIR, 1);
const HEAD = encodeMark({ kind: 'head', after: null });

/** A world whose disk holds `bytes` as its first segment, and the spool that was opened on it. */
async function startOn(...bytes: readonly Buffer[]): Promise<SpoolWorld> {
  const world = await SpoolWorld.start();
  await world.spool.close();
  world.disk.put(FIRST, Buffer.concat([HEAD, ...bytes]));
  await world.open();
  return world;
}

t.test('a torn tail is cut, wherever it is torn', async (t) => {
  const whole = encode(usageRecord('a', 'close'));
  const torn = encode(usageRecord('b', 'open'));
  for (let bytes = 1; bytes < torn.length; bytes++) {
    const world = await startOn(whole, torn.subarray(0, bytes));
    t.match(world.recovered, { cutBytes: bytes, quarantined: [], estimated: [] }, `${bytes} bytes`);
    t.equal(world.disk.content(FIRST).length, HEAD.length + whole.length);
  }
  const zeros = await startOn(whole, Buffer.alloc(5000));
  t.match(zeros.recovered, { cutBytes: 5000, quarantined: [] }, 'blocks that were never written');
});

t.test('a bad record in the middle is put aside and told once', async (t) => {
  const bad = encode(usageRecord('b', 'close'));
  bad[40] = 0x7e;
  const world = await startOn(encode(usageRecord('a', 'close')), bad, encode(usageRecord('c', 'close')));
  const offset = HEAD.length + encode(usageRecord('a', 'close')).length;
  const file = `${DIR}/quarantine/${'1'.padStart(20, '0')}-${offset}.bad`;
  const place = { segment: 1, offset, bytes: bad.length, file };
  t.strictSame(world.recovered.quarantined, [{ ...place, known: false }]);
  t.strictSame(world.disk.content(file), bad);
  t.strictSame(await world.left(), ['a:close', 'c:close']);
  await world.spool.close();
  await world.open();
  t.strictSame(world.recovered.quarantined, [{ ...place, known: true }]);
});

t.test('damage that cannot be copied, on a full disk, is told and left where it is', async (t) => {
  const world = await startOn(encode(usageRecord('a', 'close')));
  await world.spool.close();
  world.disk.put(FIRST, Buffer.concat([HEAD, Buffer.from('x\n'.repeat(10))]));
  world.disk.fail = (call, name) => (call === 'write' && name.endsWith('.bad') ? systemError('ENOSPC') : undefined);
  await world.open();
  t.match(world.recovered.quarantined, [{ bytes: 20, file: undefined, known: false }]);
  await world.spool.close();
  world.disk.fail = () => undefined;
  await world.open();
  t.match(world.recovered.quarantined, [{ bytes: 20, known: false, file: /bad$/ }], 'the next start does it');
});

/** Damages the close of `a` that the spool holds, as a disk that rots does. */
function damageCloseOf(world: SpoolWorld, id: string): void {
  for (const [path, { bytes }] of world.disk.files) {
    const at = bytes.indexOf(`"id":"${id}","requestId":"r-${id}","kind":"close"`);
    if (at < 0) continue;
    const damaged = Buffer.from(bytes);
    damaged[at + 1] = 0x7e;
    world.disk.put(path, damaged);
    return;
  }
  throw new Error(`no close of ${id}`);
}

t.test('a close that goes bad after the spool was closed is told, and no second one is made', async (t) => {
  const world = await SpoolWorld.start();
  for (const kind of ['open', 'close'] as const) world.spool.append(usageRecord('a', kind));
  await world.spool.close();
  damageCloseOf(world, 'a');
  for (const start of ['first', 'second']) {
    await world.open();
    t.match(world.recovered, { closesLost: 1, estimated: [] }, `${start} start`);
    t.equal(world.recovered.open.size, 0, 'its segment can be pruned');
    await world.spool.close();
  }
});

t.test('a close that goes bad after a start is told, after an unclean stop too', async (t) => {
  const world = await SpoolWorld.start();
  world.spool.append(usageRecord('a', 'open'));
  for (const kind of ['open', 'close'] as const) world.spool.append(usageRecord('b', kind));
  await world.pass(5);
  world.disk.crash(() => Buffer.alloc(0));
  await world.open();
  t.match(world.recovered, { closesLost: 0, estimated: [{ id: 'a' }] });
  world.spool.append(usageRecord('c', 'open'));
  await world.pass(5);
  t.strictSame(await world.durable(), ['a:open', 'b:open', 'b:close', 'a:close', 'c:open']);
  world.disk.crash(() => Buffer.alloc(0));
  damageCloseOf(world, 'a');
  damageCloseOf(world, 'b');
  await world.open();
  t.match(world.recovered, { closesLost: 2, estimated: [{ id: 'c' }] }, 'of this life, not of the one before');
});

t.test('the mark of a recovery waits for its closes, and no request that runs is before an end', async (t) => {
  const world = await SpoolWorld.start();
  world.spool.append(usageRecord('a', 'open'));
  await world.pass(5);
  world.disk.crash(() => Buffer.alloc(0));
  await world.open();
  world.spool.append(usageRecord('b', 'open'));
  world.disk.fail = (call) => (call === 'sync' ? systemError('EIO') : undefined);
  await world.pass(5);
  world.disk.crash((unsynced) => unsynced);
  world.disk.fail = () => undefined;
  await world.open();
  t.match(world.recovered, { closesLost: 0 });
  t.notOk(
    [...world.disk.files.values()].some(({ bytes }) => bytes.includes('"recovered"')),
    'not marked yet',
  );
  world.spool.append(usageRecord('c', 'open'));
  await world.pass(5);
  await world.spool.close();
  await world.open();
  t.match(world.recovered, { closesLost: 0, estimated: [{ id: 'c' }] }, 'closed while c ran');
});

t.test('a request without a close is billed at its last progress, once', async (t) => {
  const price = { version: '2026-10-03.4', picodollars: '42000' };
  const progress = usageRecord('a', 'progress', { completionTokens: 256, at: '2026-10-03T00:00:07.000Z', price });
  const world = await startOn(
    encode(usageRecord('a', 'open')),
    encode(usageRecord('b', 'open')),
    encode(usageRecord('c', 'open')),
    encode(progress),
    encode(usageRecord('c', 'close')),
  );
  await world.pass(5);
  const { records } = await readAll(DIR, { disk: world.disk, until: world.spool.position });
  t.strictSame(records.slice(-2), [
    { ...progress, kind: 'close', outcome: 'failed', estimated: true },
    { ...usageRecord('b', 'open'), kind: 'close', outcome: 'failed', estimated: true },
  ]);
  await world.spool.close();
  await world.open();
  t.strictSame(world.recovered.estimated, [], 'a second start finds it closed');
});

t.test('a progress whose open is damaged is billed', async (t) => {
  const world = await startOn(Buffer.from('rubbish\n'), encode(usageRecord('a', 'progress')));
  t.match(world.recovered.estimated, [{ id: 'a', completionTokens: 34 }]);
});

t.test('segments of a request that recovery closed are kept until its close is durable', async (t) => {
  const world = await startOn(encode(usageRecord('a', 'open')));
  world.disk.wait = (call) => (call === 'sync' ? new Promise(() => undefined) : undefined);
  await world.pass(5);
  await world.spool.prune({ segment: 99, offset: 0 });
  t.ok(world.disk.files.has(FIRST));
});

t.test('what a killed process left with the system is synced before it counts', async (t) => {
  const world = await SpoolWorld.start();
  world.disk.wait = (call) => (call === 'sync' ? new Promise(() => undefined) : undefined);
  world.spool.append(usageRecord('a', 'close'));
  await world.pass(5);
  // The process is gone; the machine is not.
  world.disk.wait = () => undefined;
  await world.open();
  t.match(world.recovered, { estimated: [], position: { segment: 1 } });
  world.disk.crash(
    () => Buffer.alloc(0),
    () => false,
  );
  await world.open();
  t.strictSame(await world.left(), ['a:close']);
});

t.test('a disk that cannot be read prevents the start, and the lock is given back', async (t) => {
  const world = await startOn(encode(usageRecord('a', 'open')), Buffer.from('torn'));
  await world.spool.close();
  for (const failing of ['list', 'open', 'size', 'read'] as const) {
    world.disk.fail = (call) => (call === failing ? systemError('EIO') : undefined);
    await t.rejects(world.open(), { code: 'EIO' }, failing);
  }
  world.disk.fail = () => undefined;
  await world.open();
  await settled();
  t.strictSame(world.recovered.estimated, []);
});
