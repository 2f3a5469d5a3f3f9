/**
 * The connections to the store: the only importer of `pg`. Each call is one function of the schema `ra_sidecar` and one round trip
 * in a transaction of its own, so a connection keeps no state between calls and PgBouncer may pool transactions.
 *
 * A call ends within its time: after a timeout, or any error of the connection, the connection is closed, since what the server
 * still sends on it would be taken for another call's answer. The server is asked to cancel the call, since one that waits for a
 * synchronous standby does not notice that its connection is gone. It may have run in the database all the same: what a lost answer
 * leaves there is the caller's to undo.
 *
 * A call about the lease of this replica has a connection of its own, and is made whatever the others come to: a lease must not end
 * because the sidecar is busy.
 */
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import { Breaker } from '../access/authorizer-client.js';
import type { StoreAddress } from '../config/store-schema.js';
import type { Signal } from '../lib/abort.js';
import { withTimeout, type Clock } from '../lib/clock.js';

/** After this many failed calls in a row none is made for {@link OPEN_MS}, ms; then one tests the store. */
const FAILURES = 5;
const OPEN_MS = 1000;

/** Calls that may wait for each connection. Each waits no longer than its timeout. */
const WAITING_EACH = 64;

/** Connections are renewed so that they follow a changed password or address, s; idle ones are closed after `IDLE_MS`. */
const LIFETIME_S = 600;
const IDLE_MS = 60_000;

/** What a call may take that no request waits for, ms. It may delay those of others, so it is not much longer than theirs. */
export const BACKGROUND_MS = 2000;

/** How long a connection is kept while the server is asked to cancel its call, ms. */
const CANCEL_MS = 500;

/** The wait before a lost connection for notifications is made again, and the longest one for it, ms. */
const LISTEN_AGAIN_MS = 1000;
const LISTEN_CONNECT_MS = 5000;

/** The code of a cancel request in PostgreSQL's protocol. */
const CANCEL_REQUEST = 80_877_102;

/** PostgreSQL's code for a lock that was not free in time: the server works. */
export const LOCK_NOT_AVAILABLE = '55P03';

export interface ConnectionOptions {
  readonly address: StoreAddress;
  readonly passwordFile?: string | undefined;
  readonly caFile?: string | undefined;
}

export interface DatabaseOptions extends ConnectionOptions {
  readonly connections: number;
  /** From a call to its answer, ms, unless the call says how long. */
  readonly timeoutMs: number;
  /** The breaker opened, or closed again. */
  readonly opened?: (reason: string, forMs: number) => void;
  readonly closed?: () => void;
  /** A call has ended after `ms`. */
  readonly called?: (fn: string, ok: boolean, ms: number) => void;
}

export interface CallOptions {
  /** From the call to its answer, ms. */
  readonly withinMs?: number;
  /** Which connections it uses: those that requests wait for, or the one of this replica's lease. */
  readonly lane?: 'requests' | 'lease';
  /** Ends the call when it is aborted, as after its time. */
  readonly signal?: Signal;
}

export type Answer<Row> =
  | { readonly kind: 'rows'; readonly rows: readonly Row[] }
  /** No answer. `why`: a constant, an error code of Node's or of PostgreSQL's. */
  | {
      readonly kind: 'down';
      readonly why: string;
      readonly retryAfterMs: number;
      /** Absent: it has no effect, since it was never sent or the server answered with an error. */
      readonly sent?: true;
    };

/** The store's database. The code that makes it closes it. */
export class Database {
  readonly #clock: Clock;
  readonly #options: DatabaseOptions;
  readonly #ca: string | undefined;
  readonly #pool: pg.Pool;
  readonly #leasePool: pg.Pool;
  readonly #breaker: Breaker;
  /** Whether a connection leads to one process of the server, which parses each call once: PgBouncer does not tell its number. */
  readonly #isDirect = new WeakMap<pg.PoolClient, boolean>();
  #cancelling = false;

  private constructor(clock: Clock, options: DatabaseOptions, ca: string | undefined) {
    this.#clock = clock;
    this.#options = options;
    this.#ca = ca;
    const pool = (max: number): pg.Pool => {
      const made = new pg.Pool({
        ...connectionOptions(options, ca),
        max,
        connectionTimeoutMillis: options.timeoutMs,
        idleTimeoutMillis: IDLE_MS,
        maxLifetimeSeconds: LIFETIME_S,
        allowExitOnIdle: true,
      });
      // Of idle connections, and of those in use beside the rejection of their query: the next call makes another one.
      made.on('error', () => undefined);
      made.on('connect', (client) => client.on('error', () => undefined));
      return made;
    };
    this.#pool = pool(options.connections);
    // The second one while the server is asked to cancel a call of the first.
    this.#leasePool = pool(2);
    this.#breaker = new Breaker(clock, {
      failures: FAILURES,
      openMs: OPEN_MS,
      trialMs: options.timeoutMs,
      ...(options.opened && { opened: options.opened }),
      ...(options.closed && { closed: options.closed }),
    });
  }

  /** Connects to nothing yet. Rejects if the file of certificate authorities cannot be read. */
  static async open(clock: Clock, options: DatabaseOptions): Promise<Database> {
    return new Database(clock, options, await caOf(options));
  }

  /** Calls a function of the store's schema. Never rejects. */
  async call<Row>(fn: string, args: readonly unknown[], options: CallOptions = {}): Promise<Answer<Row>> {
    const isLease = options.lane === 'lease';
    const allowed = isLease ? undefined : this.#breaker.enter();
    if (allowed?.kind === 'blocked') return { kind: 'down', why: 'breaker', retryAfterMs: allowed.retryAfterMs };
    // This sidecar's own load says nothing of the store.
    if (!isLease && this.#pool.waitingCount >= this.#options.connections * WAITING_EACH) {
      return { kind: 'down', why: 'too many calls wait', retryAfterMs: OPEN_MS };
    }
    const from = this.#clock.now();
    const pool = isLease ? this.#leasePool : this.#pool;
    const answer = await this.#ask<Row>(pool, fn, args, options);
    const ok = answer.kind === 'rows';
    this.#options.called?.(fn, ok, this.#clock.now() - from);
    if (ok || answer.why === LOCK_NOT_AVAILABLE) allowed?.succeeded();
    else allowed?.failed(answer.why);
    return answer;
  }

  #ask<Row>(pool: pg.Pool, fn: string, args: readonly unknown[], options: CallOptions): Promise<Answer<Row>> {
    const { withinMs = this.#options.timeoutMs, signal } = options;
    return new Promise((resolve) => {
      let over = false;
      const ended = (): boolean => over;
      let used: pg.PoolClient | undefined;
      let isSent = false;
      const down = (why: string, sent: boolean): void => {
        over = true;
        cancelTimer();
        resolve({ kind: 'down', why, retryAfterMs: OPEN_MS, ...(sent && { sent: true as const }) });
      };
      const abandon = (): void => {
        if (over) return;
        if (used) this.#abandon(used);
        down('timeout', isSent);
      };
      const cancelTimer = this.#clock.after(withinMs, abandon);
      signal?.addEventListener('abort', abandon);
      const run = async (): Promise<void> => {
        const client = await pool.connect();
        // The timeout was first: the connection is as good as new.
        if (over) client.release();
        if (over) return;
        used = client;
        try {
          if (!this.#isDirect.has(client)) {
            const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
            this.#isDirect.set(client, rows[0]?.pid === (client as { processID?: number }).processID);
            if (ended()) return;
          }
          isSent = true;
          const call = { text: statementOf(fn, args.length), values: [...args] };
          const { rows } = await client.query(this.#isDirect.get(client) ? { ...call, name: fn } : call);
          if (ended()) return;
          over = true;
          cancelTimer();
          client.release();
          resolve({ kind: 'rows', rows: rows as Row[] });
        } catch (error) {
          if (ended()) return;
          client.release(codeOf(error) !== LOCK_NOT_AVAILABLE);
          throw error;
        }
      };
      run().catch((error: unknown) => {
        if (!over) down(codeOf(error), isSent && !hasRolledBack(error));
      });
    });
  }

  /**
   * Closes the connection of a call that is too late, at once unless the server can be asked to cancel the call first. One cancel at a
   * time: a store that does not answer is not asked for each call.
   */
  #abandon(client: pg.PoolClient): void {
    const { processID, secretKey } = client as pg.PoolClient & { processID?: number | null; secretKey?: number | null };
    if (this.#cancelling || typeof processID !== 'number' || typeof secretKey !== 'number') {
      client.release(true);
      return;
    }
    this.#cancelling = true;
    const { host, port } = this.#options.address;
    // Cancel requests are the same with TLS and without: they hold no more than two numbers of the connection.
    const socket = host.startsWith('/') ? connect(join(host, `.s.PGSQL.${port}`)) : connect(port, host);
    const request = Buffer.alloc(16);
    [16, CANCEL_REQUEST, processID, secretKey].forEach((word, at) => request.writeInt32BE(word, at * 4));
    const cancelTimer = this.#clock.after(CANCEL_MS, () => socket.destroy());
    socket
      .on('error', () => undefined)
      .on('close', () => {
        cancelTimer();
        this.#cancelling = false;
        client.release(true);
      });
    socket.resume().end(request);
  }

  /**
   * Calls `told` with the payload of each notification, on a connection of its own that is made again when it is lost. Nothing arrives
   * meanwhile, and through PgBouncer never: what must not be missed is asked for too. Returns what ends it.
   */
  listen(channel: string, told: (payload: string) => void): () => Promise<void> {
    let client: pg.Client | undefined;
    let over = false;
    let cancelTimer = (): void => undefined;
    const begin = (): void => {
      const made = new pg.Client({
        ...connectionOptions(this.#options, this.#ca),
        connectionTimeoutMillis: LISTEN_CONNECT_MS,
      });
      client = made;
      let lost = false;
      const again = (): void => {
        if (lost || over) return;
        lost = true;
        made.end().catch(() => undefined);
        cancelTimer = this.#clock.after(LISTEN_AGAIN_MS, begin);
      };
      made.on('error', again).on('end', again);
      made.on('notification', ({ payload = '' }) => told(payload));
      made
        .connect()
        .then(() => made.query(`listen ${channel}`))
        .catch(again);
    };
    begin();
    return async () => {
      over = true;
      cancelTimer();
      if (client) await withTimeout(this.#clock, CANCEL_MS, client.end()).catch(() => undefined);
    };
  }

  /** Closes all connections; calls in flight fail. Idempotent. */
  async close(): Promise<void> {
    await Promise.all([this.#pool, this.#leasePool].map(async (pool) => pool.ending || (await pool.end())));
  }
}

/** Calls a function that removes what is over, some at a time, until there is none or the store does not answer. Never rejects. */
export async function sweep(database: Database, fn: string): Promise<void> {
  for (;;) {
    const answer = await database.call<{ more: boolean }>(fn, [], { withinMs: BACKGROUND_MS });
    if (answer.kind === 'down' || answer.rows[0]?.more !== true) return;
  }
}

/** One connection of an operator's command, for statements of any length. Rejects with one line if there is none. */
export async function connectOnce<T>(
  options: ConnectionOptions & { readonly connectMs: number },
  use: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const { address, connectMs } = options;
  const client = new pg.Client({
    ...connectionOptions(options, await caOf(options)),
    connectionTimeoutMillis: connectMs,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
  } catch (error) {
    throw new Error(`the store at ${address.host} cannot be reached: ${reasonOf(error)}`, { cause: error });
  }
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

function connectionOptions(
  { address, passwordFile, caFile }: ConnectionOptions,
  ca: string | undefined,
): pg.ClientConfig {
  const { tls, ...server } = address;
  return {
    ...server,
    application_name: 'ra-sidecar',
    keepAlive: true,
    ...(passwordFile !== undefined && { password: async () => (await readFile(passwordFile, 'utf8')).trim() }),
    // Never left to `PGSSLMODE` of the environment.
    ssl: tls || caFile !== undefined ? { rejectUnauthorized: true, ...(ca !== undefined && { ca }) } : false,
  };
}

async function caOf({ caFile }: Pick<ConnectionOptions, 'caFile'>): Promise<string | undefined> {
  return caFile === undefined ? undefined : await readFile(caFile, 'utf8');
}

function statementOf(fn: string, args: number): string {
  return `select * from ra_sidecar.${fn}(${Array.from({ length: args }, (_, i) => `$${i + 1}`).join(', ')})`;
}

/** Whether PostgreSQL answered with an error, which ends the call's transaction. */
function hasRolledBack(error: unknown): boolean {
  return (error as { severity?: string }).severity === 'ERROR';
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? 'connection';
}

/** What went wrong, without values: PostgreSQL's own message names roles and objects, never data of ours. */
export function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return [message, code].filter((part) => part !== undefined && part !== '').join(', ');
}
