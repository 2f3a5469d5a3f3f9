import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { replaceFile } from '../../../sidecar/lib/replace-file.js';

t.test('the file has the written content, for its owner only, in a folder that is created', async (t) => {
  const dir = join(t.testdir(), 'new');
  const file = join(dir, 'file');
  await replaceFile(file, (draft) => draft.writeFile('one'));
  t.equal(statSync(file).mode & 0o777, 0o600);
  await replaceFile(file, (draft) => draft.writeFile('two'));
  t.equal(readFileSync(file, 'utf8'), 'two');
  t.same(readdirSync(dir), ['file']);
});

t.test('a failed write or rename leaves the old file and no draft', async (t) => {
  const dir = t.testdir({ file: 'old' });
  const file = join(dir, 'file');
  const fault = new Error('a fault');
  const broken = async (draft: { writeFile(text: string): Promise<void> }): Promise<void> => {
    await draft.writeFile('half');
    throw fault;
  };
  await t.rejects(replaceFile(file, broken), fault);
  const mayReplace = (): Promise<void> => {
    t.equal(readFileSync(file, 'utf8'), 'old', 'asked before');
    return Promise.reject(fault);
  };
  await t.rejects(
    replaceFile(file, (draft) => draft.writeFile('new'), { mayReplace }),
    fault,
  );
  t.equal(readFileSync(file, 'utf8'), 'old');
  t.same(readdirSync(dir), ['file']);
});

t.test('a sole writer’s draft overwrites one that a crash left', async (t) => {
  const dir = t.testdir({ 'file.tmp': 'left behind, and longer' });
  await replaceFile(join(dir, 'file'), (draft) => draft.writeFile('new'), { soleWriter: true });
  t.same(readdirSync(dir), ['file']);
  t.equal(readFileSync(join(dir, 'file'), 'utf8'), 'new');
});

t.test('others’ drafts are not touched', async (t) => {
  const dir = t.testdir();
  const file = join(dir, 'file');
  await replaceFile(file, async (draft) => {
    await draft.writeFile('slow');
    await replaceFile(file, (other) => other.writeFile('quick'));
  });
  t.equal(readFileSync(file, 'utf8'), 'slow', 'the last writer wins');
});
