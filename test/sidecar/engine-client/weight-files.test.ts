import { createHash } from 'node:crypto';
import { chmod, copyFile, rename, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { fileKey, samePlace } from '../../../engine/protocol/file-key.js';
import { FakeClock } from '../../support/fake-clock.js';
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

t.test('few are hashed at once, and how long that takes is known', async (t) => {
  const dir = t.testdir({ a: 'a'.repeat(4000), b: 'b'.repeat(8000), c: 'c'.repeat(4000) });
  const [a, b, c] = [join(dir, 'a'), join(dir, 'b'), join(dir, 'c')];
  const clock = new FakeClock();
  const begun = new Map<string, (version: string) => void>();
  const files = new WeightFiles((file) => new Promise((settle) => begun.set(file, settle)), clock);
  t.equal(files.msLeft(a), 0);
  const all = [files.of(a), files.of(b), files.of(c)];
  t.strictSame([...begun.keys()], [a, b], 'the third waits');
  t.ok(files.msLeft(a) > 0 && files.msLeft(a) < 1, 'until one was measured');
  clock.advance(2000);
  begun.get(a)?.('a');
  t.match(await all[0], { version: 'a' });
  await new Promise(setImmediate);
  t.strictSame([...begun.keys()], [a, b, c]);
  t.equal(files.msLeft(a), 0);
  begun.get(b)?.('b');
  begun.get(c)?.('c');
  t.match(await Promise.all(all), [{ version: 'a' }, { version: 'b' }, { version: 'c' }]);
  // The last one that was long enough: 8,000 bytes in 2 s.
  await writeFile(a, 'a'.repeat(1000));
  await writeFile(b, 'b'.repeat(2000));
  const again = [files.of(a), files.of(b)];
  t.strictSame([files.msLeft(a), files.msLeft(b)], [250, 750], 'one after another');
  clock.advance(100);
  t.equal(files.msLeft(a), 150);
  begun.get(a)?.('a');
  begun.get(b)?.('b');
  await Promise.all(again);
});

t.test('a key distinguishes a file that was written to from one that took its path', async (t) => {
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
