import { mkdir, open, readdir, readFile, rm, rmdir, writeFile } from 'node:fs/promises';
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
