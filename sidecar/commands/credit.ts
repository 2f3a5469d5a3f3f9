/** `ra-sidecar credit`: prepaid credit, mostly in the store of a fleet. Each change there leaves a row in the table `audit` in the same transaction. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { spoolDir } from '../app/usage.js';
import type { Config } from '../config/config.js';
import { isGrant } from '../access/credit.js';
import { formatUsd, parseUsd } from '../domain/money.js';
import { systemClock } from '../lib/clock.js';
import { Database } from '../store/database.js';
import { askAll, grantCredit, LONGEST_MS, readReplicas, writeOff } from '../store/keys.js';
import { Posting } from '../store/posting.js';
import { placeIn, Replica } from '../store/replica.js';
import type { Log } from '../telemetry/logger.js';
import { postedFile } from '../usage/delivery/files.js';
import { lockDir } from '../usage/lock.js';
import { Spool } from '../usage/spool.js';
import type { KeysView } from '../api/keys-page.js';
import { askSidecar } from './ask-sidecar.js';
import { EXIT, failedWith, runOf, UsageError, type Output } from './command.js';
import { COMMANDS } from './command-table.js';
import { CONNECT_MS, operatorHere, storeConnection, withDatabase } from './store.js';
import { columns } from './terminal.js';

/** The lease of the command itself, at least, ms: its calls may take a fifth of it. */
const LEASE_MS = 30_000;

/** How long the store may take to post what a spool has, between two answers, and how often that is looked at, ms. */
const SILENCE_MS = 30_000;
const LOOK_MS = 100;

type Settings = Pick<Config, 'store' | 'dataDir' | 'usage' | 'credit' | 'request' | 'operators'>;

/** Runs `credit` with these arguments. Resolves with the exit code; rejects with one line if the store refuses or cannot be reached. */
export function credit(settings: Settings, args: readonly string[], output: Output): Promise<number> {
  return runOf('credit', COMMANDS.credit, args, {
    grant: ({ values, operands: [account = ''] }) => {
      const { usd, id } = values;
      if (usd === undefined || id === undefined) throw new UsageError('credit grant: --usd and --id are needed');
      return grant(settings, { account, usd, id }, output);
    },
    balance: ({ values, operands: [account] }) =>
      (settings.credit.file === undefined ? balance : balanceHere)(settings, account, values.json === true, output),
    reconcile: ({ values }) => {
      const dataDir = values['data-dir'] ?? settings.dataDir;
      return reconcile({ ...settings, dataDir }, longestMs(settings, values.longest), output);
    },
    'write-off': async ({ values, operands: [id = ''] }) => {
      const longest = longestMs(settings, values.longest);
      const released = await withDatabase(settings.store, (database) =>
        writeOff(database, operatorHere(), id, longest),
      );
      output.err(`${released} USD that ${id} held are given back to their accounts\n`);
      return EXIT.done;
    },
  });
}

function longestMs({ request }: Settings, seconds: string | undefined): number {
  if (seconds === undefined) return request.timeoutMs || LONGEST_MS;
  if (!/^\d{1,6}$/.test(seconds)) throw new UsageError('--longest must be whole seconds');
  return Number(seconds) * 1000;
}

async function grant(
  settings: Settings,
  { account, usd, id }: { readonly account: string; readonly usd: string; readonly id: string },
  { err: say }: Output,
): Promise<number> {
  if (!isGrant({ id, usd }) || account === '' || account.length > 256)
    throw new UsageError('--usd must be dollars as decimal text, with at most 12 decimal places');
  const task = { account, grant: { id, usd, at: '' } };
  const { kind } = await withDatabase(settings.store, (database) => grantCredit(database, operatorHere(), task));
  if (kind === 'known-grant') return failedWith(say, 'there is a grant with this id: nothing was changed');
  say(`granted ${formatUsd(parseUsd(usd) ?? 0n)} USD\n`);
  return EXIT.done;
}

type BalanceRow = Readonly<Record<'account' | 'granted' | 'settled' | 'held' | 'uncovered', string>>;

async function balance(
  settings: Settings,
  account: string | undefined,
  json: boolean,
  { out, err: say }: Output,
): Promise<number> {
  const rows = await withDatabase(settings.store, async (database) => {
    const rows: BalanceRow[] = [];
    for (let after = ''; ; after = rows.at(-1)?.account ?? '') {
      const more = await askAll<BalanceRow>(database, 'balances', [account ?? null, after]);
      rows.push(...more);
      if (account !== undefined || more.length === 0) return rows;
    }
  });
  const accounts = rows.map(({ account: name, granted, settled, held, uncovered }) => ({
    account: name,
    granted: formatUsd(BigInt(granted)),
    settled: formatUsd(BigInt(settled)),
    held: formatUsd(BigInt(held)),
    available: formatUsd(BigInt(granted) - BigInt(settled) - BigInt(held)),
    uncovered: formatUsd(BigInt(uncovered)),
  }));
  if (json) out(`${JSON.stringify({ accounts })}\n`);
  else
    out(columns([['ACCOUNT', 'GRANTED', 'SETTLED', 'HELD', 'AVAILABLE', 'UNCOVERED'], ...accounts.map(Object.values)]));
  if (account === undefined || accounts.length > 0) return EXIT.done;
  return failedWith(say, 'the store has no such account');
}

/** Keys of one answer, so that it is short enough. */
const PAGE = 50;

/** The balances of `credit.file`, as the sidecar that runs knows them: of accounts that have keys. */
async function balanceHere(
  { operators }: Settings,
  account: string | undefined,
  json: boolean,
  { out, err: say }: Output,
): Promise<number> {
  const found = new Map<string, object>();
  const query = new URLSearchParams({ limit: `${PAGE}`, ...(account !== undefined && { account }) });
  let more: boolean;
  do {
    const path = `/keys?${query.toString()}`;
    const asked = await askSidecar<KeysView>(operators, { method: 'GET', path, silenceMs: SILENCE_MS });
    if (asked.kind === 'none') return failedWith(say, asked.why);
    const { data, accounts = [], hasMore, error } = asked.body;
    if (!data) return failedWith(say, error?.message ?? 'operators.secretFile has to be set');
    for (const { account: name, balance } of accounts)
      found.set(name, { account: name, granted: balance?.granted ?? null, available: balance?.available ?? null });
    more = hasMore === true;
    query.set('after', data.at(-1)?.id ?? '');
  } while (more);
  const rows = [...found.values()];
  if (json) out(`${JSON.stringify({ accounts: rows })}\n`);
  else
    out(
      columns([
        ['ACCOUNT', 'GRANTED', 'AVAILABLE'],
        ...rows.map((row) => Object.values(row).map((cell: string | null) => cell ?? '-')),
      ]),
    );
  if (account === undefined || rows.length > 0) return EXIT.done;
  return failedWith(say, 'no key is of this account');
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
    const [row] = await readReplicas(database, id);
    // From here on a sidecar with a copy of this folder is fenced.
    const unprepared = await replica.begin();
    if (unprepared !== undefined) throw new Error(unprepared);
    if (!replica.session) throw new Error('the store does not answer');
    const waitMs = row ? Math.max(0, row.leaseMs + longest) : 0;
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
  say(`${id} is reconciled: ${formatUsd(released)} USD that it held and had not spent are given back\n`);
  return EXIT.done;
}

/** Warnings and errors of the parts that a command uses, for people. */
function logTo(say: (text: string) => void): Log {
  const line = (event: string, { reason }: { readonly reason?: string } = {}): void =>
    say(`${event}${reason === undefined ? '' : `: ${reason}`}\n`);
  const log: Log = { error: line, warn: line, info: () => undefined, debug: () => undefined, forRequest: () => log };
  return log;
}
