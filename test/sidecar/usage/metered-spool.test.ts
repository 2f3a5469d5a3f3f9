import t from 'tap';
import type { UsageRecord } from '../../../sidecar/ledger.js';
import { MeteredSpool } from '../../../sidecar/usage/metered-spool.js';

t.test('counts each record by its kind and is always well', async (t) => {
  const seen: string[] = [];
  const spool = new MeteredSpool((kind) => void seen.push(kind));
  const record: UsageRecord = {
    id: 'u',
    requestId: 'r',
    kind: 'open',
    at: '2026-01-01T00:00:00Z',
    account: 'a',
    keyId: 'k',
    model: 'm',
    route: 'chat',
    promptTokens: 1,
    cachedTokens: 0,
    completionTokens: 0,
  };
  spool.append(record);
  spool.append({ ...record, kind: 'close' });
  await spool.sync();
  t.strictSame(seen, ['open', 'close']);
  t.strictSame(spool.health, { ok: true });
});
