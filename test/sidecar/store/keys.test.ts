/** Keys in the store of a fleet, on a real PostgreSQL: as in a file, whatever operators do at once, and what the roles may. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { NO_KEYS, readKeyFile, type KeyFile, type StoredKey } from '../../../sidecar/access/key-file.js';
import { KeyStore, type NewKey } from '../../../sidecar/access/keys.js';
import { storeAddressOf } from '../../../sidecar/config/store-schema.js';
import { Database } from '../../../sidecar/store/database.js';
import { systemClock, type Clock } from '../../../sidecar/lib/clock.js';
import {
  changePrices,
  DOCUMENT_MS,
  doStoreTask,
  importKeys,
  readDocument,
  readStoreKeys,
  storeKeys,
} from '../../../sidecar/store/keys.js';
import { Snapshot } from '../../../sidecar/store/snapshot.js';
import { sha256 } from '../../../sidecar/usage/durable-sums.js';
import { RecordingLog } from '../../support/in-process.js';
import { makeKey } from '../../support/keys.js';
import { rounds } from '../../support/long-form.js';
import { replicaAt, sharedPostgres } from '../../support/postgres.js';
import { eventually } from '../../support/processes.js';

const server = await sharedPostgres();

async function opened(t: Test): Promise<{ readonly database: Database; readonly name: string }> {
  const { name, url } = await server.database();
  const { database } = await replicaAt(t, url, 'keys');
  return { database, name };
}

/** What an operator does, of keys that are known by the order of their creation. */
type Step = (store: KeyStore, ids: string[]) => Promise<unknown>;

const keep = (ids: string[], made: object): void => {
  if ('key' in made) ids.push((made as NewKey).id);
};

/** Steps by a fixed sequence of numbers. */
function* steps(count: number): Generator<Step> {
  let seed = 66;
  const upTo = (most: number): number => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % most;
  const accounts = ['acme', 'b "quoted"', '__proto__'];
  for (let i = 0; i < count; i++) {
    const [kind, which, account] = [upTo(6), upTo(8), accounts[upTo(3)] ?? ''];
    const id = (ids: string[]): string => ids[which % Math.max(1, ids.length)] ?? 'none';
    yield [
      async (store: KeyStore, ids: string[]) => {
        const entitlements = { development: { models: ['a', 'é'], tokensPerDay: 1 + which } };
        keep(ids, await store.create({ account, entitlements }));
      },
      (store: KeyStore, ids: string[]) =>
        store.change(id(ids), { limits: { chat: { perMinute: which } }, expires: null }),
      (store: KeyStore, ids: string[]) => store.revoke(id(ids)),
      async (store: KeyStore, ids: string[]) => keep(ids, await store.rotate(id(ids), which * 1000)),
      (store: KeyStore) => store.changeAccount(account, { frozen: which % 2 === 0 ? true : null }),
      (store: KeyStore) => store.changeAccount(account, { tokensPerMinute: which === 0 ? null : which }),
    ][kind] as Step;
  }
}

/** Without what is random. */
function comparable({ keys, accounts = {} }: KeyFile, ids: readonly string[]): object {
  const plain = keys.map(({ id, hash, ...key }) => ({ ...key, id: ids.indexOf(id), hashed: hash.length }));
  return { keys: plain, accounts: Object.entries(accounts).sort() };
}

t.test('the same changes leave the same keys in a file and in the store', async (t) => {
  const { database } = await opened(t);
  const file = join(t.testdir(), 'keys.json');
  const date = (): Date => new Date('2026-11-30T00:00:00Z');
  const [inFile, inStore] = [[] as string[], [] as string[]];
  const stored = new KeyStore(storeKeys(database, 'test', 'create'), { date });
  const filed = new KeyStore(file, { date });
  const kinds = new Set<string>();
  for (const step of steps(rounds({ short: 80, long: 1000 }))) {
    const [one, other] = [await step(filed, inFile), await step(stored, inStore)] as
      [object, object] | [undefined, undefined];
    if (one) {
      const kind = JSON.stringify(Object.values(one)[0]);
      t.equal(JSON.stringify(Object.values(other)[0]), kind);
      kinds.add(kind);
    }
  }
  t.ok(kinds.size >= 4, `outcomes ${[...kinds].join(' ')}`);
  const found = await readStoreKeys(database);
  t.strictSame(comparable(found, inStore), comparable(await readKeyFile(file), inFile));
});

t.test('changes at once are all made, each with its row in the audit, in which is no key', async (t) => {
  const { database, name } = await opened(t);
  const creating = Array.from({ length: 12 }, (_, i) =>
    doStoreTask(database, `operator ${i}`, {
      kind: 'create',
      properties: { account: 'acme', entitlements: { development: { models: 'all' } } },
    }),
  );
  const made = (await Promise.all(creating)) as (NewKey & { kind: string })[];
  t.strictSame([...new Set(made.map(({ kind }) => kind))], ['created']);
  const { keys } = await readStoreKeys(database);
  t.strictSame(keys.map(({ id }) => id).sort(), made.map(({ id }) => id).sort());
  const id = made[0]?.id ?? '';
  const groups = ['decisions', 'chat', 'embeddings', 'models'];
  const patches = groups.map((group) => ({ limits: { [group]: { perMinute: 1 } } }));
  await Promise.all(patches.map((patch) => doStoreTask(database, 'o', { kind: 'change', id, patch })));
  const [changed] = (await readStoreKeys(database)).keys.filter((key) => key.id === id);
  t.strictSame(Object.keys(changed?.limits ?? {}).sort(), groups.sort(), 'none of four changes of one key is lost');
  t.match(await doStoreTask(database, 'o', { kind: 'revoke', id }), { kind: 'done' });
  const { rows } = await server.sql('select * from ra_sidecar.audit order by id', name);
  t.equal(rows.length, 17);
  t.match(rows.at(-1), { operator: 'o', action: 'revoke', account: 'acme', detail: new RegExp(`"id":"${id}"`) });
  const text = JSON.stringify(rows);
  for (const { key } of made) t.notOk(text.includes(key));
  for (const { hash } of keys) t.notOk(text.includes(hash));
});

t.test('an import adds what is not there, and makes nothing valid again', async (t) => {
  const { database, name } = await opened(t);
  const [one, two] = [makeKey({ id: 'one' }).stored, makeKey({ id: 'two', account: 'b' }).stored];
  const development: StoredKey = { ...makeKey({ id: 'dev' }).stored, development: true };
  const file: KeyFile = { version: 1, accounts: { b: { frozen: true } }, keys: [one, two, development] };
  t.strictSame(await importKeys(database, file, 'o'), { keys: 2, accounts: 1 });
  t.strictSame(await readStoreKeys(database), { ...file, keys: [one, two] });
  await doStoreTask(database, 'o', { kind: 'revoke', id: 'one' });
  await doStoreTask(database, 'o', { kind: 'account', account: 'b', action: 'unfreeze', patch: { frozen: null } });
  t.strictSame(await importKeys(database, file, 'o'), { keys: 0, accounts: 0 });
  t.match(await readStoreKeys(database), { accounts: { b: {} }, keys: [{ revoked: /Z$/ }, { id: 'two' }] });
  const twin = importKeys(database, { version: 1, keys: [{ ...two, id: 'three' }] }, 'o');
  await t.rejects(twin, { message: 'two keys would have one hash' });
  t.equal((await server.sql(`select * from ra_sidecar.audit where action = 'import'`, name)).rows.length, 2);
});

t.test('keys and accounts together stay as short as a file that sidecars read', async (t) => {
  const { database, name } = await opened(t);
  await importKeys(database, { version: 1, keys: [makeKey({ id: 'one' }).stored] }, 'o');
  await server.sql(
    `insert into ra_sidecar.key_account select 'a' || n, to_json(repeat('x', 1000000)) from generate_series(1, 65) n`,
    name,
  );
  const why = 'the keys would be longer than 64 MB';
  t.match(await doStoreTask(database, 'o', { kind: 'change', id: 'one', patch: { class: 'batch' } }), {
    kind: 'failed',
    why,
  });
  t.match(await doStoreTask(database, 'o', { kind: 'revoke', id: 'one' }), { kind: 'done' });
});

t.test('sidecars may call functions and see no table; what a change notes is out of their reach', async (t) => {
  const { database, name } = await opened(t);
  const asReplica = (text: string) => server.sql(`set local role ra_replica; ${text}`, name);
  for (const table of ['api_key', 'key_account', 'document', 'audit'])
    await t.rejects(asReplica(`select * from ra_sidecar.${table}`), { code: '42501' });
  await t.rejects(asReplica(`select ra_sidecar.note_change('keys', 'o', 'revoke', null, '')`), { code: '42501' });
  await changePrices(database, '{"prices":[]}', '', 'o');
  t.equal(((await asReplica(`select * from ra_sidecar.document('prices', null)`)) as unknown as unknown[]).length, 2);
});

t.test('of prices that operators change at once one change is made, and the others are refused', async (t) => {
  const { database, name } = await opened(t);
  const file = (version: string): string => `{"prices":[{"version":"${version}"}]}`;
  const race = async (revision: string, prefix: string): Promise<string> => {
    const names = Array.from({ length: 8 }, (_, i) => `${prefix}${i}`);
    const ends = await Promise.allSettled(names.map((each) => changePrices(database, file(each), revision, each)));
    const refused = ends.flatMap((end) => (end.status === 'rejected' ? [String(end.reason)] : []));
    t.equal(refused.length, 7);
    for (const why of refused) t.match(why, /^StoreRefusal: the prices are no longer those of this revision/);
    return names[ends.findIndex(({ status }) => status === 'fulfilled')] ?? '';
  };
  const first = await race('', 'a');
  t.equal(await readDocument(database, 'prices'), file(first));
  const second = await race(sha256(file(first)), 'b');
  t.equal(await readDocument(database, 'prices'), file(second));
  const { rows } = await server.sql('select operator from ra_sidecar.audit order by id', name);
  t.strictSame(rows, [{ operator: first }, { operator: second }], 'what was refused has no row in the audit');
});

t.test('a copy that is closed does not wait for the store', async (t) => {
  const { name, url } = await server.database();
  const address = storeAddressOf(url);
  if (!address) throw new Error('no address');
  // By this one a document may take forever.
  const after: Clock['after'] = (ms, fn) => (ms < DOCUMENT_MS ? systemClock.after(ms, fn) : () => undefined);
  const clock = { ...systemClock, after };
  const database = await Database.open(clock, { address, connections: 1, timeoutMs: 5000 });
  const client = await server.connect(name);
  t.teardown(() => Promise.all([client.end(), database.close()]));
  await client.query('begin; lock table ra_sidecar.document in access exclusive mode');
  const file = join(t.testdir(), 'fleet-keys.json');
  const taken = (): Promise<void> => Promise.reject(new Error('not taken'));
  const snapshot = new Snapshot({
    clock,
    log: new RecordingLog(),
    database,
    name: 'keys',
    file,
    pollMs: 60_000,
    taken,
  });
  const asked = snapshot.sync();
  const waiting = `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
  await eventually('the store waits', async () => (await server.sql(waiting, name)).rows.length === 1);
  await snapshot.close();
  await asked;
  await eventually('its call is cancelled', async () => (await server.sql(waiting, name)).rows.length === 0);
  await client.query('rollback');
});

t.test(
  'a copy follows the store by notification and by poll, and is confirmed as long as the store answers',
  async (t) => {
    const { database, name } = await opened(t);
    const file = join(t.testdir(), 'fleet-keys.json');
    const log = new RecordingLog();
    let taken = 0;
    const make = (pollMs: number): Snapshot =>
      new Snapshot({
        ...{ clock: systemClock, log, database, name: 'keys', file, pollMs },
        taken: () => Promise.resolve(void (taken += 1)),
      });
    const first = make(60_000);
    await first.begin();
    t.strictSame([taken, await readKeyFile(file)], [1, { ...NO_KEYS, accounts: {} }]);
    t.ok(first.ageMs < 60_000);
    await importKeys(database, { version: 1, keys: [makeKey().stored] }, 'o');
    await first.sync();
    t.equal(taken, 2);
    await first.sync();
    t.equal(taken, 2, 'the same content is not written again');
    await first.close();

    await server.sql('revoke usage on schema ra_sidecar from ra_replica', name);
    const before = await readFile(file, 'utf8');
    const second = make(20);
    await second.begin();
    t.match(
      second.problem,
      /^the store does not let the user of store.url execute its functions: run ra-sidecar store migrate/,
    );
    t.ok(second.ageMs < 60_000, 'a restart goes on from the last confirmation');
    t.equal(await readFile(file, 'utf8'), before);
    const age = second.ageMs;
    await eventually('it gets older', () => second.ageMs > age);
    await server.sql('grant usage on schema ra_sidecar to ra_replica', name);
    await eventually('the poll confirms it', () => second.problem === undefined);
    t.equal(taken, 3);
    await second.close();

    let refused: string | undefined = 'a field is not known';
    const older = new Snapshot({
      ...{ clock: systemClock, log, database, name: 'keys', file: join(t.testdirName, 'older'), pollMs: 60_000 },
      taken: () => Promise.resolve(void (taken += 1)),
      refused: () => Promise.resolve(refused),
    });
    await older.begin();
    await older.sync();
    t.strictSame([older.ageMs, older.problem], [Infinity, refused], 'a content that is not in force is not confirmed');
    t.equal(taken, 4, 'and not read again');
    refused = undefined;
    await older.sync();
    t.ok(older.ageMs < 60_000);
    await older.close();

    await writeFile(`${file}.confirmed`, '');
    const elsewhere = new Snapshot({
      ...{ clock: systemClock, log, database, name: 'keys', file: join(t.testdirName, 'no', 'x'), pollMs: 60_000 },
      taken: () => Promise.reject(new Error('not taken')),
    });
    await elsewhere.begin();
    t.equal(elsewhere.ageMs, Infinity, 'a content that could not be taken is not confirmed');
    t.match(log.lines.at(-1), { event: 'copy of the store cannot be written' });
    await elsewhere.close();
  },
);
