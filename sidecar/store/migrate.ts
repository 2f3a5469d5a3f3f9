/**
 * The store's schema, in numbered steps. A step is never changed once it was released, and only adds: sidecars of the release before
 * it work on, so that a fleet is upgraded after its store, replica by replica.
 *
 * Two roles: the owner of the schema migrates it; sidecars connect as another one, which may execute the functions and nothing else.
 * The functions run with the owner's rights and a fixed search path.
 */
import type { Client } from 'pg';
import { CLAIMS } from './migrations/claims.js';
import { CREDIT } from './migrations/credit.js';
import { DOCUMENTS } from './migrations/documents.js';
import { LIMITS } from './migrations/limits.js';
import { QUOTAS, USAGE } from './migrations/quotas.js';
import { REPLICAS } from './migrations/replicas.js';

/** In order: the first is number 1. */
const MIGRATIONS: readonly string[] = [REPLICAS, LIMITS, CLAIMS, CREDIT, DOCUMENTS, QUOTAS, USAGE];

/** The number of the last step that this release knows, and needs. */
export const SCHEMA_VERSION = MIGRATIONS.length;

/** The lowest PostgreSQL that is tested, as in `server_version_num`. */
const LOWEST_SERVER = 150_000;

/** Any number that no other program takes for its lock in the same database. */
const LOCK = 7_265_127_101;

/**
 * Brings the schema up to this release, each step in a transaction with its number, and grants `role` its functions. Rejects with
 * PostgreSQL's error. Idempotent; two at once wait for each other. `granted`: the role that may
 * execute the functions; undefined if it owns them.
 */
export async function migrate(client: Pick<Client, 'query'>, role: string) {
  const one = async <T>(text: string, values: unknown[] = []): Promise<T> => {
    const { rows } = await client.query<{ value: T }>(text, values);
    return (rows[0] as { value: T }).value;
  };
  const server = Number(await one<string>(`select current_setting('server_version_num') as value`));
  if (server < LOWEST_SERVER) throw new Error(`the store needs PostgreSQL ${LOWEST_SERVER / 10_000} or newer`);
  await client.query('begin');
  try {
    // For the transaction alone, so that PgBouncer may stand between.
    await client.query(`select pg_advisory_xact_lock(${LOCK})`);
    await client.query('create schema if not exists ra_sidecar');
    await client.query(
      'create table if not exists ra_sidecar.migration (version int primary key, applied_at timestamptz not null default now())',
    );
    const from = await one<number>('select coalesce(max(version), 0) as value from ra_sidecar.migration');
    for (let at = from; at < SCHEMA_VERSION; at++) {
      await client.query(MIGRATIONS[at] ?? '');
      await client.query('insert into ra_sidecar.migration (version) values ($1)', [at + 1]);
    }
    const owner = await one<string>('select current_user::text as value');
    await client.query('revoke all on all functions in schema ra_sidecar from public');
    if (owner !== role) {
      const name = await one<string>('select quote_ident($1) as value', [role]);
      await client.query(`grant usage on schema ra_sidecar to ${name}`);
      await client.query(`grant execute on all functions in schema ra_sidecar to ${name}`);
    }
    await client.query('commit');
    return { from, to: Math.max(from, SCHEMA_VERSION), granted: owner === role ? undefined : role };
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}
