/**
 * The connections to the store: the only importer of `pg`. Each call is one function of the schema `ra_sidecar` and one round trip
 * in a transaction of its own, so a connection keeps no state between calls and PgBouncer may pool transactions.
 *
 * A call ends within its time: after a timeout, or any error of the connection, the connection is closed, since what the server
 * still sends on it would be taken for another call's answer. The call may still run in the database: what a lost answer leaves
 * there is the caller's to undo.
 */
import { readFile } from 'node:fs/promises';
import pg from 'pg';
import { Breaker, type BreakerState } from '../access/authorizer-client.js';
import type { StoreAddress } from '../config/store-schema.js';
import type { Clock } from '../lib/clock.js';

/** After this many failed calls in a row none is made for {@link OPEN_MS}, ms; then one tests the store. */
const FAILURES = 5;
const OPEN_MS = 1000;

/** Calls that may wait for each connection. Each waits no longer than its timeout. */
const WAITING_EACH = 64;

/** Connections are renewed so that they follow a changed password or address, s; idle ones are closed after `IDLE_MS`. */
const LIFETIME_S = 600;
const IDLE_MS = 60_000;

/** PostgreSQL's code for a lock that was not free in time: the server works. */
const LOCK_NOT_AVAILABLE = '55P03';

export interface DatabaseOptions {
  readonly address: StoreAddress;
  readonly passwordFile?: string;
  readonly caFile?: string;
  readonly connections: number;
  /** From a call to its answer, ms. */
  readonly timeoutMs: number;
  /** The breaker opened, or closed again. */
  readonly opened?: (reason: string, forMs: number) => void;
  readonly closed?: () => void;
  /** A call has ended after `ms`. */
  readonly called?: (fn: string, ok: boolean, ms: number) => void;
}

export type Answer<Row> =
  | { readonly kind: 'rows'; readonly rows: readonly Row[] }
  /** No answer. `why`: a constant, an error code of Node's or of PostgreSQL's. */
  | {
      readonly kind: 'down';
      readonly why: string;
      readonly retryAfterMs: number;
      /** Absent: the call was never sent. */
      readonly sent?: true;
    };

/** The store's database. The code that makes it closes it. */
export class Database {
  readonly #clock: Clock;
  readonly #options: DatabaseOptions;
  readonly #pool: pg.Pool;
  readonly #breaker: Breaker;

  private constructor(clock: Clock, options: DatabaseOptions, ca: string | undefined) {
    this.#clock = clock;
    this.#options = options;
    this.#pool = new pg.Pool({
      ...connectionOptions(options, ca),
      max: options.connections,
      connectionTimeoutMillis: options.timeoutMs,
      idleTimeoutMillis: IDLE_MS,
      maxLifetimeSeconds: LIFETIME_S,
      allowExitOnIdle: true,
    });
    // Of idle connections, and of those in use beside the rejection of their query: the next call makes another one.
    this.#pool.on('error', () => undefined);
    this.#pool.on('connect', (client) => client.on('error', () => undefined));
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

  get breakerState(): BreakerState {
    return this.#breaker.state;
  }

  /** Calls a function of the store's schema. Never rejects. */
  async call<Row>(fn: string, args: readonly unknown[]): Promise<Answer<Row>> {
    const allowed = this.#breaker.enter();
    if (allowed.kind === 'blocked') return { kind: 'down', why: 'breaker', retryAfterMs: allowed.retryAfterMs };
    if (this.#pool.waitingCount >= this.#options.connections * WAITING_EACH) {
      allowed.failed('too many calls wait');
      return { kind: 'down', why: 'too many calls wait', retryAfterMs: OPEN_MS };
    }
    const from = this.#clock.now();
    const answer = await this.#ask<Row>(statementOf(fn, args.length), args);
    const ok = answer.kind === 'rows';
    this.#options.called?.(fn, ok, this.#clock.now() - from);
    if (ok || answer.why === LOCK_NOT_AVAILABLE) allowed.succeeded();
    else allowed.failed(answer.why);
    return answer;
  }

  #ask<Row>(text: string, args: readonly unknown[]): Promise<Answer<Row>> {
    return new Promise((resolve) => {
      let over = false;
      const ended = (): boolean => over;
      let sent = false;
      let used: pg.PoolClient | undefined;
      const down = (why: string): void => {
        over = true;
        cancelTimer();
        resolve({ kind: 'down', why, retryAfterMs: OPEN_MS, ...(sent && { sent: true as const }) });
      };
      const cancelTimer = this.#clock.after(this.#options.timeoutMs, () => {
        used?.release(true);
        down('timeout');
      });
      const run = async (): Promise<void> => {
        const client = await this.#pool.connect();
        // The timeout was first: the connection is as good as new.
        if (over) {
          client.release();
          return;
        }
        used = client;
        sent = true;
        try {
          const { rows } = await client.query({ text, values: [...args] });
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
        if (!over) down(codeOf(error));
      });
    });
  }

  /** Closes all connections; calls in flight fail. Idempotent. */
  async close(): Promise<void> {
    if (!this.#pool.ending) await this.#pool.end();
  }
}

/** One connection of an operator's command, for statements of any length. Rejects with one line if there is none. */
export async function connectOnce<T>(
  options: Omit<DatabaseOptions, 'timeoutMs' | 'connections'> & { readonly connectMs: number },
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
  { address, passwordFile, caFile }: Pick<DatabaseOptions, 'address' | 'passwordFile' | 'caFile'>,
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

async function caOf({ caFile }: Pick<DatabaseOptions, 'caFile'>): Promise<string | undefined> {
  return caFile === undefined ? undefined : await readFile(caFile, 'utf8');
}

function statementOf(fn: string, args: number): string {
  return `select * from ra_sidecar.${fn}(${Array.from({ length: args }, (_, i) => `$${i + 1}`).join(', ')})`;
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? 'connection';
}

/** What went wrong, without values: PostgreSQL's own message names roles and objects, never data of ours. */
export function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return [message, code].filter((part) => part !== undefined && part !== '').join(', ');
}
