import { randomBytes } from 'node:crypto';
import fs, { readlinkSync } from 'node:fs';
import { open as openFile, readdir, readFile, symlink, type FileHandle } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import t from 'tap';
import { ACCOUNT_FILES, FileStore, WrongKey, type FileRecord } from '../../../sidecar/batch/file-store.js';
import { Vault } from '../../../sidecar/batch/records.js';
import { FakeClock } from '../../support/fake-clock.js';

const SECRET = 'k'.repeat(40);

interface Setup {
  readonly dir: string;
  readonly clock?: FakeClock;
  readonly vault?: Vault;
  readonly isMemory?: boolean;
  readonly maxBytes?: number;
}

function open({
  dir,
  clock = new FakeClock(),
  vault = new Vault([SECRET]),
  isMemory = false,
  maxBytes = 1e9,
}: Setup): Promise<FileStore> {
  return FileStore.open({
    clock,
    date: () => new Date(clock.now()),
    vault,
    dir: join(dir, 'records'),
    contentDir: join(dir, 'content'),
    maxBytes,
    isMemory,
    onFault: (fault) => {
      throw fault;
    },
  });
}

async function store(files: FileStore, account: string, text: string, lifeS = 3600): Promise<FileRecord> {
  const file = await files.create(account);
  file.append(Buffer.from(text));
  return await file.finish({ name: `name of ${account}`, lifeS });
}

async function textOf(files: FileStore, record: FileRecord): Promise<string | undefined> {
  const reader = await files.read(record);
  if (!reader) return undefined;
  let text = '';
  for await (const part of reader.contents(record.bytes)) text += part.toString();
  await reader.close();
  return text;
}

async function contents(dir: string): Promise<string[]> {
  return await readdir(join(dir, 'content'));
}

t.test('a file is its account’s alone, and outlives the process', async (t) => {
  const dir = t.testdir();
  const files = await open({ dir });
  const record = await store(files, 'acme', 'content');
  t.equal(files.find('umbrella', record.id), undefined);
  await files.end();
  const again = await open({ dir });
  const found = again.find('acme', record.id);
  t.same(found, record);
  t.equal(await textOf(again, record), 'content');
  t.equal(again.nameOf(record), 'name of acme');
  t.notOk((await readFile(join(dir, 'records', `${record.id}.json`), 'utf8')).includes('name of'));
  await again.end();
});

t.test('a file whose time is over, or that is deleted, is gone with its key', async (t) => {
  const dir = t.testdir();
  const clock = new FakeClock();
  const files = await open({ dir, clock });
  const [brief, held, deleted] = [
    await store(files, 'a', 'x'),
    await store(files, 'a', 'y'),
    await store(files, 'a', 'z', 7200),
  ];
  files.hold(held.id);
  await files.remove(deleted.id);
  clock.advance(3_600_000);
  t.same(files.list('a'), []);
  // One of the clock's has not ended.
  await files.sweep();
  await files.sweep();
  t.same(await contents(dir), [held.id], 'but for one that a batch reads');
  t.equal(await files.read(brief), undefined);
  files.release(held.id);
  await files.sweep();
  t.same(await contents(dir), []);
  t.same(await readdir(join(dir, 'records')), []);
  await files.end();
});

t.test('uploads that were cut off leave nothing', async (t) => {
  const dir = t.testdir();
  const files = await open({ dir });
  const [crashed, discarded] = [await files.create('a'), await files.create('a')];
  crashed.append(Buffer.from('x'));
  discarded.append(Buffer.from('y'));
  await discarded.discard();
  t.same(await contents(dir), [crashed.id]);
  await files.end();
  await (await open({ dir })).end();
  t.same(await contents(dir), []);
});

t.test('an upload is made durable as it grows, so that its end does not wait for all of it', async (t) => {
  const files = await open({ dir: t.testdir() });
  const file = await files.create('a');
  const syncs: { at: number; end: (fault?: Error) => void }[] = [];
  file.pieces.sync = () =>
    new Promise((resolve, reject) =>
      syncs.push({ at: file.pieces.contentBytes / 2 ** 20, end: (fault) => (fault ? reject(fault) : resolve()) }),
    );
  const append = (mib: number): void => {
    for (let i = 0; i < mib; i += 1) file.append(Buffer.alloc(2 ** 20));
  };
  append(15);
  t.equal(file.pending, undefined);
  append(20);
  t.ok(file.pending, 'no more is to be sent meanwhile; what comes all the same is written');
  t.same(
    syncs.map(({ at }) => at),
    [16],
    'one after another',
  );
  syncs[0]?.end();
  await file.pending;
  append(1);
  t.equal(syncs[1]?.at, 36);
  syncs[1]?.end(new Error('EIO'));
  await file.pending;
  t.throws(() => append(1), /EIO/, 'the system says it once');
  await t.rejects(file.finish({ name: 'a', lifeS: 3600 }), /EIO/);
  await file.discard();
  await files.end();
});

t.test('the content of a stored file is there after a power failure, as its record is', async (t) => {
  const dir = t.testdir();
  const files = await open({ dir });
  const synced: string[] = [];
  const any = await openFile(dir);
  const handles = Object.getPrototypeOf(any) as FileHandle;
  await any.close();
  const sync: (this: FileHandle) => Promise<void> = Reflect.get(handles, 'sync');
  t.teardown(() => Object.assign(handles, { sync }));
  handles.sync = function (this: FileHandle) {
    synced.push(readlinkSync(`/proc/self/fd/${this.fd}`));
    return sync.call(this);
  };
  const { id } = await store(files, 'a', 'x');
  t.same(synced, [join(dir, 'content'), join(dir, 'records', `${id}.json.tmp`), join(dir, 'records')]);
  await files.end();
});

t.test('the system is not asked for its free space with each piece', async (t) => {
  const { statfsSync } = fs;
  const restore = (): void => {
    fs.statfsSync = statfsSync;
    syncBuiltinESMExports();
  };
  t.teardown(restore);
  let asked = 0;
  let hasSpace = true;
  fs.statfsSync = ((path: string) => {
    asked += 1;
    const found = statfsSync(path);
    return hasSpace ? found : Object.assign(found, { bavail: 0 });
  }) as typeof statfsSync;
  syncBuiltinESMExports();
  const clock = new FakeClock();
  const files = await open({ dir: t.testdir(), clock });
  const file = await files.create('a');
  const mib = Buffer.alloc(2 ** 20);
  for (let i = 0; i < 64; i += 1) file.append(mib);
  t.equal(asked, 4, 'with each 16 MiB');
  hasSpace = false;
  for (let i = 0; i < 16; i += 1) file.append(mib);
  t.equal(file.append(mib), 'store');
  hasSpace = true;
  t.equal(files.roomFor('a', 1), 'store', 'as of a moment before');
  clock.advance(1000);
  t.equal(files.roomFor('a', 1), undefined);
  await file.discard();
  await files.end();
});

t.test('bounds of an account and of the store', async (t) => {
  const dir = t.testdir();
  const files = await open({ dir, maxBytes: 10 });
  t.equal(files.roomFor('a', 10), undefined);
  t.equal(files.roomFor('a', 11), 'store');
  t.equal(files.roomFor('a', 3 * 2 ** 30), 'account');
  const growing = await files.create('a');
  t.equal(growing.append(Buffer.alloc(6)), undefined);
  t.equal(files.roomFor('b', 5), 'store', 'what is being stored counts');
  t.equal(growing.append(Buffer.alloc(5)), 'store');
  await growing.discard();
  t.equal(files.roomFor('b', 5), undefined);
  for (let i = 0; i < ACCOUNT_FILES; i += 1) files.grows('a', 0, 1);
  t.equal(files.roomFor('a', 1), 'account');
  await files.end();
});

t.test('answers count while they grow, after a restart, and no more once they are deleted', async (t) => {
  const dir = t.testdir();
  const options = { dir, maxBytes: 3000 };
  const files = await open(options);
  const { id } = await files.createOpen('a', 'answers', Number.MAX_SAFE_INTEGER);
  const file = await files.continue(id, () => undefined);
  await file.append([{ content: Buffer.alloc(2000), state: 'kept' }]);
  files.appended(id, 2000);
  t.equal(files.roomFor('a', 1000), undefined);
  t.equal(files.roomFor('b', 1001), 'store');
  await file.close();
  await files.end();
  const again = await open(options);
  t.equal(again.roomFor('b', 1001), 'store');
  await again.close(id, 2000, 3600);
  // By a batch that was interrupted before its end was recorded.
  await (await again.continue(id, () => undefined)).close();
  t.equal(again.roomFor('b', 1000), undefined);
  t.equal(again.roomFor('b', 1001), 'store');
  await Promise.all([again.remove(id), again.remove(id)]);
  t.equal(again.roomFor('b', 3000, ACCOUNT_FILES), undefined);
  t.equal(again.roomFor('b', 3001), 'store');
  await again.end();
});

t.test('memory is not used through a link, nor in a folder that others can read', async (t) => {
  const dir = t.testdir({ target: { theirs: 'x' } });
  await symlink(join(dir, 'target'), join(dir, 'content'));
  await t.rejects(open({ dir, isMemory: true }), /content is not a folder of this user alone/);
  t.same(await readdir(join(dir, 'target')), ['theirs']);
});

t.test('a key that was replaced still opens, one that is lost does not', async (t) => {
  const dir = t.testdir();
  const files = await open({ dir });
  const record = await store(files, 'a', 'content');
  await files.end();
  const rotated = await open({ dir, vault: new Vault(['n'.repeat(40), SECRET]) });
  t.equal(await textOf(rotated, record), 'content');
  await rotated.end();
  await t.rejects(open({ dir, vault: new Vault(['n'.repeat(40)]) }), WrongKey);
});

t.test('what is in memory cannot be read after the process', async (t) => {
  const dir = t.testdir();
  const files = await open({ dir, vault: Vault.ofProcess(), isMemory: true });
  const record = await store(files, 'a', randomBytes(8).toString('hex'));
  const again = await open({ dir, vault: Vault.ofProcess(), isMemory: true });
  t.equal(again.find('a', record.id), undefined);
  t.same(await contents(dir), []);
  await again.end();
  await files.end();
});
