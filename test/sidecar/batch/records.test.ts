import { mkdir, open, readdir, readFile, rm, rmdir, writeFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { Records, type StoredRecord } from '../../../sidecar/batch/records.js';

const RECORD: StoredRecord = { id: 'a', account: 'acme', sealed: 'the sealed key' };

t.test('a record that was being removed when the process ended is gone, and any other damage is named', async (t) => {
  const dir = t.testdir({ 'zeros.json': '\0'.repeat(90), 'empty.json': '', 'draft.json.tmp': '{"id"' });
  t.equal([...(await Records.open(dir)).all()].length, 0);
  t.same(await readdir(dir), []);
  await writeFile(join(dir, 'a.json'), `\0${JSON.stringify(RECORD)}`);
  await t.rejects(Records.open(dir), /a\.json is damaged/);
});

t.test('a long record that was being removed when the process ended is gone too', async (t) => {
  const text = JSON.stringify({ ...RECORD, problems: 'x'.repeat(10_000) });
  for (const [from, to] of [
    [0, 4096],
    [0, 8192],
    [4096, 8192],
    [8192, text.length],
  ] as const) {
    const dir = t.testdir();
    // The kernel writes a page at a time, and a signal ends it in between.
    await writeFile(join(dir, 'a.json'), text.slice(0, from) + '\0'.repeat(to - from) + text.slice(to));
    t.equal([...(await Records.open(dir)).all()].length, 0, `bytes ${from} to ${to}`);
    t.same(await readdir(dir), []);
  }
});

t.test('a new record that could not be made durable is not there after a start', async (t) => {
  const dir = t.testdir();
  const records = await Records.open(dir);
  const any = await open(dir);
  const handles = Object.getPrototypeOf(any) as FileHandle;
  await any.close();
  const sync: (this: FileHandle) => Promise<void> = Reflect.get(handles, 'sync');
  t.teardown(() => Object.assign(handles, { sync }));
  handles.sync = async function (this: FileHandle) {
    if ((await this.stat()).isDirectory()) throw new Error('EIO');
    await sync.call(this);
  };
  await t.rejects(records.put(RECORD), /EIO/);
  t.equal(records.get('a'), undefined);
  t.same(await readdir(dir), []);
});

t.test('of a record that is replaced or removed no file has what was sealed in it', async (t) => {
  const dir = t.testdir();
  const records = await Records.open(dir);
  await records.put(RECORD);
  const path = join(dir, 'a.json');
  const [former, bytes] = [await open(path), await readFile(path)];
  await records.put({ ...RECORD, account: 'umbrella' });
  t.ok(
    (await former.readFile()).every((byte) => byte === 0),
    'the former one',
  );
  const last = await open(path);
  t.ok(await records.remove('a'));
  t.notOk((await last.readFile()).includes('sealed'));
  t.ok(bytes.includes('sealed'));
  await Promise.all([former.close(), last.close()]);
});

t.test('a record that cannot be removed is still there, and is removed later', async (t) => {
  const dir = t.testdir();
  const records = await Records.open(dir);
  await records.put(RECORD);
  await rm(join(dir, 'a.json'));
  await mkdir(join(dir, 'a.json'));
  await t.rejects(records.remove('a'), /EISDIR/);
  t.same(records.get('a'), RECORD);
  await rmdir(join(dir, 'a.json'));
  t.ok(await records.remove('a'));
  t.notOk(await records.remove('a'), 'once');
});
