/**
 * `ra-sidecar credit`: prepaid credit in the store of a fleet. What changes an account is done as the owner of the schema, since sidecars may
 * only execute functions, and leaves a row in the table `audit` in the same transaction.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { spoolDir } from '../app/usage.js';
import type { Config } from '../config/config.js';
import { isGrant } from '../access/credit.js';
import { formatUsd, parseUsd } from '../domain/money.js';
import { systemClock } from '../lib/clock.js';
import { connectOnce, Database, reasonOf, type ConnectionOptions } from '../store/database.js';
import { Posting } from '../store/posting.js';
import { placeIn, Replica } from '../store/replica.js';
import type { Log } from '../telemetry/logger.js';
import { postedFile } from '../usage/delivery/files.js';
import { lockDir } from '../usage/lock.js';
import { Spool } from '../usage/spool.js';
import { EXIT, failedWith, runOf, UsageError, type Output } from './command.js';
import { COMMANDS } from './command-table.js';
import { CONNECT_MS, operatorHere, ownersConnection, storeConnection } from './store.js';
import { columns } from './terminal.js';

/** The longest request where `request.timeoutMs` sets no limit, ms. */
const LONGEST_MS = 600_000;

/** The lease of the command itself, at least, ms: its calls may take a fifth of it. */
const LEASE_MS = 30_000;

/** How long the store may take to post what a spool has, between two answers, and how often that is looked at, ms. */
const SILENCE_MS = 30_000;
const LOOK_MS = 100;

type Settings = Pick<Config, 'store' | 'dataDir' | 'usage' | 'credit' | 'request'>;

/** Runs `credit` with these arguments. Resolves with the exit code; rejects with one line if the store refuses or cannot be reached. */
export function credit(settings: Settings, args: readonly string[], output: Output): Promise<number> {
  return runOf('credit', COMMANDS.credit, args, {
    grant: ({ values, operands: [account = ''] }) => {
      const { usd, id } = values;
      if (usd === undefined || id === undefined) throw new UsageError('credit grant: --usd and --id are needed');
      return grant(ownersConnection(settings.store, values), { account, usd, id }, output);
    },
    balance: ({ values, operands: [account] }) =>
      balance(storeConnection(settings.store), account, values.json === true, output),
    reconcile: ({ values }) => {
      const dataDir = values['data-dir'] ?? settings.dataDir;
      return reconcile({ ...settings, dataDir }, longestMs(settings, values.longest), output);
    },
    'write-off': ({ values, operands: [name = ''] }) => {
      const longest = longestMs(settings, values.longest);
      return writeOff(ownersConnection(settings.store, values), name, longest, output);
    },
  });
}

function longestMs({ request }: Settings, seconds: string | undefined): number {
  if (seconds === undefined) return request.timeoutMs === 0 ? LONGEST_MS : request.timeoutMs;
  if (!/^\d{1,6}$/.test(seconds)) throw new UsageError('--longest must be whole seconds');
  return Number(seconds) * 1000;
}

/** Runs statements on one connection. Rejects with one line. */
async function withStore<T>(
  connection: ConnectionOptions,
  use: (query: <Row>(text: string, values?: readonly unknown[]) => Promise<readonly Row[]>) => Promise<T>,
): Promise<T> {
  return await connectOnce({ ...connection, connectMs: CONNECT_MS }, (client) =>
    use(async <Row>(text: string, values: readonly unknown[] = []) => {
      try {
        const { rows } = await client.query({ text, values: [...values] });
        return rows as Row[];
      } catch (error) {
        throw new Error(`the store refuses: ${reasonOf(error)}`, { cause: error });
      }
    }),
  );
}

async function grant(
  connection: ConnectionOptions,
  { account, usd, id }: { readonly account: string; readonly usd: string; readonly id: string },
  { err: say }: Output,
): Promise<number> {
  const amount = parseUsd(usd);
  if (amount === undefined || !isGrant({ id, usd }) || account === '' || account.length > 256)
    throw new UsageError('--usd must be dollars as decimal text, with at most 12 decimal places');
  const [row] = await withStore(connection, (query) =>
    query<{ added: string }>(
      `with added as (
         insert into ra_sidecar.credit_grant (id, account, amount) values ($1, $2, $3::numeric)
         on conflict (id) do nothing returning account, amount
       ), granted as (
         insert into ra_sidecar.account as a (name, granted) select account, amount from added
         on conflict (name) do update set granted = a.granted + excluded.granted
       ), noted as (
         insert into ra_sidecar.audit (operator, action, account, amount, detail)
         select $4, 'grant', account, amount, $1 from added
       )
       select count(*) as added from added`,
      [id, account, `${amount}`, operatorHere()],
    ),
  );
  if (row?.added !== '1') return failedWith(say, 'there is a grant with this id: nothing was changed');
  say(`granted ${formatUsd(amount)} USD\n`);
  return EXIT.done;
}

interface BalanceRow {
  readonly account: string;
  readonly granted: string;
  readonly settled: string;
  readonly held: string;
  readonly uncovered: string;
}

interface HolderRow {
  readonly id: string;
  readonly host: string;
  readonly lease_ms: string;
  readonly held: string;
}

async function balance(
  connection: ConnectionOptions,
  account: string | undefined,
  json: boolean,
  { out, err: say }: Output,
): Promise<number> {
  const { rows, holders } = await withStore(connection, async (query) => {
    const rows: BalanceRow[] = [];
    for (let after = ''; ; after = rows.at(-1)?.account ?? '') {
      const more = await query<BalanceRow>('select * from ra_sidecar.balances($1, $2)', [account ?? null, after]);
      rows.push(...more);
      if (account !== undefined || more.length === 0) break;
    }
    return { rows, holders: await query<HolderRow>('select * from ra_sidecar.holders()') };
  });
  const accounts = rows.map(({ account: name, granted, settled, held, uncovered }) => ({
    account: name,
    granted: usdOf(granted),
    settled: usdOf(settled),
    held: usdOf(held),
    available: formatUsd(BigInt(granted) - BigInt(settled) - BigInt(held)),
    uncovered: usdOf(uncovered),
  }));
  const replicas = holders.map(({ id, host, lease_ms: ms, held }) => ({
    id,
    host,
    live: BigInt(ms) > 0n,
    held: usdOf(held),
  }));
  if (json) out(`${JSON.stringify({ accounts, replicas })}\n`);
  else {
    const cells = accounts.map((it) => [it.account, it.granted, it.settled, it.held, it.available, it.uncovered]);
    out(columns([['ACCOUNT', 'GRANTED', 'SETTLED', 'HELD', 'AVAILABLE', 'UNCOVERED'], ...cells]));
    const holding = replicas.map((it) => [it.id, it.host, it.live ? 'live' : 'gone', it.held]);
    if (holding.length > 0) out(`\n${columns([['HELD BY', 'HOST', 'STATE', 'USD'], ...holding])}`);
  }
  if (account === undefined || accounts.length > 0) return EXIT.done;
  return failedWith(say, 'the store has no such account');
}

function usdOf(picodollars: string): string {
  return formatUsd(BigInt(picodollars));
}

/** Posts what the spool of a dead replica has, and gives back what it held. */
async function reconcile(
  { store, dataDir, usage, credit: { onLostBalances: onLost } }: Settings,
  longest: number,
  { err: say }: Output,
): Promise<number> {
  const connection = storeConnection(store);
  const id = (await readFile(join(dataDir, 'replica-id'), 'utf8').catch(() => '')).trim();
  if (id === '') throw new Error(`${dataDir} has no replica-id: no sidecar has joined a store with this data folder`);
  const dir = spoolDir({ dataDir });
  const lock = await lockDir(dir);
  if (lock.kind === 'held')
    throw new Error(
      `the usage spool ${dir} is written by process ${lock.pid}: a sidecar that runs needs no reconciling`,
    );
  const database = await Database.open(systemClock, { ...connection, connections: 2, timeoutMs: CONNECT_MS });
  const replica = new Replica({
    clock: systemClock,
    log: logTo(say),
    database,
    place: await placeIn(dataDir),
    leaseMs: Math.max(store.leaseMs, LEASE_MS),
  });
  let spool: Spool | undefined;
  let posting: Posting | undefined;
  let released = 0n;
  try {
    const [row] = await withStore(connection, (query) =>
      query<{ lease_ms: number }>('select lease_ms from ra_sidecar.replicas() where id = $1', [id]),
    );
    // From here on a sidecar with a copy of this folder is fenced.
    const unprepared = await replica.begin();
    if (unprepared !== undefined) throw new Error(unprepared);
    if (!replica.session) throw new Error('the store does not answer');
    const waitMs = row ? Math.max(0, row.lease_ms + longest) : 0;
    if (waitMs > 0) say(`waiting ${Math.ceil(waitMs / 1000)} s, for the end of its lease and of its longest request\n`);
    await sleep(waitMs);
    const opened = await Spool.open(dir, usage, { clock: systemClock, lock: () => Promise.resolve(lock) });
    if (opened.kind === 'held') throw new Error('the usage spool is in use');
    ({ spool } = opened);
    let problem: string | undefined;
    posting = new Posting({
      ...{ clock: systemClock, log: logTo(say), database, replica, onLost },
      ...{ saved: postedFile(dir), keepBytes: usage.maxBacklogBytes / 2 },
      operator: operatorHere(),
      opened: (amount) => (released = amount),
      uncovered: () => say('warning: what was charged exceeds what the store held for it: see credit balance\n'),
      lost: (line) => (problem = line),
    });
    await posting.begin(spool);
    let seen = posting.posted;
    let silentAt = systemClock.now() + SILENCE_MS;
    while (!posting.isOpen) {
      if (problem !== undefined) throw new Error(problem);
      if (replica.fenced)
        throw new Error('another sidecar has started with this data folder: it posts what the spool has');
      if (posting.posted !== seen) silentAt = systemClock.now() + SILENCE_MS;
      if (systemClock.now() > silentAt) throw new Error('the store does not answer');
      seen = posting.posted;
      await sleep(LOOK_MS);
    }
  } finally {
    await posting?.close();
    await (spool?.close() ?? lock.release());
    await replica.close();
    await database.close();
  }
  say(`${id} is reconciled: ${formatUsd(released)} USD that it had drawn and not spent are given back\n`);
  return EXIT.done;
}

/** Warnings and errors of the parts that a command uses, for people. */
function logTo(say: (text: string) => void): Log {
  const line = (event: string, { reason }: { readonly reason?: string } = {}): void =>
    say(`${event}${reason === undefined ? '' : `: ${reason}`}\n`);
  const log: Log = { error: line, warn: line, info: () => undefined, debug: () => undefined, forRequest: () => log };
  return log;
}

/** Gives back what a replica held whose data folder is lost; charges that only its spool had are lost with it. */
async function writeOff(
  connection: ConnectionOptions,
  id: string,
  longest: number,
  { err: say }: Output,
): Promise<number> {
  return await withStore(connection, async (query) => {
    const [found] = await query<{ no: number; wait_ms: string }>(
      `select no, ceil(extract(epoch from lease_until - clock_timestamp()) * 1000)::bigint + $2::bigint as wait_ms
       from ra_sidecar.replica where id = $1`,
      [id, longest],
    );
    if (!found)
      return failedWith(
        say,
        'the store knows no such replica; `ra-sidecar credit balance` shows those that hold credit',
      );
    if (Number(found.wait_ms) > 0) {
      const s = Math.ceil(Number(found.wait_ms) / 1000);
      return failedWith(say, `its lease and its longest request may last for ${s} s more: nothing was changed`);
    }
    await query('begin');
    await query('select pg_advisory_xact_lock(7265, $1)', [found.no]);
    await query('select 1 from ra_sidecar.spool_position where replica = $1 for update', [found.no]);
    // A sidecar that goes on is fenced, and one that starts meanwhile is not written off.
    const fenced = await query(
      `update ra_sidecar.replica set epoch = epoch + 1, beat = beat + 1
       where no = $1 and lease_until <= clock_timestamp() - $2 * interval '1 ms' returning no`,
      [found.no, longest],
    );
    if (fenced.length === 0) {
      await query('rollback');
      return failedWith(say, 'it has started again: nothing was changed');
    }
    await query(
      `insert into ra_sidecar.audit (operator, action, account, replica, amount)
       select $2, 'write-off', account, $3, drawn - posted from ra_sidecar.escrow where replica = $1 and drawn > posted`,
      [found.no, operatorHere(), id],
    );
    const [row] = await query<{ released: string }>('select ra_sidecar.release_escrow($1) as released', [found.no]);
    await query('commit');
    say(`${usdOf(row?.released ?? '0')} USD that ${id} held are given back to their accounts\n`);
    return EXIT.done;
  });
}
