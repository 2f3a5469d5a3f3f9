/** `ra-sidecar store`, and what the role of sidecars may do. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import pg from 'pg';
import t from 'tap';
import { replicas, store } from '../../../sidecar/commands/store.js';
import { loadConfig, type Config } from '../../../sidecar/config/config.js';
import { SCHEMA_VERSION } from '../../../sidecar/store/migrate.js';
import { replicaAt, sharedPostgres } from '../../support/postgres.js';

function configOf(url: string): Config {
  const loaded = loadConfig({ RA_STORE_URL: url });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  return loaded.config;
}

async function ran(config: Config, ...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const texts = { out: '', err: '' };
  const output = { out: (text: string) => (texts.out += text), err: (text: string) => (texts.err += text) };
  const [name, ...rest] = args;
  const code = await (name === 'replicas' ? replicas(config, rest, output) : store(config, args, output));
  return { code, ...texts };
}

t.test('migrates an empty database, and again changes nothing', async (t) => {
  const server = await sharedPostgres();
  await server.sql('create database empty');
  const config = configOf(server.urlOf('ra_replica', 'empty'));
  const owner = ['migrate', '--url', server.urlOf('ra_owner', 'empty')];
  await t.rejects(ran(config, 'status'), /not migrated/);
  const early = await replicaAt(t, server.urlOf('ra_replica', 'empty'), 'early');
  t.match(await early.replica.begin(), /has no schema ra_sidecar: run ra-sidecar store migrate/);
  await t.rejects(ran(config, 'migrate'), /not migrated: permission denied/, 'not as the role of sidecars');
  t.strictSame(await ran(config, ...owner), {
    code: 0,
    out: '',
    err: `migrated the schema from version 0 to ${SCHEMA_VERSION}\nra_replica may execute the functions of the schema\n`,
  });
  t.match((await ran(config, ...owner)).err, `the schema is at version ${SCHEMA_VERSION}`);
  await server.sql('delete from ra_sidecar.migration where version > 1', 'empty');
  const old = await replicaAt(t, server.urlOf('ra_replica', 'empty'), 'old');
  t.match(await old.replica.begin(), /older schema than this release needs/);
  t.equal((await ran(config, 'status')).code, 1);
});

t.test('the role of sidecars may execute functions and nothing else', async (t) => {
  const server = await sharedPostgres();
  const { name, url } = await server.database();
  const { replica } = await replicaAt(t, url, 'a');
  t.equal(await replica.begin(), undefined);
  const client = new pg.Client({ host: server.socket, user: 'ra_replica', database: name });
  await client.connect();
  const { rows } = await client.query(`select tablename from pg_tables where schemaname = 'ra_sidecar'`);
  t.ok(rows.length > 5);
  for (const { tablename } of rows as { tablename: string }[]) {
    for (const act of ['select * from', 'delete from', 'truncate'])
      await t.rejects(client.query(`${act} ra_sidecar.${tablename}`), /permission denied/, `${act} ${tablename}`);
  }
  await client.end();
  const { rows: loose } = await server.sql(
    `select proname from pg_proc where pronamespace = 'ra_sidecar'::regnamespace and prosecdef
     and not coalesce(proconfig @> array['search_path=ra_sidecar, pg_temp'], false)`,
    name,
  );
  t.strictSame(loose, [], 'each function with the owner’s rights has a fixed search path');
  t.match((await ran(configOf(url), 'status')).out, /schema version \d+; this release needs \d+\n$/);
  t.match(JSON.parse((await ran(configOf(url), 'status', '--json')).out), { version: SCHEMA_VERSION });
  t.match((await ran(configOf(url), 'replicas')).out, /^REPLICA .* HELD\na .* live +0\n$/);
  t.match(JSON.parse((await ran(configOf(url), 'replicas', '--json')).out), { replicas: [{ id: 'a', held: '0' }] });
  await t.rejects(ran(configOf('postgresql://u@127.0.0.1:1/db'), 'replicas'), /the store does not answer/);
});

t.test('what is wrong with the address', async (t) => {
  await t.rejects(ran(configOf('postgresql://u@127.0.0.1:1/db'), 'status'), /cannot be reached: .*ECONNREFUSED/);
  await t.rejects(
    ran({ ...configOf('postgresql://u@h/db'), store: {} as Config['store'] }, 'status'),
    /store.url is not set/,
  );
  for (const url of ['postgresql://u:secret@h/db', 'postgresql://h/db', 'postgresql://u@h', 'postgresql://u@h/db?x=1'])
    t.match(
      loadConfig({ RA_STORE_URL: url }),
      { kind: 'invalid', line: /store\.url must name user, host and database/ },
      url,
    );
  t.match(loadConfig({ RA_STORE_URL: 'postgresql://u@h/db?sslmode=verify-full' }), { kind: 'config', hints: [] });
  t.match(loadConfig({ RA_STORE_URL: 'postgresql://u@h/db' }), { kind: 'config', hints: [/store.url is without TLS/] });
});

t.test('what serves loads no client of PostgreSQL where no store is set', async (t) => {
  const loadsClient = async (path: string): Promise<unknown> => {
    const main = new URL(`../../../sidecar/${path}`, import.meta.url).href;
    const script = `await import(${JSON.stringify(main)});
      const { _cache } = (await import('node:module')).default;
      console.log(Object.keys(_cache).some((path) => path.includes('/node_modules/pg/')));`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
    return JSON.parse(stdout);
  };
  t.equal(await loadsClient('commands/serve.js'), false);
  t.equal(await loadsClient('store/open.js'), true);
});
