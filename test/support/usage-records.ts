import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import type { Disk } from '../../sidecar/usage/disk.js';
import { readFrom, type Read } from '../../sidecar/usage/reader.js';
import { START, type Position } from '../../sidecar/usage/spool-format.js';

/** A record of request `id`, with `rest` over the defaults. */
export function usageRecord(id: string, kind: UsageRecord['kind'], rest: Partial<UsageRecord> = {}): UsageRecord {
  return {
    id,
    requestId: `r-${id}`,
    kind,
    at: '2026-10-03T00:00:00.000Z',
    account: 'acme',
    keyId: 'key-1',
    model: 'ra-tiny-chat',
    route: 'chat',
    promptTokens: 12,
    cachedTokens: 0,
    completionTokens: kind === 'open' ? 0 : 34,
    ...(kind === 'close' && { outcome: 'done' as const }),
    ...rest,
  };
}

export interface Reading {
  readonly records: UsageRecord[];
  readonly damage: Extract<Read, { readonly kind: 'damage' }>[];
}

/** Everything that a reader finds in a spool. */
export async function readAll(
  dir: string,
  { from = START, ...options }: { from?: Position; until?: Position; disk?: Disk } = {},
): Promise<Reading> {
  const reading: Reading = { records: [], damage: [] };
  for await (const read of readFrom(dir, from, options)) {
    if (read.kind === 'record') reading.records.push(read.record);
    else reading.damage.push(read);
  }
  return reading;
}

/** A record in short: `a:close`. */
export function short({ id, kind }: UsageRecord): string {
  return `${id}:${kind}`;
}
