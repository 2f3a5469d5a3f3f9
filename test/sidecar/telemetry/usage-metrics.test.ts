import t from 'tap';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

t.test('the spool’s operations and its state', async (t) => {
  const { spool, page } = ((metrics) => ({ spool: metrics.spool, page: async () => (await metrics.render()).text }))(
    new Metrics([]),
  );
  t.match(await page(), /^ra_sidecar_usage_records_total\{kind="progress"\} 0$/m);
  t.notMatch(await page(), /^ra_sidecar_spool_healthy /m, 'it is unknown before the spool is read');
  spool.recorded('close');
  spool.synced(3);
  spool.failed();
  spool.closedLate();
  spool.dropped();
  spool.removed();
  let ok = true;
  spool.state = () => ({ unsynced: 7, oldestMs: 1500, bytes: 4096, health: { ok } });
  const text = await page();
  for (const line of [
    ...['usage_records_total{kind="close"} 1', 'spool_sync_seconds_bucket{le="0.005"} 1'],
    ...['spool_sync_seconds_sum 0.003', 'spool_errors_total 1', 'spool_late_closes_total 1'],
    ...['spool_progress_dropped_total 1', 'spool_files_removed_total 1', 'spool_unsynced_records 7'],
    ...['spool_oldest_unsynced_seconds 1.5', 'spool_bytes 4096', 'spool_healthy 1'],
  ])
    t.ok(text.includes(`ra_sidecar_${line}\n`), line);
  ok = false;
  t.match(await page(), /^ra_sidecar_spool_healthy 0$/m);
});

async function samples(metrics: Metrics): Promise<Record<string, number>> {
  const { text } = await metrics.render();
  const found = text.matchAll(/^ra_sidecar_usage_(delivered_total|dead\S+|delivery\S+|backlog\S+|oldest\S+) (\S+)$/gm);
  return Object.fromEntries([...found].map(([, name = '', value]) => [name, Number(value)]));
}

t.test('delivery metrics are on the page from the start, at zero, and count from there', async (t) => {
  const metrics = new Metrics([]);
  t.strictSame(await samples(metrics), {
    delivered_total: 0,
    dead_letters_total: 0,
    delivery_retries_total: 0,
    backlog_bytes: 0,
    oldest_seconds: 0,
    delivery_last_success_timestamp_seconds: 0,
  });
  const before = Date.now() / 1000;
  metrics.delivery.delivered(7);
  metrics.delivery.refused(2);
  metrics.delivery.retried();
  metrics.delivery.state = () => ({ backlogBytes: 99, oldestMs: 1500 });
  const { delivery_last_success_timestamp_seconds: success = 0, ...rest } = await samples(metrics);
  t.strictSame(rest, {
    delivered_total: 7,
    dead_letters_total: 2,
    delivery_retries_total: 1,
    backlog_bytes: 99,
    oldest_seconds: 1.5,
  });
  t.ok(success >= before - 1 && success <= Date.now() / 1000 + 1);
});
