import t from 'tap';
import type { UsageRecord } from '../../../sidecar/domain/usage-record.js';
import { listSegments, oldestPosition, readFrom } from '../../../sidecar/usage/reader.js';
import { encode, encodeMark, segmentPath, START, type Position } from '../../../sidecar/usage/spool-format.js';
import { FakeDisk } from '../../support/fake-disk.js';
import { readAll, short, usageRecord } from '../../support/usage-records.js';

const DIR = '/usage';

/** A segment with a head and `lines`. */
function segment(after: Position | null, ...lines: readonly (UsageRecord | string)[]): Buffer {
  return Buffer.concat([
    encodeMark({ kind: 'head', after }),
    ...lines.map((line) => (typeof line === 'string' ? Buffer.from(line) : encode(line))),
  ]);
}

function spool(...segments: readonly Buffer[]): FakeDisk {
  const disk = new FakeDisk();
  for (const [i, bytes] of segments.entries()) disk.put(segmentPath(DIR, i + 1), bytes);
  return disk;
}

const A = usageRecord('a', 'open');
const B = usageRecord('b', 'open');
const C = usageRecord('c', 'close');

t.test('segments are listed by number; other files are ignored', async (t) => {
  const disk = spool(segment(null), segment({ segment: 1, offset: 99 }));
  disk.put(`${DIR}/lock`, Buffer.alloc(0));
  disk.put(segmentPath(DIR, 12), Buffer.alloc(0));
  t.strictSame(await listSegments(DIR, disk), [1, 2, 12]);
  disk.fail = (call) => (call === 'list' ? Object.assign(new Error(), { code: 'ENOENT' }) : undefined);
  t.strictSame(await listSegments(DIR, disk), [], 'no folder, no segments');
});

t.test('reading continues where it stopped, over segments', async (t) => {
  const first = segment(null, A, B);
  const disk = spool(first, segment({ segment: 1, offset: first.length }, C));
  let position = START;
  const seen: string[] = [];
  for (let more = true; more;) {
    more = false;
    for await (const read of readFrom(DIR, position, { disk })) {
      if (read.kind === 'damage') break;
      seen.push(short(read.record));
      position = read.after;
      more = true;
      break;
    }
  }
  t.strictSame(seen, ['a:open', 'b:open', 'c:close']);
});

t.test('the last segment is read up to its last whole line, then from there', async (t) => {
  const whole = segment(null, A, B);
  for (let cut = 1; cut <= encode(B).length; cut++) {
    const disk = spool(whole.subarray(0, whole.length - cut));
    const { records, damage } = await readAll(DIR, { disk });
    t.strictSame([records.map(short), damage], [['a:open'], []], `${cut} bytes not written yet`);
    disk.put(segmentPath(DIR, 1), whole);
    const from = { segment: 1, offset: whole.length - encode(B).length };
    t.strictSame((await readAll(DIR, { disk, from })).records.map(short), ['b:open']);
  }
});

t.test('nothing past `until` is read, and missing bytes before it are damage', async (t) => {
  const whole = segment(null, A, B);
  const upToA = { segment: 1, offset: whole.length - encode(B).length };
  const disk = spool(whole, segment(upToA, C));
  t.strictSame((await readAll(DIR, { disk, until: upToA })).records.map(short), ['a:open']);
  const cut = spool(whole.subarray(0, upToA.offset + 5));
  t.strictSame(await readAll(DIR, { disk: cut, until: { segment: 1, offset: whole.length } }), {
    records: [A],
    damage: [{ kind: 'damage', segment: 1, offset: upToA.offset, bytes: encode(B).length }],
  });
  const gone = spool(whole.subarray(0, upToA.offset));
  t.strictSame((await readAll(DIR, { disk: gone, until: { segment: 1, offset: whole.length } })).damage, [
    { kind: 'damage', segment: 1, offset: upToA.offset, bytes: encode(B).length },
  ]);
});

t.test('the oldest records are the first ones if no segment was ever pruned, whatever its number', async (t) => {
  const disk = new FakeDisk();
  t.strictSame(await oldestPosition(DIR, disk), START, 'there is none yet');
  disk.put(segmentPath(DIR, 2), segment(null));
  t.strictSame(await oldestPosition(DIR, disk), START, 'the first segment failed');
  disk.put(segmentPath(DIR, 2), segment({ segment: 1, offset: 70 }));
  t.strictSame(await oldestPosition(DIR, disk), { segment: 2, offset: 0 }, 'older ones were pruned');
});

t.test('while the file that is being written is away, nothing is passed over', async (t) => {
  const whole = segment(null, A);
  const until = { segment: 2, offset: 100 };
  const disk = spool(whole);
  await t.rejects(readAll(DIR, { disk, until }), /segment 2 was removed/);
  await t.rejects(readAll(DIR, { disk, from: { segment: 2, offset: 50 }, until }), /segment 2 was removed/);
  t.strictSame((await readAll(DIR, { disk, from: until, until })).records, [], 'there is nothing more to read');
});

t.test('what a segment was given up with is reported once', async (t) => {
  const given = segment(null, A, B);
  const end = { segment: 1, offset: given.length - encode(B).length };
  const disk = spool(given, segment(end, B), segment(end, B, C));
  t.strictSame((await readAll(DIR, { disk })).records.map(short), ['a:open', 'b:open', 'c:close']);
});

t.test('a pruned segment is skipped', async (t) => {
  const disk = spool(segment(null, A), segment({ segment: 1, offset: 9 }, B));
  disk.files.delete(segmentPath(DIR, 1));
  t.strictSame((await readAll(DIR, { disk })).records.map(short), ['b:open']);
  disk.put(segmentPath(DIR, 1), segment(null, A));
  disk.fail = (call, name) =>
    call === 'open' && name.endsWith('1.seg') ? Object.assign(new Error(), { code: 'ENOENT' }) : undefined;
  t.strictSame((await readAll(DIR, { disk })).records.map(short), ['b:open'], 'also after it was listed');
});

t.test('damage is reported and all valid lines around it are read', async (t) => {
  const lines = [A, 'rubbish\n', B, 'more\nrubbish\n', '17 rubbish', C];
  const disk = spool(segment(null, ...lines));
  const { records, damage } = await readAll(DIR, { disk });
  t.strictSame(records.map(short), ['a:open', 'b:open'], 'a line with a damaged beginning is invalid to its end');
  t.strictSame(
    damage.map(({ bytes }) => bytes),
    ['rubbish\n'.length, 'more\nrubbish\n17 rubbish'.length + encode(C).length],
  );
});

t.test('reading continues after a record whose newline is damaged', async (t) => {
  const bytes = Buffer.from(segment(null, A, B));
  bytes[bytes.length - encode(B).length - 1] = 0x78;
  const disk = spool(bytes);
  const { records, damage } = await readAll(DIR, { disk });
  t.strictSame([records.map(short), damage.map((each) => each.bytes)], [['a:open', 'b:open'], [1]]);
  for await (const read of readFrom(DIR, START, { disk })) {
    if (read.kind !== 'record' || read.record.id !== A.id) continue;
    t.strictSame((await readAll(DIR, { disk, from: read.after })).records.map(short), ['b:open']);
  }
});

t.test('a long spool and long damage are read in pieces', async (t) => {
  const many = Array.from({ length: 3000 }, (_, i) => usageRecord(`n${i}`, 'open'));
  const disk = spool(segment(null, ...many.slice(0, 1500), `${'x'.repeat(700_000)}\n`, ...many.slice(1500)));
  const { records, damage } = await readAll(DIR, { disk });
  t.strictSame(
    records.map(({ id }) => id),
    many.map(({ id }) => id),
  );
  t.strictSame(
    damage.map(({ bytes }) => bytes),
    [700_001],
  );
});

t.test('disk errors are passed on', async (t) => {
  const disk = spool(segment(null, A));
  for (const failing of ['list', 'open', 'size', 'read'] as const) {
    disk.fail = (call) => (call === failing ? Object.assign(new Error('EIO'), { code: 'EIO' }) : undefined);
    await t.rejects(readAll(DIR, { disk }), { code: 'EIO' }, failing);
  }
});
