import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { areThere, placeAll } from '../../../../engine/llama/inspect/place.js';

const PARTS = [
  { name: 'a', bytes: 3 },
  { name: 'b', bytes: 3 },
] as const;

const IN_THE_WAY = /a file b is there already and is another one/;

function folders(t: Test, there: Readonly<Record<string, string>> = {}): { from: string; dir: string } {
  const root = t.testdir({ from: { a: 'one', b: 'two' }, dir: there });
  return { from: join(root, 'from'), dir: join(root, 'dir') };
}

/** The error of a file system without hard links. */
function noLinks(code: string): () => Promise<never> {
  return () => Promise.reject(Object.assign(new Error(code), { code }));
}

t.test('whether all parts exist, some, or another file has a name', async (t) => {
  t.equal(await areThere(PARTS, folders(t).dir), false);
  t.equal(await areThere(PARTS, folders(t, { a: 'one' }).dir), false);
  t.equal(await areThere(PARTS, folders(t, { a: 'one', b: 'two' }).dir), true);
  await t.rejects(areThere(PARTS, folders(t, { a: 'one', b: 'mine' }).dir), { message: IN_THE_WAY });
});

t.test('parts get their names; an existing one stays', async (t) => {
  const { from, dir } = folders(t, { a: 'old' });
  await placeAll(PARTS, from, dir);
  t.equal(readFileSync(join(dir, 'a'), 'utf8'), 'old');
  t.equal(readFileSync(join(dir, 'b'), 'utf8'), 'two');
});

t.test('if one name is taken, none is given', async (t) => {
  const { from, dir } = folders(t);
  symlinkSync('nowhere', join(dir, 'b'));
  await t.rejects(placeAll(PARTS, from, dir), { message: IN_THE_WAY });
  t.strictSame(readdirSync(dir), ['b']);
});

t.test('without hard links files are moved, and none is overwritten', async (t) => {
  for (const code of ['EPERM', 'ENOTSUP', 'EOPNOTSUPP']) {
    const { from, dir } = folders(t);
    await placeAll(PARTS, from, dir, noLinks(code));
    t.strictSame(readdirSync(from), []);
    t.equal(readFileSync(join(dir, 'a'), 'utf8'), 'one');
    t.equal(readFileSync(join(dir, 'b'), 'utf8'), 'two');
  }
  const { from, dir } = folders(t);
  writeFileSync(join(dir, 'b'), 'mine');
  await t.rejects(placeAll(PARTS, from, dir, noLinks('EPERM')), { message: IN_THE_WAY });
  t.strictSame(readdirSync(dir), ['b']);
  t.equal(readFileSync(join(dir, 'b'), 'utf8'), 'mine');

  mkdirSync(join(dir, 'c'));
  await t.rejects(placeAll(PARTS, join(dir, 'c'), from + 'x', noLinks('EPERM')), { code: 'ENOENT' });
  await t.rejects(placeAll(PARTS, from, dir, noLinks('EIO')), { code: 'EIO' }, 'other errors are passed on');
  await t.rejects(placeAll([{ name: 'gone', bytes: 1 }], from, dir, noLinks('EPERM')), { code: 'ENOENT' });
  t.notOk(readdirSync(dir).includes('gone'), 'and the name that was taken is removed');
});
