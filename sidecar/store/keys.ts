/**
 * Keys, prices and credit that a fleet has in its store (migrations/documents.ts, credit.ts), as operators change them: over HTTP at any
 * sidecar, and by command.
 *
 *     a part is read ──> changed and checked as in a file ──> kept if no other change was first ──> NOTIFY
 *           └─────────────────────another change was first─────────────────────┘
 */
import {
  changeKeys,
  actionOf,
  type GrantTask,
  type KeyChangeTask,
  type KeyTaskEnd,
  type NotDone,
} from '../access/key-tasks.js';
import { checked, NO_KEYS, parseKeyFile, type KeyFile } from '../access/key-file.js';
import { KeyStore, type About, type Changed, type KeysPlace } from '../access/keys.js';
import { formatUsd, parseUsd } from '../domain/money.js';
import { FileProblem } from '../lib/checked-file.js';
import { LockError } from '../lib/replace-file.js';
import { LOCK_NOT_AVAILABLE, type Database } from './database.js';
import { UNPREPARED } from './replica.js';

/** Which documents the store has, and the channel on which the names of those that have changed are told. */
export type DocumentName = 'keys' | 'prices';
export const CHANGES = 'ra_sidecar_change';

/** A document, or that it is the one with the revision that was asked about. */
export interface DocumentRow {
  readonly revision: string;
  readonly content: string | null;
}

/** How long a whole document may take, ms: 64 MiB of keys at most. */
export const DOCUMENT_MS = 10_000;

/** How long an operator waits for a call about one key or account, ms. */
const CALL_MS = 2000;

/** Functions that change nothing. */
const READS = ['document', 'keys_part', 'balances', 'replicas', 'usage_on'];

/** Changes of others that may come first, each of which a change is made again after. */
const MOST_TRIES = 20;

/** What files are called in messages. */
const STORE = 'the store';

/** Outcomes, and PostgreSQL's codes, of what is refused here. */
const REFUSALS: Readonly<Record<string, string>> = {
  moved: 'the prices are no longer those of this revision: read them again, and make the change to these',
  '54000': 'the keys would be longer than 64 MB',
  '23505': 'two keys would have one hash',
  unknown: 'the store knows no such sidecar; `ra-sidecar replicas` shows those that it knows',
};

/** The store did not do what it was asked. The message is one line for the operator. */
export class StoreRefusal extends Error {
  override readonly name = 'StoreRefusal';
  readonly code: string;
  /** The same over HTTP. */
  readonly end: NotDone;

  constructor(
    code: string,
    sent: boolean,
    why = REFUSALS[code] ?? (UNPREPARED[code] && `the store ${UNPREPARED[code]}`),
  ) {
    super(why ?? `the store does not answer (${code})${sent ? ': whether the change was made is not known' : ''}`);
    this.code = code;
    this.end = why === undefined ? { kind: 'unanswered', sent } : { kind: 'failed', why, code };
  }
}

/** The keys in the store, for the changes of one operator. `action`: as in the audit. Its method rejects with {@link StoreRefusal}. */
export function storeKeys(database: Database, operator: string, action: string): KeysPlace {
  const changed = async <T>(about: About, change: (before: KeyFile) => Changed<T>): Promise<T> => {
    const asked = 'key' in about ? [about.key, null] : [null, about.account];
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const part = await ask<DocumentRow>(database, 'keys_part', asked, CALL_MS);
      const before = part.content === null ? NO_KEYS : parseKeyFile(part.content, STORE);
      const { after, note, result } = change(before);
      if (!after) return result;
      checked(after, STORE);
      const keys = after.keys.filter((key) => !before.keys.includes(key));
      const accounts = Object.entries(after.accounts ?? {}).filter(([name, it]) => before.accounts?.[name] !== it);
      const account = keys[0]?.account ?? ('account' in about ? about.account : null);
      const given = [JSON.stringify(keys), JSON.stringify(Object.fromEntries(accounts))];
      const args = [part.revision, ...given, operator, action, account, JSON.stringify(note)];
      const { outcome } = await ask<{ outcome: string }>(database, 'change_keys', args, CALL_MS).catch(late);
      if (outcome === 'changed') return result;
    }
    throw new LockError('other changes of the keys are being made; try again');
  };
  return { change: changed };
}

/** Another change holds the lock. */
function late(error: unknown): { readonly outcome: 'late' } {
  if (error instanceof StoreRefusal && error.code === LOCK_NOT_AVAILABLE) return { outcome: 'late' };
  throw error;
}

/** A task of an operator over HTTP, in the store. Rejects only with faults. */
export async function doStoreTask(database: Database, operator: string, task: KeyChangeTask): Promise<KeyTaskEnd> {
  try {
    return await tried(() => changeKeys(new KeyStore(storeKeys(database, operator, actionOf(task))), task));
  } catch (error) {
    if (error instanceof LockError) return { kind: 'busy' };
    throw error;
  }
}

/** The result of `change`, or that the store refuses or does not answer. */
export async function tried<T>(change: () => Promise<T>): Promise<T | NotDone> {
  try {
    return await change();
  } catch (error) {
    if (error instanceof FileProblem) return { kind: 'failed', why: error.message };
    if (error instanceof StoreRefusal) return error.end;
    throw error;
  }
}

/** All keys in the store. Rejects with {@link StoreRefusal}, or KeyFileError. */
export async function readStoreKeys(database: Database): Promise<KeyFile> {
  return parseKeyFile((await readDocument(database, 'keys')) ?? '', STORE);
}

/** A document of the store; undefined: there is none yet. Rejects with {@link StoreRefusal}. */
export async function readDocument(database: Database, name: DocumentName): Promise<string | undefined> {
  return (await ask<DocumentRow>(database, 'document', [name, null])).content ?? undefined;
}

/** Adds those keys and accounts of a file that the store does not have; development keys are one machine's and are left out. */
export async function importKeys(
  database: Database,
  { keys, accounts = {} }: KeyFile,
  operator: string,
): Promise<{ readonly keys: number; readonly accounts: number }> {
  const given = keys.filter(({ development }) => !development);
  return await ask(database, 'import_keys', [JSON.stringify(given), JSON.stringify(accounts), operator]);
}

/** Replaces the price file with this `revision` (SHA-256 of its text, hex; '': none) by a valid one. Rejects with {@link StoreRefusal}. */
export async function changePrices(
  database: Database,
  text: string,
  revision: string,
  operator: string,
): Promise<undefined> {
  const { prices } = JSON.parse(text) as { readonly prices: readonly { readonly version: string }[] };
  const versions = JSON.stringify({ versions: prices.map(({ version }) => version) });
  const { outcome } = await ask<{ outcome: string }>(database, 'change_prices', [text, revision, operator, versions]);
  if (outcome === 'moved') throw new StoreRefusal(outcome, false);
  return undefined;
}

/** Grants an account credit. Rejects with {@link StoreRefusal}. */
export async function grantCredit(database: Database, operator: string, { account, grant }: Omit<GrantTask, 'kind'>) {
  const args = [grant.id, account, `${parseUsd(grant.usd)}`, operator];
  const { done } = await ask<{ done: boolean }>(database, 'grant_credit', args, CALL_MS);
  return { kind: done ? 'granted' : 'known-grant' } as const;
}

/**
 * A thousand sidecars that the store knows, those that hold credit first; or the one with this id. `leaseMs`: until its lease ends, below 0
 * if it has. `held`: the credit that it holds, USD. Rejects with {@link StoreRefusal}.
 */
export async function readReplicas(database: Database, id?: string) {
  type Row = Readonly<
    Record<'id' | 'host' | 'release' | 'held' | 'lease_ms', string> & { epoch: number; joined_at: Date }
  >;
  return (await askAll<Row>(database, 'replicas', [id ?? null])).map(({ joined_at, lease_ms, held, ...rest }) => {
    return { ...rest, joined: joined_at.toISOString(), leaseMs: Number(lease_ms), held: formatUsd(BigInt(held)) };
  });
}

/**
 * Gives back the credit that a gone sidecar holds, if its lease ended at least `longestMs` ago, the longest time that its requests may
 * last. Returns the amount, USD. Rejects with {@link StoreRefusal}.
 */
export async function writeOff(database: Database, operator: string, id: string, longestMs: number): Promise<string> {
  type Row = Readonly<Record<'outcome' | 'wait_ms' | 'released', string>>;
  const row = await ask<Row>(database, 'write_off', [id, longestMs, operator]);
  const early = `its lease and its longest request may last for ${Math.ceil(Number(row.wait_ms) / 1000)} s more`;
  if (row.outcome !== 'done') throw new StoreRefusal(row.outcome, false, row.outcome === 'early' ? early : undefined);
  return formatUsd(BigInt(row.released));
}

/** The longest request where `request.timeoutMs` is 0, ms. */
export const LONGEST_MS = 600_000;

/** All rows of a call. Rejects with {@link StoreRefusal}. */
export async function askAll<Row>(database: Database, fn: string, args: readonly unknown[], withinMs = DOCUMENT_MS) {
  const answer = await database.call<Row>(fn, args, { withinMs });
  if (answer.kind === 'rows') return answer.rows;
  throw new StoreRefusal(answer.why, answer.sent === true && !READS.includes(fn));
}

async function ask<Row>(...call: Parameters<typeof askAll>): Promise<Row> {
  const [row] = await askAll<Row>(...call);
  if (row === undefined) throw new Error(`${call[1]} without a row`);
  return row;
}
