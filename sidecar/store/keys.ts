/**
 * Keys and prices that a fleet has in its store (migrations/documents.ts), as operators change them: over HTTP at any sidecar, and by
 * command.
 *
 *     a part is read ──> changed and checked as in a file ──> kept if no other change was first ──> NOTIFY
 *           └─────────────────────another change was first─────────────────────┘
 */
import { changeKeys, actionOf, type KeyChangeTask, type KeyTaskEnd, type NotDone } from '../access/key-tasks.js';
import { checked, NO_KEYS, parseKeyFile, type KeyFile } from '../access/key-file.js';
import { KeyStore, type About, type Changed, type KeysPlace } from '../access/keys.js';
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
const READS = ['document', 'keys_part'];

/** Changes of others that may come first, each of which a change is made again after. */
const MOST_TRIES = 20;

/** What files are called in messages. */
const STORE = 'the store';

/** An outcome, and PostgreSQL's codes, of what is refused here: another change was first, keys are too long, two keys have one hash. */
const REFUSALS: Readonly<Record<string, string>> = {
  moved: 'the prices are no longer those of this revision: read them again, and make the change to these',
  '54000': 'the keys would be longer than 64 MB',
  '23505': 'two keys would have one hash',
};

/** The store did not do what it was asked. The message is one line for the operator. */
export class StoreRefusal extends Error {
  override readonly name = 'StoreRefusal';
  /** The same over HTTP. */
  readonly end: NotDone;

  constructor(code: string, sent: boolean) {
    const why = REFUSALS[code] ?? (UNPREPARED[code] && `the store ${UNPREPARED[code]}`);
    super(why ?? `the store does not answer (${code})${sent ? ': whether the change was made is not known' : ''}`);
    this.end = why === undefined ? { kind: 'unanswered', sent } : { kind: 'failed', why, moved: code === 'moved' };
  }
}

/**
 * The keys in the store, for the changes of one operator. `action`: as in the audit. Its method rejects with {@link StoreRefusal}.
 */
export function storeKeys(database: Database, operator: string, action: string): KeysPlace {
  const changed = async <T>(about: About, change: (before: KeyFile) => Changed<T>): Promise<T> => {
    const asked = 'key' in about ? [about.key, null] : [null, about.account];
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const part = await ask<DocumentRow>(database, 'keys_part', asked);
      const before = part.content === null ? NO_KEYS : parseKeyFile(part.content, STORE);
      const { after, note, result } = change(before);
      if (!after) return result;
      checked(after, STORE);
      const keys = after.keys.filter((key) => !before.keys.includes(key));
      const accounts = Object.entries(after.accounts ?? {}).filter(([name, it]) => before.accounts?.[name] !== it);
      const account = keys[0]?.account ?? ('account' in about ? about.account : null);
      const given = [JSON.stringify(keys), JSON.stringify(Object.fromEntries(accounts))];
      const noted = [operator, action, account, JSON.stringify(note)];
      const { outcome } = await ask<{ outcome: 'changed' | 'moved' | 'late' }>(
        database,
        'change_keys',
        [part.revision, ...given, ...noted],
        (code) => (code === LOCK_NOT_AVAILABLE ? { outcome: 'late' } : undefined),
      );
      if (outcome === 'changed') return result;
    }
    throw new LockError('other changes of the keys are being made; try again');
  };
  return { change: changed };
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

/**
 * Puts the text of a price file, which is valid, in the place of that with this revision: the SHA-256 of its text, hex; '': there is none.
 * Rejects with {@link StoreRefusal}.
 */
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

/** One call and its row. `excused`: the row for an error that is an answer too. */
async function ask<Row>(
  database: Database,
  fn: string,
  args: readonly unknown[],
  excused: (code: string) => Row | undefined = () => undefined,
): Promise<Row> {
  const withinMs = fn === 'keys_part' || fn === 'change_keys' ? CALL_MS : DOCUMENT_MS;
  const answer = await database.call<Row>(fn, args, { withinMs });
  const [row] = answer.kind === 'rows' ? answer.rows : [excused(answer.why)];
  if (row !== undefined) return row;
  if (answer.kind === 'rows') throw new Error(`${fn} without a row`);
  throw new StoreRefusal(answer.why, answer.sent === true && !READS.includes(fn));
}
