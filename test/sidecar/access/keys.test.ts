import { chmodSync, chownSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { LockError } from '../../../sidecar/lib/replace-file.js';
import { addGrant } from '../../../sidecar/access/credit.js';
import { hashKey, KeyFileError, readKeyFile, writeKeyFile, type StoredKey } from '../../../sidecar/access/key-file.js';
import { KeyFileIdentity } from '../../../sidecar/access/key-identity.js';
import { createKey, KeyStore } from '../../../sidecar/access/keys.js';
import { makeKey, sends } from '../../support/keys.js';

t.test('the development key works, only its hash is stored, and only its owner can read the file', async (t) => {
  const file = join(t.testdir(), 'data', 'keys.json');
  const key = await new KeyStore(file).renewDevelopmentKey('development');
  t.match(key, /^ra-dev-[A-Za-z0-9_-]{43}$/);
  const stored = readFileSync(file, 'utf8');
  t.notOk(stored.includes(key.slice('ra-dev-'.length)));
  t.ok(stored.includes(hashKey(key)));
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.equal(statSync(join(file, '..')).mode & 0o777, 0o700);
  t.strictSame(readdirSync(join(file, '..')), ['keys.json'], 'no draft is left');

  const identity = new KeyFileIdentity(await readKeyFile(file), 'development');
  t.match(await identity.resolve(sends(`Bearer ${key}`)), { account: 'development', models: 'all' });
  const production = new KeyFileIdentity(await readKeyFile(file), 'production');
  t.match(await production.resolve(sends(`Bearer ${key}`)), { models: new Set() });
});

t.test('a second start replaces its own key and no other', async (t) => {
  const file = join(t.testdir(), 'keys.json');
  const { stored } = makeKey();
  const accounts = { acme: { frozen: true } };
  await writeKeyFile(file, { version: 1, accounts, keys: [stored] });
  const first = await new KeyStore(file).renewDevelopmentKey('development');
  const second = await new KeyStore(file).renewDevelopmentKey('development');
  const content = await readKeyFile(file);
  t.strictSame(content.accounts, accounts);
  t.strictSame(
    content.keys.map(({ hash }) => hash),
    [stored.hash, hashKey(second)],
  );
  const identity = new KeyFileIdentity(content, 'development');
  t.match(await identity.resolve(sends(`Bearer ${first}`)), { code: 'invalid_api_key' });
});

t.test('keys differ', async (t) => {
  const [a, b] = [createKey('ra-dev-'), createKey('ra-dev-')];
  t.not(a.key, b.key);
  t.not(a.stored.id, b.stored.id);
});

t.test('no file: no keys', async (t) => {
  t.strictSame(await readKeyFile(join(t.testdir(), 'keys.json')), { version: 1, keys: [] });
});

t.test('a key may expire on a leap day', async (t) => {
  const { stored } = makeKey({ id: 'k', expires: '2028-02-29T00:00:00.000Z' });
  const file = join(t.testdir({ 'keys.json': JSON.stringify({ version: 1, keys: [stored] }) }), 'keys.json');
  t.strictSame((await readKeyFile(file)).keys, [stored]);
});

t.test('a file that cannot be used is reported in one line', async (t) => {
  const { stored } = makeKey({ id: 'k' });
  const content = (changes: object): string => JSON.stringify({ version: 1, keys: [{ ...stored, ...changes }] });
  const hashless = { ...stored, hash: undefined };
  const cases: Record<string, [string, RegExp]> = {
    broken: ['{', /^keys: is not JSON/],
    accounts: [
      '{"version":1,"accounts":{"acme":{"frozen":true},\n"acme":{}},"keys":[]}',
      /^keys: repeats a name within one object, on line 2 /,
    ],
    version: ['{"version":2,"keys":[]}', /^keys: version /],
    unknown: [content({ secret: 'x' }), /^keys: keys\[0\]/],
    hashless: [JSON.stringify({ version: 1, keys: [hashless] }), /^keys: keys\[0\]/],
    hash: [content({ hash: 'short' }), /^keys: keys\[0\]\.hash /],
    weight: [content({ weight: 5 }), /^keys: keys\[0\]\.weight /],
    class: [content({ class: 'gold' }), /^keys: keys\[0\]\.class /],
    both: [content({ class: 'batch', weight: 1 }), /^keys: .* has a class and a weight/],
    zone: [content({ expires: '2026-01-01T00:00:00' }), /^keys: keys\[0\]\.expires /],
    month: [content({ expires: '2026-13-01T00:00:00Z' }), /^keys: k names a time that does not exist/],
    june: [content({ expires: '2026-06-31T00:00:00Z' }), /^keys: k names a time that does not exist/],
    leap: [content({ revoked: '2027-02-29T00:00:00Z' }), /^keys: k names a time that does not exist/],
    sameHash: [JSON.stringify({ version: 1, keys: [stored, { ...stored, id: 'l' }] }), /^keys: two keys have one hash/],
    numbers: [content({ limits: { inFlight: 1, perMinute: 1 } }), /^keys: keys\[0\]\.limits/],
    group: [content({ limits: { completions: {} } }), /^keys: keys\[0\]\.limits/],
    unseen: [content({ account: 'ac\u200bme' }), /^keys: keys\[0\]\.account must match/],
    twins: [JSON.stringify({ version: 1, keys: [stored, stored] }), /^keys: two keys have one id/],
    models: [content({ entitlements: { development: { models: 'some' } } }), /^keys: keys\[0\]\.entitlements/],
  };
  const dir = t.testdir();
  for (const [name, [text, message]] of Object.entries(cases)) {
    const file = join(dir, name);
    writeFileSync(file, text);
    const error: unknown = await readKeyFile(file).catch((thrown: unknown) => thrown);
    t.type(error, KeyFileError, name);
    t.match((error as Error).message, message, name);
    t.ok((error as Error).message.endsWith(`(file ${file})`), name);
    t.notMatch((error as Error).message, '\n', name);
  }
  await t.rejects(new KeyStore(join(dir, 'broken')).renewDevelopmentKey('development'), KeyFileError);
  t.equal(readFileSync(join(dir, 'broken'), 'utf8'), '{', 'an invalid file is not replaced');
});

t.test('the file’s owner and mode are kept', async (t) => {
  const file = join(t.testdir({ 'keys.json': '' }), 'keys.json');
  chmodSync(file, 0o640);
  // Only root can change a file’s owner; otherwise it is the same before and after.
  if (process.getuid?.() === 0) chownSync(file, 12_345, 23_456);
  const { uid, gid, ino } = statSync(file);
  await writeKeyFile(file, { version: 1, keys: [] });
  const now = statSync(file);
  t.not(now.ino, ino, 'it is another file');
  t.same([now.uid, now.gid, now.mode & 0o777], [uid, gid, 0o640]);
});

t.test('a key is rotated once: the end of its grace period is not the new key’s expiry', async (t) => {
  const file = join(t.testdir({}), 'keys.json');
  const { stored } = makeKey({ id: 'k' });
  await writeKeyFile(file, { version: 1, keys: [stored] });
  const store = new KeyStore(file);
  const first = await store.rotate('k', 1000);
  t.equal(first.kind, 'done');
  const before = readFileSync(file, 'utf8');
  t.same(await store.rotate('k', 1000), { kind: 'rotated' });
  t.equal(readFileSync(file, 'utf8'), before);
  const next = (await readKeyFile(file)).keys[1];
  t.equal(next?.expires, undefined);
  t.match(await store.rotate(next?.id ?? '', 0), { kind: 'done' }, 'its successor can be rotated');
  t.same(await store.rotate(next?.id ?? '', 0), { kind: 'revoked' });
});

t.test('a rotation with a grace does not let the old key live past its own expiry', async (t) => {
  const file = join(t.testdir({}), 'keys.json');
  const expires = new Date(Date.now() + 60_000).toISOString();
  const { stored } = makeKey({ id: 'k', expires });
  await writeKeyFile(file, { version: 1, keys: [stored] });
  t.match(await new KeyStore(file).rotate('k', 120_000), { kind: 'done' });
  t.equal((await readKeyFile(file)).keys[0]?.expires, expires);
});

t.test('the end of a grace can be made earlier, and neither later nor removed', async (t) => {
  const file = join(t.testdir({}), 'keys.json');
  await writeKeyFile(file, { version: 1, keys: [makeKey({ id: 'k' }).stored] });
  const store = new KeyStore(file);
  await store.rotate('k', 60_000);
  for (const expires of [null, '2099-01-01T00:00:00Z'])
    t.match(await store.change('k', { expires }), { kind: 'invalid', field: 'expires', why: /only be made earlier/ });
  t.match(await store.change('k', { class: 'batch' }), { kind: 'done', entry: { state: 'good' } });
  t.match(await store.change('k', { expires: '2026-01-02T00:00:00Z' }), { kind: 'done', entry: { state: 'expired' } });
});

t.test('the successor of a development key is a key like others', async (t) => {
  const file = join(t.testdir({}), 'keys.json');
  const store = new KeyStore(file);
  await store.renewDevelopmentKey('development');
  const [old] = (await readKeyFile(file)).keys;
  const rotated = await store.rotate(old?.id ?? '', 0);
  if (rotated.kind !== 'done') throw new Error(rotated.kind);
  await store.renewDevelopmentKey('development');
  const identity = new KeyFileIdentity(await readKeyFile(file), 'development');
  t.match(await identity.resolve(sends(`Bearer ${rotated.key}`)), { kind: 'caller', account: 'development' });
});

/** Another process found the lock of this change stale, and makes a change of its own. */
async function breakLock(file: string, change: () => Promise<unknown>): Promise<void> {
  rmSync(`${file}.lock`);
  await change();
  writeFileSync(`${file}.lock`, 'another');
}

t.test('a change whose lock was broken meanwhile is not made, and loses no other', async (t) => {
  const dir = t.testdir({});
  const file = join(dir, 'keys.json');
  const { stored } = makeKey({ id: 'k' });
  await writeKeyFile(file, { version: 1, keys: [stored] });
  // A disk that is slow to sync the line of the audit.
  const slow = new KeyStore(file, { note: () => breakLock(file, () => new KeyStore(file).revoke('k')) });
  await t.rejects(slow.change('k', { class: 'batch' }), LockError);
  t.match((await readKeyFile(file)).keys, [{ id: 'k', revoked: /Z$/ }]);
  t.strictSame(readdirSync(dir), ['keys.json', 'keys.json.lock'], 'the other’s lock stays, and no draft');

  const credit = join(t.testdir({ 'credit.json': '{"version":1,"accounts":{}}' }), 'credit.json');
  const grant = (id: string, note = (): Promise<void> => Promise.resolve()): Promise<unknown> =>
    addGrant(credit, 'acme', { id, usd: '1' }, note);
  await t.rejects(
    grant('slow', () => breakLock(credit, () => grant('other'))),
    LockError,
  );
  t.match(JSON.parse(readFileSync(credit, 'utf8')), { accounts: { acme: [{ id: 'other' }] } });
});

t.test('no change makes a file that is too long to be read', async (t) => {
  const file = join(t.testdir({}), 'keys.json');
  const { stored } = makeKey({ id: 'k' });
  const textOf = (environment: string): string =>
    JSON.stringify({ version: 1, keys: [{ ...stored, entitlements: { [environment]: { models: 'all' } } }] });
  const before = textOf('e'.repeat(64 * 1024 * 1024 - textOf('').length));
  writeFileSync(file, before);
  await t.rejects(new KeyStore(file).change('k', { class: 'batch' }), { message: /^keys: would have 6\d+ bytes, / });
  t.ok(readFileSync(file, 'utf8') === before);
});

t.test('a failed write leaves the file and no draft', async (t) => {
  const dir = t.testdir({ 'keys.json': { folder: 'in the way' } });
  const keys: StoredKey[] = [];
  await t.rejects(writeKeyFile(join(dir, 'keys.json'), { version: 1, keys }));
  t.strictSame(readdirSync(dir), ['keys.json']);
});
