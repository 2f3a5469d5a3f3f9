import { createHash } from 'node:crypto';
import { chmod, copyFile, rename, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { fileKey, samePlace } from '../../../engine/protocol/file-key.js';
import { sameWeights, WeightFiles } from '../../../sidecar/engine-client/weight-files.js';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

t.test('a file is hashed once, by all who ask, until it changes', async (t) => {
  const dir = t.testdir({ a: 'one' });
  const path = join(dir, 'a');
  let reads = 0;
  const files = new WeightFiles(async (file) => {
    reads += 1;
    const { readFile } = await import('node:fs/promises');
    return sha256(await readFile(file, 'utf8'));
  });
  const [first, second] = await Promise.all([files.of(path), files.of(path)]);
  t.equal(first, second);
  t.equal((await files.of(path))?.version, sha256('one'));
  t.equal(reads, 1);
  await writeFile(path, 'two');
  t.equal((await files.of(path))?.version, sha256('two'));
  t.equal(reads, 2);
  t.equal(await files.of(join(dir, 'none')), undefined);
});

t.test('in a thread, and not what is no file or changes meanwhile', async (t) => {
  const dir = t.testdir({ a: 'one' });
  const path = join(dir, 'a');
  t.equal((await new WeightFiles().of(path))?.version, sha256('one'));
  t.equal(await new WeightFiles().of(dir), undefined);
  const changing = new WeightFiles(async (file) => {
    await writeFile(file, 'longer');
    return 'x';
  });
  t.equal(await changing.of(path), undefined);
});

t.test('a key tells a file that was written to from one that took its path', async (t) => {
  const dir = t.testdir({ a: 'one', b: 'two' });
  const [a, b] = [join(dir, 'a'), join(dir, 'b')];
  const before = fileKey(a) ?? '';
  t.equal(fileKey(a), before);
  await chmod(a, 0o600);
  const changed = fileKey(a) ?? '';
  t.not(changed, before, 'the inode changed');
  await copyFile(b, a);
  await utimes(a, new Date(0), new Date(0));
  t.ok(samePlace(fileKey(a) ?? '', before), 'written to in place, whatever its times are set to');
  await rename(b, a);
  t.notOk(samePlace(fileKey(a) ?? '', before));
  t.equal(fileKey(b), undefined);
});

t.test('replicas are given the weights that were loaded first, or asked to load others', async (t) => {
  let now: { key: string; version: string } | undefined = { key: '1', version: 'v' };
  const known = sameWeights({ of: () => Promise.resolve(now) });
  const file = '/f';
  t.strictSame(await known({ file }), { key: '1', version: 'v' });
  now = { key: '2', version: 'v' };
  t.strictSame(await known({ file }), { key: '2', version: 'v' }, 'the same content elsewhere will do');
  now = { key: '3', version: 'w' };
  t.strictSame(await known({ file }), { key: '1', version: 'v' }, 'other content will be refused, by its key');
  const weights = { key: '3', version: 'w' };
  t.strictSame(await known({ file, weights }), weights, 'unless it was asked for');
  now = undefined;
  t.strictSame(await known({ file, weights }), weights);
});
