import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { ACCOUNT_OPEN, BatchStore, type BatchRecord } from '../../../sidecar/batch/batch-store.js';
import { ACCOUNT_FILES, FileStore } from '../../../sidecar/batch/file-store.js';
import { Vault } from '../../../sidecar/batch/records.js';
import { FakeClock } from '../../support/fake-clock.js';
import { ACME } from '../../support/in-process.js';

const AT = { segment: 3, offset: 0 };
const vault = Vault.ofProcess();

type Created = ReturnType<BatchStore['create']>;

async function recordOf(created: Created): Promise<BatchRecord> {
  const record = await created;
  if (typeof record === 'string') throw new Error(`not created: ${record}`);
  return record;
}

async function open(t: Test, dir: string): Promise<{ files: FileStore; store: BatchStore; create: () => Created }> {
  const clock = new FakeClock();
  const common = {
    clock,
    date: () => new Date(clock.now()),
    vault,
    onFault: (fault: unknown) => t.fail(String(fault)),
  };
  const files = await FileStore.open({
    ...common,
    dir: join(dir, 'files'),
    contentDir: join(dir, 'content'),
    maxBytes: 1e9,
    isMemory: false,
  });
  const store = await BatchStore.open({ ...common, dir: join(dir, 'batches'), files });
  t.teardown(() => files.end());
  const input = await files.create('acme');
  input.append(Buffer.from('x'));
  const { id: inputFile } = await input.finish({ name: 'in', lifeS: 3600 });
  const request = { inputFile, endpoint: '/v1/chat/completions', metadata: null } as const;
  return { files, store, create: () => store.create(ACME, request, AT) };
}

t.test('however many are created at once, an account has ten that have not ended', async (t) => {
  const { store, create } = await open(t, t.testdir());
  const created = await Promise.all(Array.from({ length: 15 }, create));
  t.equal(created.filter((record) => record !== 'batches').length, ACCOUNT_OPEN);
  t.equal(store.unfinished().length, ACCOUNT_OPEN);
});

t.test('the answers of batches are files of their account, which may have so many', async (t) => {
  const { files, store, create } = await open(t, t.testdir());
  for (let i = 3; i < ACCOUNT_FILES; i += 1) files.grows('acme', 0, 1);
  t.match(await create(), { status: 'validating' });
  t.equal(await create(), 'account');
  t.equal(store.unfinished().length, 1);
  const inputFile = store.unfinished()[0]?.inputFile ?? '';
  files.release(inputFile);
  t.notOk(files.isHeld(inputFile), 'and no file is held for it');
});

t.test('however fast batches fail, a thousand of an account are remembered', async (t) => {
  const dir = t.testdir();
  const first = await open(t, dir);
  const failed = await recordOf(first.create());
  const made = Array.from({ length: 1100 }, (_, i) => `batch_${String(i).padStart(4, '0')}`);
  for (const [i, id] of made.entries())
    writeFileSync(
      join(dir, 'batches', `${id}.json`),
      JSON.stringify({ ...failed, id, status: 'failed', createdAt: failed.createdAt + i }),
    );
  const { store, create } = await open(t, dir);
  await store.change(failed.id, () => ({ status: 'failed' }));
  for (let i = 0; i < ACCOUNT_OPEN; i += 1) t.match(await create(), { status: 'validating' });
  const left = store.list('acme');
  t.equal(left.length, 1000);
  t.equal(left.filter(({ status }) => status === 'failed').at(-1)?.id, made[110], 'the oldest ones are not');
});

t.test('a start removes answers’ files that no batch writes to', async (t) => {
  const dir = t.testdir();
  const { files, store, create } = await open(t, dir);
  const [going, failed] = [await recordOf(create()), await recordOf(create())];
  await files.createOpen('acme', 'of a batch whose record was not written', Number.MAX_SAFE_INTEGER);
  await store.change(failed.id, () => ({ status: 'failed' }));
  const { files: again } = await open(t, dir);
  t.ok(again.has(going.outputFile) && again.has(going.errorFile));
  t.notOk(again.has(failed.outputFile) || again.has(failed.errorFile));
  const { length } = again.list('acme');
  t.equal(again.roomFor('acme', 0, 1000 - 2 - length), undefined, 'and counts them no more');
  t.equal(again.roomFor('acme', 0, 1001 - 2 - length), 'account');
});

t.test('the spool is needed by a batch once it runs', async (t) => {
  const { store, create } = await open(t, t.testdir());
  const record = await recordOf(create());
  t.equal(store.keepFrom, undefined);
  await store.change(record.id, () => ({ status: 'in_progress', position: { segment: 5, offset: 0 } }));
  t.same(store.keepFrom, { segment: 5, offset: 0 });
});
