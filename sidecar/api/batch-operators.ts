/** Batches on the operators' listener: GET /batches, POST /batches/cancel and /batches/drop. Nothing of their content is shown. */
import { hasEnded, type BatchRecord } from '../batch/batch-store.js';
import { contractError } from '../domain/errors.js';
import type { Exchange } from '../http/exchange.js';
import { objectBody } from './operators.js';
import type { BatchServices } from './services.js';

/** Batches that are listed, the newest first. */
const MOST_LISTED = 200;

/** One batch as operators see it. `created_at`: Unix time, s. */
export type BatchRow = Readonly<ReturnType<typeof rowOf>>;

export function listBatches(exchange: Exchange, batch: BatchServices | undefined): void {
  const rows =
    batch?.batches
      .list()
      .slice(0, MOST_LISTED)
      .map((record) => rowOf(batch, record)) ?? [];
  exchange.reply({ status: 200, body: JSON.stringify({ batches: rows }) });
}

/** `{"id"}`. To drop a batch is to forget it with its answers; it must have ended. */
export async function endBatch(
  exchange: Exchange,
  how: 'cancel' | 'drop',
  batch: BatchServices | undefined,
): Promise<void> {
  const read = await objectBody(exchange);
  if (read && 'status' in read) exchange.fail(read);
  if (!read || 'status' in read) return;
  const { id } = read.body;
  const record = typeof id === 'string' ? batch?.batches.get(id) : undefined;
  if (!batch || !record) {
    exchange.fail(contractError('not_found', 'There is no batch with this id; GET /batches lists them.'));
    return;
  }
  if (how === 'drop' && !hasEnded(record)) {
    exchange.fail(contractError('bad_request', 'The batch has not ended: cancel it first.'));
    return;
  }
  const row = how === 'cancel' ? rowOf(batch, await batch.runner.cancel(record)) : rowOf(batch, record);
  if (how === 'drop') await batch.batches.drop(record);
  exchange.reply({ status: 200, body: JSON.stringify(row) });
}

function rowOf({ runner }: BatchServices, record: BatchRecord) {
  const { id, account, caller, endpoint, status, lines, createdAt } = record;
  const { completed, failed } = runner.sumsOf(record);
  return {
    id,
    account,
    key_id: caller.keyId,
    endpoint,
    status,
    lines,
    answered: completed,
    failed,
    created_at: createdAt,
  };
}
