/**
 * /v1/files, where `batch.store` is set: batches' input and answers (batch/file-store.ts). Other accounts do not see that a file exists.
 */
import { mayUse, type Caller } from '../access/identity.js';
import { FILE_BYTES, type FileRecord, type FileStore, type NewFile } from '../batch/file-store.js';
import { LEAST_LIFE_S, MOST_LIFE_S } from '../contracts/batch-schemas.js';
import { contractError, type ContractError } from '../domain/errors.js';
import type { Exchange } from '../http/exchange.js';
import { readForm } from '../http/multipart.js';
import { authorize } from './preflight.js';
import * as refusals from './refusals.js';
import { failed, RequestContext, type Stop } from './request-context.js';
import { ANY_ERRORS, KEY_ERRORS, type PlainRoute, type RouteReference } from './route.js';
import type { BatchServices, Services } from './services.js';

/** Uploads of one account, and of all, at once: each has a few pieces in memory. */
const ACCOUNT_UPLOADS = 4;
const MOST_UPLOADS = 32;

/** Files of one page. */
const MOST_LISTED = 10_000;

/** A name is cut to so many characters. */
const NAME_CHARACTERS = 255;

const FILES_PATH = '/v1/files';
const FILE_PATH = '/v1/files/{id}';
const CONTENT_PATH = '/v1/files/{id}/content';

const ERRORS = [...ANY_ERRORS, ...KEY_ERRORS];

/** A route of files or of batches, for keys that may use them. Its name in the log is that of its path. */
export function batchRoute(
  answer: (call: BatchCall) => BatchAnswer | Promise<BatchAnswer>,
  reference: Omit<RouteReference, 'needs' | 'tag' | 'key'>,
): PlainRoute {
  const [, , name = ''] = reference.path.split('/');
  return {
    serve: (exchange, services) => forBatches(exchange, services, name, answer),
    reference: { needs: 'batch', tag: 'batches', key: true, ...reference },
  };
}

export const CREATE_FILE = batchRoute(create, {
  path: FILES_PATH,
  method: 'post',
  id: 'createFile',
  summary: 'Store a file for a batch',
  description:
    'A form (multipart/form-data) with `file` (at most 512 MiB), `purpose` (`batch`), and if wanted `expires_after[anchor]` (`created_at`) and ' +
    '`expires_after[seconds]` (3,600 to 2,592,000, which is the default). It is stored encrypted (docs/batches.md).',
  form: 'multipart/form-data',
  answer: 'File',
  errors: [...ERRORS, 'payload_too_large', 'capacity_exceeded'],
});

export const LIST_FILES = batchRoute(list, {
  path: FILES_PATH,
  method: 'get',
  id: 'listFiles',
  summary: 'The account’s files',
  description:
    'Those of all keys of the account, the newest first. Query: `purpose`, `limit` (1 to 10,000), `order` (`asc`, `desc`), `after` (the ' +
    'id of the last file of the page before).',
  answer: 'FileList',
  errors: ERRORS,
});

export const FILE_CONTENT = batchRoute(content, {
  path: CONTENT_PATH,
  method: 'get',
  id: 'downloadFile',
  summary: 'The content of a file',
  description: 'As it was stored; of a batch’s answers, one JSON object a line.',
  answer: 'Content',
  errors: [...ERRORS, 'not_found'],
});

export const SHOW_FILE = batchRoute(show, {
  path: FILE_PATH,
  method: 'get',
  id: 'showFile',
  summary: 'One file',
  description: 'What a list of files says of it.',
  answer: 'File',
  errors: [...ERRORS, 'not_found'],
});

export const DELETE_FILE = batchRoute(remove, {
  path: FILE_PATH,
  method: 'delete',
  id: 'deleteFile',
  summary: 'Delete a file',
  description: 'Its key is destroyed, so that nothing can read it. If a batch reads the file, cancel that first.',
  answer: 'DeletedFile',
  errors: [...ERRORS, 'not_found'],
});

/** A request of a key that may use files and batches. */
export interface BatchCall {
  readonly exchange: Exchange;
  readonly context: RequestContext;
  readonly caller: Caller;
  readonly services: Services;
  readonly batch: BatchServices;
}

/** The body of an answer, nothing if it is answered, or why there is none. */
export type BatchAnswer = object | Stop | undefined;

async function forBatches(
  exchange: Exchange,
  services: Services,
  name: string,
  answer: (call: BatchCall) => BatchAnswer | Promise<BatchAnswer>,
): Promise<void> {
  const context = new RequestContext(exchange, { name }, services);
  try {
    const { batch } = services;
    const caller = await authorize(context, 'models', services);
    if (caller.kind !== 'caller') context.stop(caller);
    else if (!batch) context.stop(failed(refusals.batchesOff()));
    else if (!mayUse(caller, 'batch')) context.stop(failed(refusals.routeNotEntitled()));
    else {
      const answered = await answer({ exchange, context, caller, services, batch });
      if (answered === undefined) return;
      if ('kind' in answered) context.stop(answered);
      else context.reply({ status: 200, headers: { 'Cache-Control': 'no-store' }, body: JSON.stringify(answered) });
    }
  } finally {
    context.close();
  }
}

/** The id in a path of one of these routes. */
export function idOf(path: string): string {
  return path.replace(/^\/v1\/[a-z]+\//, '').replace(/\/(?:content|cancel)$/, '');
}

const NOT_FOUND = contractError(
  'not_found',
  'The account of this key has no file with this id. GET /v1/files lists its files.',
);

/** The account's file that a path names. */
function fileAt({ exchange, caller, batch }: BatchCall): FileRecord | Stop {
  return batch.files.find(caller.account, idOf(exchange.head.path)) ?? failed(NOT_FOUND);
}

export function isStop(found: object): found is Stop {
  return 'kind' in found;
}

async function create(call: BatchCall): Promise<BatchAnswer> {
  const { caller, batch, services } = call;
  if (services.draining()) return failed(refusals.draining(refusals.DRAIN_RETRY_MS));
  const { uploads } = batch;
  const own = uploads.get(caller.account) ?? 0;
  const all = [...uploads.values()].reduce((sum, count) => sum + count, 0);
  if (own >= ACCOUNT_UPLOADS || all >= MOST_UPLOADS) return failed(refusals.tooManyUploads());
  uploads.set(caller.account, own + 1);
  try {
    return await upload(call);
  } finally {
    const left = (uploads.get(caller.account) ?? 1) - 1;
    if (left > 0) uploads.set(caller.account, left);
    else uploads.delete(caller.account);
  }
}

async function upload({ exchange, context, caller, batch: { files } }: BatchCall): Promise<BatchAnswer> {
  let file: NewFile | undefined;
  try {
    file = await files.create(caller.account);
    const form = await readForm(exchange, FILE_BYTES, file);
    if (form.kind === 'gone') return { kind: 'cancelled' };
    if (form.kind === 'too-large' || form.kind === 'silent' || form.kind === 'no-room')
      return failed(refusals.noBody(form.kind, FILE_BYTES));
    if (form.kind === 'stopped') return failed(refusals.noFileRoom(form.refusal));
    const problem = form.kind === 'malformed' ? refusals.malformedForm() : problemOf(form.fields);
    if (problem) return failed(problem);
    if (form.kind === 'malformed' || file.pieces.contentBytes === 0)
      return failed(refusals.badQuery('file', 'must be a file that is not empty'));
    const lifeS = Number(form.fields.get(SECONDS) ?? MOST_LIFE_S);
    const name = (form.filename ?? '').slice(0, NAME_CHARACTERS);
    return fileObject(files, await file.finish({ name, lifeS }));
  } catch (fault) {
    if (!isFull(fault)) throw fault;
    context.log.error('file cannot be stored', { fault });
    return failed(refusals.noFileRoom('store'));
  } finally {
    await file?.discard();
  }
}

/** Whether the disk or the memory has no room. */
export function isFull(fault: unknown): boolean {
  const { code } = fault as NodeJS.ErrnoException;
  return code === 'ENOSPC' || code === 'EFBIG' || code === 'EDQUOT' || code === 'EIO' || code === 'EROFS';
}

const ANCHOR = 'expires_after[anchor]';
const SECONDS = 'expires_after[seconds]';

function problemOf(fields: ReadonlyMap<string, string>): ContractError | undefined {
  const bad = (name: string, predicate: string): ContractError => refusals.badQuery(name, predicate);
  if (fields.get('purpose') !== 'batch') return bad('purpose', 'must be batch: files are stored for batches alone');
  const unknown = [...fields.keys()].some((name) => !['purpose', ANCHOR, SECONDS].includes(name));
  if (unknown) return bad('form', `has fields that are not known; its fields are file, purpose, ${ANCHOR}, ${SECONDS}`);
  const seconds = fields.get(SECONDS);
  if ((fields.get(ANCHOR) ?? 'created_at') !== 'created_at') return bad(ANCHOR, 'must be created_at');
  if (seconds === undefined) return fields.has(ANCHOR) ? bad(SECONDS, 'must be set too') : undefined;
  const isIn = /^\d{1,7}$/.test(seconds) && Number(seconds) >= LEAST_LIFE_S && Number(seconds) <= MOST_LIFE_S;
  return isIn ? undefined : bad(SECONDS, `must be ${LEAST_LIFE_S} to ${MOST_LIFE_S}`);
}

function fileObject(files: FileStore, record: FileRecord): object {
  const { id, bytes, createdAt, expiresAt, purpose } = record;
  return {
    id,
    object: 'file',
    bytes,
    created_at: createdAt,
    expires_at: expiresAt,
    filename: files.nameOf(record),
    purpose,
    status: 'processed',
  };
}

function list({ exchange, caller, batch: { files } }: BatchCall): BatchAnswer {
  const query = new URLSearchParams(exchange.head.query);
  const purpose = query.get('purpose');
  const all = files.list(caller.account).filter((record) => purpose === null || record.purpose === purpose);
  return pageOf(all, query, MOST_LISTED, (record) => fileObject(files, record));
}

/** One page of records, which come newest first. */
export function pageOf<T extends { readonly id: string }>(
  newestFirst: readonly T[],
  query: URLSearchParams,
  most: number,
  shown: (record: T) => object,
): BatchAnswer {
  const [limit, order, after] = [
    query.get('limit') ?? String(Math.min(most, 10_000)),
    query.get('order') ?? 'desc',
    query.get('after'),
  ];
  if (!/^\d{1,5}$/.test(limit) || Number(limit) < 1 || Number(limit) > most)
    return failed(refusals.badQuery('limit', `must be 1 to ${most}`));
  if (!['asc', 'desc'].includes(order)) return failed(refusals.badQuery('order', 'must be asc or desc'));
  const all = order === 'desc' ? newestFirst : [...newestFirst].reverse();
  const at = after === null ? -1 : all.findIndex(({ id }) => id === after);
  if (after !== null && at < 0) return failed(refusals.badQuery('after', 'must be the id of one in the list'));
  const page = all.slice(at + 1, at + 1 + Number(limit));
  return {
    object: 'list',
    data: page.map(shown),
    first_id: page[0]?.id ?? null,
    last_id: page.at(-1)?.id ?? null,
    has_more: at + 1 + page.length < all.length,
  };
}

function show(call: BatchCall): BatchAnswer {
  const found = fileAt(call);
  return isStop(found) ? found : fileObject(call.batch.files, found);
}

async function remove(call: BatchCall): Promise<BatchAnswer> {
  const found = fileAt(call);
  if (isStop(found)) return found;
  if (call.batch.files.isHeld(found.id)) return failed(refusals.fileInUse());
  await call.batch.files.remove(found.id);
  return { id: found.id, object: 'file', deleted: true };
}

async function content(call: BatchCall): Promise<BatchAnswer> {
  const found = fileAt(call);
  if (isStop(found)) return found;
  const { exchange, context, batch } = call;
  const reader = await batch.files.read(found);
  if (!reader) return failed(NOT_FOUND);
  try {
    const headers = { 'Cache-Control': 'no-store', 'Content-Disposition': `attachment; filename="${found.id}.jsonl"` };
    // No browser shows it as a page.
    const type = 'application/octet-stream';
    const pieces = reader.contents(found.bytes, () => batch.files.has(found.id));
    await exchange.file({ headers, type, length: found.bytes, pieces });
    context.ended(exchange.gone.aborted ? 499 : 200);
  } catch (fault) {
    // Deleted meanwhile: the connection is closed, so that its caller sees that it has not all of it.
    if (batch.files.has(found.id)) throw fault;
    context.ended(499);
  } finally {
    await reader.close();
  }
  return undefined;
}
