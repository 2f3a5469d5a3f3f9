/** /v1/batches: requests of a stored file, answered within a day (running-batch.ts). Only served where `batch.store` is set. */
import { ACCOUNT_OPEN, hasEnded, type BatchRecord } from '../batch/batch-store.js';
import { BATCH_REQUEST_BYTES, parseBatchRequest } from '../contracts/batches.js';
import { contractError } from '../domain/errors.js';
import { formatUsd } from '../domain/money.js';
import { batchRoute, idOf, isFull, isStop, pageOf, type BatchAnswer, type BatchCall } from './files.js';
import { isJson } from './preflight.js';
import * as refusals from './refusals.js';
import { failed, type Stop } from './request-context.js';
import { ANY_ERRORS, KEY_ERRORS } from './route.js';
import type { BatchServices } from './services.js';

/** Batches of one page. */
const MOST_LISTED = 100;
const DEFAULT_LISTED = 20;

const BATCHES_PATH = '/v1/batches';
const BATCH_PATH = '/v1/batches/{id}';
const CANCEL_PATH = '/v1/batches/{id}/cancel';

const ERRORS = [...ANY_ERRORS, ...KEY_ERRORS];

export const CREATE_BATCH = batchRoute(create, {
  path: BATCHES_PATH,
  method: 'post',
  id: 'createBatch',
  summary: 'Run the requests of a file',
  description:
    'Each line of the file is `{"custom_id", "method": "POST", "url", "body"}`; all are checked before one runs (docs/batches.md#for-callers). The body ' +
    'has at most 64 KiB.',
  request: 'BatchRequest',
  answer: 'Batch',
  errors: [...ERRORS, 'not_found', 'capacity_exceeded', 'payload_too_large', 'spool_unhealthy', 'draining'],
});

export const LIST_BATCHES = batchRoute(list, {
  path: BATCHES_PATH,
  method: 'get',
  id: 'listBatches',
  summary: 'The account’s batches',
  description:
    'Those of all keys of the account, the newest first. Query: `limit` (1 to 100, by default 20), `after` (the id of the last batch of ' +
    'the page before).',
  answer: 'BatchList',
  errors: ERRORS,
});

export const CANCEL_BATCH = batchRoute(cancel, {
  path: CANCEL_PATH,
  method: 'post',
  id: 'cancelBatch',
  summary: 'Cancel a batch',
  description:
    'Lines that run are stopped and cost nothing; answers so far stay. Without effect on a batch that has ended.',
  answer: 'Batch',
  errors: [...ERRORS, 'not_found'],
});

export const SHOW_BATCH = batchRoute(show, {
  path: BATCH_PATH,
  method: 'get',
  id: 'showBatch',
  summary: 'One batch',
  description: 'With its counts, its usage and its cost so far.',
  answer: 'Batch',
  errors: [...ERRORS, 'not_found'],
});

const NOT_FOUND = contractError(
  'not_found',
  'The account of this key has no batch with this id. GET /v1/batches lists its batches.',
);
const NO_FILE = contractError(
  'not_found',
  'The account of this key has no file with this id. Store it with POST /v1/files first.',
  { param: 'input_file_id' },
);

function batchAt({ exchange, caller, batch }: BatchCall): BatchRecord | Stop {
  return batch.batches.find(caller.account, idOf(exchange.head.path)) ?? failed(NOT_FOUND);
}

async function create({ exchange, context, caller, services, batch }: BatchCall): Promise<BatchAnswer> {
  if (services.draining()) return failed(refusals.draining(refusals.DRAIN_RETRY_MS));
  if (!services.spool.health.ok) return failed(refusals.spoolUnhealthy());
  if (!isJson(exchange.head.header('content-type'))) return failed(refusals.wrongContentType());
  const body = await exchange.body(BATCH_REQUEST_BYTES);
  if (body.kind === 'gone') return { kind: 'cancelled' };
  if (body.kind !== 'body') return failed(refusals.noBody(body.kind, BATCH_REQUEST_BYTES));
  const parsed = parseBatchRequest(body.bytes ?? new Uint8Array());
  body.free();
  if (parsed.kind === 'invalid') return failed(parsed.error);
  const { request } = parsed;
  const input = batch.files.find(caller.account, request.inputFile);
  if (input?.purpose !== 'batch') return failed(NO_FILE);
  if (request.endpoint === '/v1/responses' && services.contract === 'strict') return failed(refusals.compatibleOnly());
  try {
    const created = await batch.batches.create(caller, request, batch.position());
    if (created === 'batches') return failed(refusals.tooManyBatches(ACCOUNT_OPEN));
    if (typeof created === 'string') return failed(refusals.noFileRoom(created));
    batch.runner.runAll();
    return batchObject(batch, created);
  } catch (fault) {
    if (!isFull(fault)) throw fault;
    context.log.error('batch cannot be stored', { fault });
    return failed(refusals.noFileRoom('store'));
  }
}

function list({ exchange, caller, batch }: BatchCall): BatchAnswer {
  const query = new URLSearchParams(exchange.head.query);
  if (!query.has('limit')) query.set('limit', String(DEFAULT_LISTED));
  return pageOf(batch.batches.list(caller.account), query, MOST_LISTED, (record) => batchObject(batch, record));
}

function show(call: BatchCall): BatchAnswer {
  const found = batchAt(call);
  return isStop(found) ? found : batchObject(call.batch, found);
}

async function cancel(call: BatchCall): Promise<BatchAnswer> {
  const found = batchAt(call);
  return isStop(found) ? found : batchObject(call.batch, await call.batch.runner.cancel(found));
}

/** The object of a batch, as OpenAI's, and what it has used and cost so far. */
function batchObject({ batches, runner }: BatchServices, record: BatchRecord): object {
  const { id, endpoint, status, inputFile, outputFile, errorFile, createdAt, expiresAt, times, lines, files } = record;
  const { completed, failed: failures, used, picodollars } = runner.sumsOf(record);
  const pause = hasEnded(record) ? undefined : runner.pauseOf(id);
  const problems = pause ? [pause] : record.problems;
  return {
    id,
    object: 'batch',
    endpoint,
    errors: problems.length === 0 ? null : { object: 'list', data: problems },
    input_file_id: inputFile,
    completion_window: '24h',
    status,
    output_file_id: files?.output === true ? outputFile : null,
    error_file_id: files?.error === true ? errorFile : null,
    created_at: createdAt,
    in_progress_at: times.in_progress ?? null,
    expires_at: expiresAt,
    finalizing_at: times.finalizing ?? null,
    completed_at: times.completed ?? null,
    failed_at: times.failed ?? null,
    expired_at: times.expired ?? null,
    cancelling_at: times.cancelling ?? null,
    cancelled_at: times.cancelled ?? null,
    request_counts: { total: lines, completed, failed: failures },
    usage: {
      input_tokens: used.promptTokens,
      input_tokens_details: { cached_tokens: used.cachedTokens },
      output_tokens: used.completionTokens,
      total_tokens: used.promptTokens + used.completionTokens,
    },
    cost: { value: formatUsd(BigInt(picodollars)), currency: 'usd' },
    metadata: batches.metadataOf(record),
  };
}
