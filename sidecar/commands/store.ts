/** `ra-sidecar store`: the schema of the fleet's database. `replicas`: the sidecars that share it. `prices`: the price file in it. */
import { hostname } from 'node:os';
import type { Config } from '../config/config.js';
import { storeAddressOf, type StoreAddress } from '../config/store-schema.js';
import { systemClock } from '../lib/clock.js';
import { askAll, changePrices, readDocument, readReplicas } from '../store/keys.js';
import { connectOnce, Database, reasonOf, type ConnectionOptions } from '../store/database.js';
import { migrate, SCHEMA_VERSION } from '../store/migrate.js';
import { sha256 } from '../usage/durable-sums.js';
import { parsePrices, readPriceText } from '../usage/prices.js';
import { rowsOfText, type TotalsRow } from '../usage/totals-files.js';
import { EXIT, failedWith, parsed, runOf, UsageError, type Output, type Values } from './command.js';
import { COMMANDS } from './command-table.js';
import { columns } from './terminal.js';

/** The longest wait for a connection, ms. */
export const CONNECT_MS = 5000;

/** Runs `store` with these arguments. Resolves with the exit code; rejects with one line if the store cannot be reached. */
export function store(
  { store: settings }: Pick<Config, 'store'>,
  args: readonly string[],
  output: Output,
): Promise<number> {
  return runOf('store', COMMANDS.store, args, {
    migrate: ({ values }) => migrateStore(settings, values, output),
    status: ({ values }) => status(settings, values.json === true, output),
  });
}

/** Runs `replicas` with these arguments. Resolves with the exit code; rejects with one line if the store refuses or does not answer. */
export async function replicas(
  { store: settings }: Pick<Config, 'store'>,
  args: readonly string[],
  { out }: Output,
): Promise<number> {
  const { values } = parsed(COMMANDS.replicas, args);
  const all = await withDatabase(settings, (database) => readReplicas(database));
  const cells = all.map(({ id, host, release, epoch, joined, leaseMs, held }) => {
    return [id, host, release, `${epoch}`, joined, leaseMs > 0 ? 'live' : 'gone', held];
  });
  if (values.json) out(`${JSON.stringify({ replicas: all })}\n`);
  else out(columns([['REPLICA', 'HOST', 'RELEASE', 'EPOCH', 'JOINED', 'STATE', 'HELD'], ...cells]));
  return EXIT.done;
}

/** What the sidecars of the store have put of a day, of one account or of all. */
export async function usageOn(database: Database, day: string, account: string | undefined): Promise<TotalsRow[]> {
  const all = await askAll<{ sums: string }>(database, 'usage_on', [day, account ?? null]);
  return all.flatMap(({ sums }) => rowsOfText(sums));
}

/** Runs `prices` with these arguments. Resolves with the exit code; rejects with one line if the file is invalid or the store refuses. */
export function prices(
  { store: settings, models }: Pick<Config, 'store' | 'models'>,
  args: readonly string[],
  { out, err: say }: Output,
): Promise<number> {
  return runOf('prices', COMMANDS.prices, args, {
    import: async ({ operands: [file = ''], values: { revision } }) => {
      const text = await readPriceText(file);
      parsePrices(text, file, models, Date.now());
      await withDatabase(settings, async (database) => {
        const there = await readDocument(database, 'prices');
        const before = there === undefined ? '' : sha256(there);
        if (revision === undefined && there !== undefined && there !== text)
          throw new Error(`the store has other prices: see prices show; --revision ${before} replaces them`);
        await changePrices(database, text, revision ?? before, operatorHere());
      });
      say('sidecars use these prices for requests that begin from now on\n');
      return EXIT.done;
    },
    show: async () => {
      const text = await withDatabase(settings, (database) => readDocument(database, 'prices'));
      if (text === undefined) return failedWith(say, 'the store has no prices');
      out(`${text.trim()}\n`);
      say(`revision ${sha256(text)}\n`);
      return EXIT.done;
    },
  });
}

type MigrateOptions = Values<typeof COMMANDS.store.commands.migrate.options>;

async function migrateStore(settings: Config['store'], values: MigrateOptions, output: Output): Promise<number> {
  const role = addressOf(settings.url, 'store.url').user;
  const connection = ownersConnection(settings, values);
  const { from, to, granted } = await connectOnce({ ...connection, connectMs: CONNECT_MS }, (client) =>
    migrate(client, role).catch((error: unknown) => {
      throw new Error(`the store was not migrated: ${reasonOf(error)}`, { cause: error });
    }),
  );
  output.err(from === to ? `the schema is at version ${to}\n` : `migrated the schema from version ${from} to ${to}\n`);
  if (granted === undefined)
    output.err(`warning: ${role} owns the schema: give sidecars another user, which may only execute functions\n`);
  else output.err(`${granted} may execute the functions of the schema\n`);
  return EXIT.done;
}

async function status(settings: Config['store'], json: boolean, { out, err: say }: Output): Promise<number> {
  const connection = { ...storeConnection(settings), connectMs: CONNECT_MS };
  const version = await connectOnce(connection, async (client) => {
    try {
      const { rows } = await client.query<{ version: number }>('select * from ra_sidecar.schema_version()');
      return rows[0]?.version ?? 0;
    } catch (error) {
      throw new Error(`the store is not migrated: ${reasonOf(error)}`, { cause: error });
    }
  });
  if (json) out(`${JSON.stringify({ version, needed: SCHEMA_VERSION })}\n`);
  else out(`schema version ${version}; this release needs ${SCHEMA_VERSION}\n`);
  if (version >= SCHEMA_VERSION) return EXIT.done;
  return failedWith(say, 'the schema is older than this release needs: run ra-sidecar store migrate');
}

function addressOf(url: string | undefined, name: string): StoreAddress {
  if (url === undefined) throw new UsageError('store: store.url is not set');
  const address = storeAddressOf(url);
  if (!address) throw new UsageError(`${name} must name user, host and database, and no password`);
  return address;
}

/** As sidecars connect. Throws {@link UsageError} if `store.url` is missing. */
export function storeConnection({ url, passwordFile, caFile }: Config['store']): ConnectionOptions {
  return { address: addressOf(url, 'store.url'), passwordFile, caFile };
}

/** Who runs a command, as the store's audit has it. */
export function operatorHere(): string {
  return `uid:${process.getuid?.() ?? ''}@${hostname()}`;
}

/** Runs `use` with the store's functions, as sidecars call them. */
export async function withDatabase<T>(settings: Config['store'], use: (database: Database) => Promise<T>): Promise<T> {
  const connection = storeConnection(settings);
  const database = await Database.open(systemClock, { ...connection, connections: 1, timeoutMs: CONNECT_MS });
  try {
    return await use(database);
  } finally {
    await database.close();
  }
}

/** As the owner of the schema connects: with `--url` and `--password-file`, each of which may be absent. */
function ownersConnection(settings: Config['store'], options: MigrateOptions): ConnectionOptions {
  const { url, passwordFile, caFile } = settings;
  const file = options['password-file'] ?? (options.url === undefined ? passwordFile : undefined);
  const address = options.url === undefined ? addressOf(url, 'store.url') : addressOf(options.url, '--url');
  return { address, passwordFile: file, caFile };
}
