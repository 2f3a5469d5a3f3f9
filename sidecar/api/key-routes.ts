/**
 * Keys, accounts, grants and a fleet's prices over HTTP, on the operators' listener, for requests with an operator's secret.
 *
 *     request → secret → JSON → checked task → one at a time: line of the audit, file replaced → file read → answer
 *
 * The sidecar has a change in force before it answers. The text of a new key is in this one answer alone.
 */
import { join } from 'node:path';
import { isGrant, type Balance } from '../access/credit.js';
import { bearerOf } from '../access/identity.js';
import { CHANGEABLE, hashKey, problemOf, type DescribedKey, type StoredAccount } from '../access/key-file.js';
import {
  doKeyTask,
  type FollowedFleet,
  type FollowedGrants,
  type FollowedKeys,
  type FollowedPrices,
  type KeysListed,
  type KeyTask,
  type KeyTaskEnd,
  type NotDone,
} from '../access/key-tasks.js';
import { holdsKey, type KeyStore, type Patch } from '../access/keys.js';
import type { Config } from '../config/config.js';
import { isEnvironment } from '../config/schema.js';
import { contractError, type ContractError } from '../domain/errors.js';
import { formatUsd } from '../domain/money.js';
import type { Exchange, RequestHead } from '../http/exchange.js';
import type { Handler, Routes } from '../http/server.js';
import { TaskQueue } from '../lib/task-queue.js';
import type { AccountView, KeysView, KeyView } from './keys-page.js';
import { badBody, jsonBody, objectBody } from './operators.js';
import * as refusals from './refusals.js';
import type { Services } from './services.js';

/** What the routes use. It changes during the start. */
export interface KeysServices extends Pick<Services, 'credit' | 'totals'> {
  /** Absent: no keys file is used. */
  readonly keysFile?: FollowedKeys;
  /** Absent: credit is neither in a file nor in a store. */
  readonly grants?: FollowedGrants;
  /** Absent: there is no store. */
  readonly fleet?: FollowedFleet;
  /** Absent: prices are not in a store. */
  readonly prices?: FollowedPrices;
}

export interface KeyRoutesParts {
  readonly config: Pick<Config, 'dataDir' | 'keys' | 'credit' | 'environment' | 'models'>;
  /** Read at each request. */
  readonly services: () => KeysServices;
  /** The name of the operator whose secret the request has; undefined where no secret is configured. */
  readonly operatorOf: (head: RequestHead) => string | undefined;
}

/** A key with a long list of models. */
const MAX_BYTES = 32 * 1024;

/** A price file with a year of versions of a hundred models. */
const MAX_PRICE_BYTES = 4 * 1024 * 1024;

/** Keys of one answer. */
export const DEFAULT_KEYS = 100;
export const MOST_KEYS = 500;

/** Ten years. */
export const MAX_GRACE_MS = 3650 * 86_400_000;

const NO_STORE = { 'Cache-Control': 'no-store' } as const;

const NOT_MANAGED = contractError(
  'not_found',
  'Keys, prices, credit and replicas are managed over HTTP only where operators.secretFile is set. Set it and restart the sidecar, or use `ra-sidecar keys`, `prices`, `credit` or `replicas`.',
);
const NO_KEYS_FILE = contractError('not_found', 'This sidecar uses no keys file.');
const NO_STORE_OF_IT = contractError('not_found', 'There is no store of this here: see store.url and pricing.source.');
const NO_CREDIT = contractError('not_found', 'This sidecar has no credit.file, and credit.source is not store.');

/** Makes a task of a body and of the name in the path. */
type TaskOf = (body: Patch, name: string) => KeyTask | ContractError;

/** The routes. Where no operators' secret is set, a change gets 404, whose message names the setting, and GET /keys tells the file's state alone. */
export function keyRoutes(parts: KeyRoutesParts): Routes {
  // One change at a time, so that none polls the lock while another of this process holds it.
  const queue = new TaskQueue();
  const { environment } = parts.config;
  const changes =
    (taskOf: TaskOf, status = 200): Handler =>
    async (exchange) =>
      send(exchange, await change(exchange, parts, queue, taskOf), status);
  const account = (action: string, frozen: true | null): Handler =>
    changes((body, name) => nothing(body) ?? { kind: 'account', account: name, action, patch: { frozen } });
  return {
    '/keys': {
      GET: async (exchange) => send(exchange, await list(exchange, parts)),
      POST: changes((body) => creationOf(body, environment), 201),
    },
    '/keys/{id}': { PATCH: changes((body, id) => problemOfPatch(body, 'key') ?? { kind: 'change', id, patch: body }) },
    '/keys/{id}/rotate': { POST: changes((body, id) => rotationOf(body, id), 201) },
    '/keys/{id}/revoke': { POST: changes((body, id) => nothing(body) ?? { kind: 'revoke', id }) },
    '/accounts/{name}': {
      PATCH: changes((body, name) => {
        const problem = problemOfPatch(body, 'account');
        return problem ?? { kind: 'account', account: name, action: 'change-account', patch: body };
      }),
    },
    '/accounts/{name}/freeze': { POST: account('freeze', true) },
    '/accounts/{name}/unfreeze': { POST: account('unfreeze', null) },
    '/accounts/{name}/grants': { POST: changes(grantOf, 201) },
    '/prices': {
      GET: (exchange) => ofStore(exchange, parts, ({ prices }) => prices, shownPrices),
      PUT: (exchange) => ofStore(exchange, parts, ({ prices }) => prices, putPrices),
    },
    '/replicas': { GET: (exchange) => ofStore(exchange, parts, ({ fleet }) => fleet, shownReplicas) },
    '/replicas/{id}/write-off': { POST: (exchange) => ofStore(exchange, parts, ({ fleet }) => fleet, writeOff) },
  };
}

/** What a route answers; undefined: the caller left. */
type Answer = Promise<Answered | ContractError | undefined>;

/** Answers for a part of the store, if there is one and the request has an operator's secret. */
async function ofStore<T>(
  exchange: Exchange,
  { services, operatorOf }: KeyRoutesParts,
  partOf: (services: KeysServices) => T | undefined,
  answer: (part: T, operator: string, exchange: Exchange) => Answer,
): Promise<void> {
  const [part, operator] = [partOf(services()), operatorOf(exchange.head)];
  if (part === undefined) send(exchange, NO_STORE_OF_IT);
  else send(exchange, operator === undefined ? NOT_MANAGED : await answer(part, operator, exchange));
}

async function shownReplicas(fleet: FollowedFleet): Answer {
  const replicas = await fleet.replicas();
  return 'kind' in replicas ? notDone(replicas, 'The sidecars cannot be listed') : { body: { data: replicas } };
}

async function writeOff(fleet: FollowedFleet, operator: string, exchange: Exchange): Answer {
  const read = await objectBody(exchange, MAX_BYTES);
  if (read === undefined || 'status' in read) return read;
  const unfit = nothing(read.body);
  if (unfit) return unfit;
  const released = await fleet.writeOff(operator, nameIn(exchange.head));
  return typeof released === 'string' ? { body: { released } } : notDone(released);
}

async function shownPrices(followed: FollowedPrices): Promise<Answered> {
  const { text, ...rest } = await followed.read();
  return { body: { file: JSON.parse(text) as unknown, ...rest } };
}

async function putPrices(followed: FollowedPrices, operator: string, exchange: Exchange): Answer {
  const [, revision] = /^"([^"]*)"$/.exec(exchange.head.header('if-match') ?? '') ?? [];
  if (revision === undefined)
    return refusals.badQuery('If-Match', 'must be one revision of GET /prices in quotes, to which the change was made');
  const bytes = await jsonBody(exchange, MAX_PRICE_BYTES);
  if (bytes === undefined || 'status' in bytes) return bytes;
  const end = await followed.change(operator, Buffer.from(bytes).toString('utf8'), revision);
  if (end?.kind === 'invalid') return contractError('bad_request', `The price file: ${end.why}.`);
  return end ? notDone(end) : shownPrices(followed);
}

function send(exchange: Exchange, answer: Answered | ContractError | undefined, status = 200): void {
  if (answer === undefined) return;
  if (isError(answer)) exchange.fail(answer, NO_STORE);
  else exchange.reply({ status, headers: NO_STORE, body: JSON.stringify(answer.body) });
}

interface Answered {
  readonly body: object;
}

async function change(
  exchange: Exchange,
  { config, services, operatorOf }: KeyRoutesParts,
  queue: TaskQueue,
  taskOf: TaskOf,
): Answer {
  const operator = operatorOf(exchange.head);
  if (operator === undefined) return NOT_MANAGED;
  const read = await objectBody(exchange, MAX_BYTES);
  if (read === undefined || 'status' in read) return read;
  const { body } = read;
  const name = nameIn(exchange.head);
  const given = JSON.stringify([body, name]);
  const secret = bearerOf(exchange.head);
  if (holdsKey(given) || (secret !== undefined && given.includes(JSON.stringify(secret).slice(1, -1))))
    return badBody('has a key or a secret in it: send names only');
  const task = taskOf(body, name);
  if (isError(task)) return task;
  const { keysFile, grants } = services();
  const followed = task.kind === 'grant' ? grants : keysFile;
  const file = task.kind === 'grant' ? (config.credit.file ?? '') : config.keys.file;
  if (followed === undefined) return task.kind === 'grant' ? NO_CREDIT : NO_KEYS_FILE;
  const audit = join(config.dataDir, 'audit.jsonl');
  const end = await queue.run(() => {
    if (task.kind === 'grant' && grants?.change) return grants.change(operator, task);
    const isOfKeys = task.kind !== 'grant' && task.kind !== 'list';
    return isOfKeys && keysFile?.change ? keysFile.change(operator, task) : doKeyTask({ file, audit, operator, task });
  });
  if (end === undefined) return BUSY;
  const refusal = refusalOf(end, task);
  if (refusal) return refusal;
  await followed.reload();
  const { problem } = (task.kind === 'grant' ? grants?.inForce : await keysFile?.inForce()) ?? {};
  return { body: Object.assign({}, await answerOf(end, task, services()), problem !== undefined && { problem }) };
}

const BUSY = contractError('capacity_exceeded', 'Another change of this file is being made.');

/** Undefined: the task is done. */
function refusalOf(end: KeyTaskEnd, task: KeyTask): ContractError | undefined {
  switch (end.kind) {
    case 'unknown':
      return contractError(
        'not_found',
        task.kind === 'account'
          ? 'The keys file has no such account.'
          : 'There is no key with this id; GET /keys lists them.',
      );
    case 'invalid':
      return refused(end.field, end.why);
    case 'known-grant':
      return contractError('idempotency_key_reused', 'There is a grant with this id already; nothing was granted.', {
        param: 'id',
      });
    case 'revoked':
    case 'expired':
      return contractError('unprocessable', `The key is ${end.kind}: create a new one.`);
    case 'rotated':
      return contractError('unprocessable', 'The key was rotated before: rotate the one that took its place.');
    case 'busy':
      return BUSY;
    case 'failed':
    case 'unanswered':
      return notDone(end, task.kind === 'list' ? 'The keys cannot be listed' : NOTHING);
    default:
      return undefined;
  }
}

const NOTHING = 'Nothing was changed';

function notDone(end: NotDone, outcome = NOTHING): ContractError {
  if (end.kind === 'failed') {
    const code = end.code === 'unknown' ? 'not_found' : 'unprocessable';
    return contractError(code, `${outcome}: ${end.why}`, end.code === 'moved' ? { status: 412 } : {});
  }
  const unknown = 'The store did not answer: whether the change was made is not known.';
  return contractError('control_plane_overloaded', end.sent ? unknown : `${outcome}: the store does not answer.`);
}

async function answerOf(end: KeyTaskEnd, task: KeyTask, services: KeysServices): Promise<object> {
  // The only answer with a key.
  if ('key' in end) return { key: end.key, ...end.entry };
  if ('entry' in end) return end.entry;
  if (task.kind !== 'grant' && (task.kind !== 'account' || end.kind !== 'account')) return {};
  const balance = (await balancesOf([task.account], services, true)).get(task.account);
  if (task.kind === 'grant')
    return { id: task.grant.id, usd: task.grant.usd, ...accountView(task.account, {}, balance) };
  return accountView(task.account, end.kind === 'account' ? end.account : {}, balance);
}

/** GET /keys: the keys file and which content is in force, for commands that changed it. For an operator the keys too, without hashes. */
async function list(
  exchange: Exchange,
  { config, services, operatorOf }: KeyRoutesParts,
): Promise<Answered | ContractError> {
  const { keysFile } = services();
  if (keysFile === undefined) return NO_KEYS_FILE;
  const operator = operatorOf(exchange.head);
  const task = listingOf(exchange.head.query);
  if (isError(task)) return task;
  const inForce = await keysFile.inForce();
  const isAsked = operator !== undefined && task.limit > 0;
  const listed = isAsked ? await doKeyTask({ file: inForce.file, audit: '', operator, task }) : undefined;
  const refusal = listed && refusalOf(listed, task);
  if (refusal) return refusal;
  const page = listed?.kind === 'listed' && {
    environment: config.environment,
    models: config.models.map(({ id }) => id),
    credit: services().grants !== undefined,
    ...(await pageOf(listed, services())),
  };
  const body: KeysView = Object.assign({}, inForce, page);
  return { body };
}

async function pageOf({ keys, accounts, hasMore }: KeysListed, services: KeysServices): Promise<Partial<KeysView>> {
  const used = await lastUse(keys, services);
  const names = [...new Set(keys.flatMap(({ account }) => account ?? []))];
  const balances = await balancesOf(names, services);
  return {
    data: keys.map((key): KeyView => Object.assign({}, key, { lastUsed: used.get(key.id) ?? null })),
    accounts: names.map((name) =>
      accountView(name, (Object.hasOwn(accounts, name) ? accounts[name] : undefined) ?? {}, balances.get(name)),
    ),
    hasMore,
  };
}

async function balancesOf(accounts: readonly string[], { credit }: KeysServices, anew = false) {
  return credit?.known === true ? await credit.balances(accounts, anew) : new Map<string, Balance>();
}

function accountView(account: string, properties: StoredAccount, known: Balance | undefined): AccountView {
  const { frozen = false, ...quotas } = properties;
  const balance = known && {
    granted: formatUsd(known.granted),
    available: formatUsd(known.granted - known.settled - known.reserved),
    ...(known.ageMs !== undefined && { ageMs: known.ageMs }),
  };
  return { account, frozen, quotas, balance: balance ?? null };
}

/** The last UTC day with usage of each key, by its id; of the days that are summed up, 92 at most. */
async function lastUse(keys: readonly DescribedKey[], { totals }: KeysServices): Promise<ReadonlyMap<string, string>> {
  const used = new Map<string, string>();
  const sums = totals?.();
  if (!sums) return used;
  await sums.sums.readOn();
  const days = [...sums.days].sort().reverse();
  for (const { id, account = '' } of keys) {
    const day = days.find((each) => sums.rowsOfKey(each, account, id).length > 0);
    if (day !== undefined) used.set(id, day);
  }
  return used;
}

function listingOf(query: string): (KeyTask & { kind: 'list' }) | ContractError {
  const given = new URLSearchParams(query);
  for (const name of given.keys()) {
    if (!['account', 'after', 'limit'].includes(name))
      return refusals.badQuery('query', 'takes account, after and limit only');
    if (given.getAll(name).length > 1) return refusals.badQuery(name, 'must not be given twice');
  }
  const limit = Number(given.get('limit') ?? DEFAULT_KEYS);
  if (!(Number.isInteger(limit) && limit >= 0 && limit <= MOST_KEYS))
    return refusals.badQuery('limit', `must be 0 to ${MOST_KEYS}`);
  return { kind: 'list', account: given.get('account') ?? undefined, after: given.get('after') ?? undefined, limit };
}

function creationOf(body: Patch, environment: string): KeyTask | ContractError {
  const { account, ...rest } = body;
  if (account === undefined) return refused('account', 'is required');
  const unfit = problemOfFields(rest, 'key');
  if (unfit) return unfit;
  const properties = { account, entitlements: { [environment]: { models: 'all' } }, ...rest };
  const now = new Date().toISOString();
  const problem = problemOf({ key: { id: 'the key', hash: hashKey(''), created: now, ...properties } });
  if (problem) return refused(problem.field, problem.why);
  return { kind: 'create', properties: properties as Parameters<KeyStore['create']>[0] };
}

function problemOfPatch(patch: Patch, of: keyof typeof CHANGEABLE): ContractError | undefined {
  return Object.keys(patch).length === 0 ? badBody('names nothing to change') : problemOfFields(patch, of);
}

/** What the schema of the keys file does not say. */
function problemOfFields(fields: Patch, of: keyof typeof CHANGEABLE): ContractError | undefined {
  const known = CHANGEABLE[of];
  if (!Object.keys(fields).every((name) => known.includes(name))) return badBody(`takes ${known.join(', ')}`);
  const { expires, entitlements } = fields;
  if (typeof expires === 'string' && Date.parse(expires) <= Date.now()) return refused('expires', 'is in the past');
  if (typeof entitlements === 'object' && !Object.keys(entitlements ?? {}).every(isEnvironment))
    return refused(
      'entitlements',
      'must be by environment: lower-case letters, digits, - and _, as in the configuration',
    );
  return undefined;
}

function rotationOf({ graceMs = 0, ...others }: Patch, id: string): KeyTask | ContractError {
  if (Object.keys(others).length > 0) return badBody('takes graceMs');
  if (typeof graceMs !== 'number' || !Number.isInteger(graceMs) || graceMs < 0 || graceMs > MAX_GRACE_MS)
    return refused('graceMs', 'must be a whole number of ms, of ten years at most');
  return { kind: 'rotate', id, graceMs };
}

function grantOf({ id, usd, ...others }: Patch, account: string): KeyTask | ContractError {
  if (Object.keys(others).length > 0) return badBody('takes id and usd');
  if (typeof id !== 'string') return refused('id', 'must be a text, such as the number of an invoice');
  if (typeof usd !== 'string') return refused('usd', 'must be dollars as decimal text');
  const grant = { id, usd, at: new Date().toISOString() };
  // Any account: an authorizer or a gateway may name one that the keys file does not have.
  const named = problemOf({ key: { id: account, hash: hashKey(''), created: grant.at, entitlements: {} } });
  if (named) return refused('', `must be for an account: its name ${named.why}`);
  if (!isGrant(grant)) return refused('usd', 'must be dollars as decimal text, with at most 12 decimal places');
  return { kind: 'grant', account, grant };
}

function nothing(body: Patch): ContractError | undefined {
  return Object.keys(body).length === 0 ? undefined : badBody('takes no field');
}

/** What the path has in the place of `{…}`; '' if it cannot be decoded. */
function nameIn({ path, route = '' }: RequestHead): string {
  const [before = '', after = ''] = route.split(/\{\w+\}/);
  if (!route.includes('{')) return '';
  try {
    return decodeURIComponent(path.slice(before.length, path.length - after.length));
  } catch {
    return '';
  }
}

function refused(field: string, why: string): ContractError {
  const param = field === '' ? null : field;
  return contractError('bad_request', `${param ?? 'The request'} ${why}.`, { param });
}

function isError(given: KeyTask | Answered | ContractError): given is ContractError {
  return 'status' in given;
}
