/** What operators do to keys, accounts and grants over HTTP, each with a line in the audit first. Large files are parsed in a thread. */
import { stat } from 'node:fs/promises';
import { Worker } from 'node:worker_threads';
import type { FileInForce } from '../lib/followed-file.js';
import { LockError } from '../lib/replace-file.js';
import { audited, reasonOf } from './audit.js';
import { addGrant, type Grant } from './credit.js';
import type { KeysInForce } from './key-identity.js';
import { described, readKeyFile, type DescribedKey, type StoredAccount } from './key-file.js';
import {
  KeyStore,
  type AccountChanged,
  type ChangeNote,
  type NewKey,
  type Patch,
  type PropertiesChanged,
  type Revoked,
  type Rotated,
} from './keys.js';
import { isLarge } from './large-file.js';

/** Plain data, which a thread can be given. */
export type KeyTask =
  | {
      readonly kind: 'list';
      readonly account?: string | undefined;
      readonly after?: string | undefined;
      readonly limit: number;
    }
  | { readonly kind: 'create'; readonly properties: Parameters<KeyStore['create']>[0] }
  | { readonly kind: 'change'; readonly id: string; readonly patch: Patch }
  | { readonly kind: 'rotate'; readonly id: string; readonly graceMs: number }
  | { readonly kind: 'revoke'; readonly id: string }
  | { readonly kind: 'account'; readonly account: string; readonly action: string; readonly patch: Patch }
  | { readonly kind: 'grant'; readonly account: string; readonly grant: Grant };

export type GrantTask = Extract<KeyTask, { readonly kind: 'grant' }>;

export type KeyChangeTask = Exclude<KeyTask, { readonly kind: 'list' | 'grant' }>;

/** Some of the keys, in the order of their accounts and then of the file. */
export interface KeysListed {
  readonly kind: 'listed';
  readonly keys: readonly DescribedKey[];
  /** Of these keys. */
  readonly accounts: Readonly<Record<string, StoredAccount>>;
  readonly hasMore: boolean;
}

export type KeyTaskEnd =
  | KeysListed
  | ({ readonly kind: 'created' } & NewKey)
  | PropertiesChanged
  | Revoked
  | Rotated
  | AccountChanged
  | { readonly kind: 'granted' | 'known-grant' }
  /** Another process holds the file's lock. */
  | { readonly kind: 'busy' }
  /** A file or store refuses. `why`: one line for the operator; `code`: `moved`: another change was first; `unknown`: no such replica. */
  | { readonly kind: 'failed'; readonly why: string; readonly code?: string }
  /** The store of a fleet does not answer. `sent`: the change may have been made. */
  | { readonly kind: 'unanswered'; readonly sent: boolean };

/** Why a store did not do what it was asked. */
export type NotDone = Extract<KeyTaskEnd, { readonly kind: 'failed' | 'unanswered' }>;

/** A file that a sidecar follows, or a part of a fleet's store. */
interface Followed<Task> {
  reload(): Promise<void>;
  /** Makes a change in a fleet's store. Rejects only with faults. */
  change?(operator: string, task: Task): Promise<KeyTaskEnd>;
}

/** The keys file; with a store a copy of its keys. */
export interface FollowedKeys extends Followed<KeyChangeTask> {
  inForce(): Promise<KeysInForce>;
}

/** The credit file, or a store. */
export interface FollowedGrants extends Followed<GrantTask> {
  readonly inForce: FileInForce;
}

/** The sidecars of a fleet. */
export interface FollowedFleet {
  replicas(): Promise<readonly object[] | NotDone>;
  /** Gives back what one holds that is gone. Returns how much, in USD. */
  writeOff(operator: string, id: string): Promise<string | NotDone>;
}

/** The price file of a fleet's store, of which a sidecar has a copy. */
export interface FollowedPrices {
  /** The text of the copy and its revision. `problem`: why it may not be what the store has, or is not in force here. */
  read(): Promise<{ readonly text: string; readonly revision: string; readonly problem: string | undefined }>;
  /** Replaces the price file that has this `revision`, and applies it here. Undefined: done. `invalid`: why a start would refuse it. */
  change(
    operator: string,
    text: string,
    revision: string,
  ): Promise<{ readonly kind: 'invalid'; readonly why: string } | NotDone | undefined>;
}

export interface OperatorsTask {
  /** The keys file, or of a grant the credit file. */
  readonly file: string;
  readonly audit: string;
  /** As in {@link AuditLine}. */
  readonly operator: string;
  readonly task: KeyTask;
}

/** The action of a task, as the audit has it. */
export function actionOf(task: KeyTask): string {
  return task.kind === 'account' ? task.action : task.kind;
}

/** Does the task. Rejects only with faults. */
export async function doKeyTask(given: OperatorsTask): Promise<KeyTaskEnd> {
  const size = await stat(given.file).then(
    (found) => found.size,
    () => 0,
  );
  return isLarge(size) ? inThread(given) : doHere(given);
}

/** The same in this thread. */
export async function doHere({ file, audit, operator, task }: OperatorsTask): Promise<KeyTaskEnd> {
  try {
    return await audited(audit, { operator, action: actionOf(task) }, (note) => doTask(task, file, note));
  } catch (error) {
    if (error instanceof LockError) return { kind: 'busy' };
    const why = reasonOf(error);
    if (why === undefined) throw error;
    return { kind: 'failed', why };
  }
}

async function doTask(task: KeyTask, file: string, note: (what: ChangeNote) => Promise<void>): Promise<KeyTaskEnd> {
  switch (task.kind) {
    case 'list':
      return listed(file, task);
    case 'grant': {
      const { account, grant } = task;
      const changes = { account, usd: grant.usd };
      const added = await addGrant(file, account, grant, () => note({ id: grant.id, changes }));
      return { kind: added === 'known' ? 'known-grant' : added };
    }
    default:
      return await changeKeys(new KeyStore(file, { note }), task);
  }
}

/** Does a task that changes keys. Rejects as the methods of {@link KeyStore}. */
export async function changeKeys(store: KeyStore, task: KeyChangeTask): Promise<KeyTaskEnd> {
  switch (task.kind) {
    case 'create':
      return { kind: 'created', ...(await store.create(task.properties)) };
    case 'change':
      return store.change(task.id, task.patch);
    case 'rotate':
      return store.rotate(task.id, task.graceMs);
    case 'revoke':
      return store.revoke(task.id);
    case 'account':
      return store.changeAccount(task.account, task.patch);
  }
}

async function listed(file: string, { account, after, limit }: KeyTask & { kind: 'list' }): Promise<KeyTaskEnd> {
  const content = await readKeyFile(file);
  const now = Date.now();
  const shown = content.keys.filter((key) => account === undefined || key.account === account);
  // A stable sort.
  const sorted = shown.sort((a, b) => compare(a.account ?? '', b.account ?? ''));
  const from = sorted.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && from === 0) return { kind: 'unknown' };
  const keys = sorted.slice(from, from + limit).map((key) => described(key, content, now));
  const names = new Set(keys.flatMap((key) => key.account ?? []));
  const accounts = Object.entries(content.accounts ?? {}).filter(([name]) => names.has(name));
  return { kind: 'listed', keys, accounts: Object.fromEntries(accounts), hasMore: from + limit < sorted.length };
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

async function inThread(given: OperatorsTask): Promise<KeyTaskEnd> {
  const thread = new Worker(new URL('./key-task-thread.js', import.meta.url), { workerData: given });
  return await new Promise((resolve, reject) => {
    thread.once('message', resolve);
    thread.once('error', reject);
    thread.once('exit', () => reject(new Error('the thread ended')));
  });
}
