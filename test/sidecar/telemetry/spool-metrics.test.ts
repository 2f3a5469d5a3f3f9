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
  spool.late();
  spool.dropped();
  spool.removed();
  let ok = true;
  spool.watch(() => ({ unsynced: 7, oldestMs: 1500, bytes: 4096, health: { ok } }));
  const text = await page();
  for (const line of [
    'usage_records_total{kind="close"} 1',
    'spool_sync_seconds_bucket{le="0.005"} 1',
    'spool_sync_seconds_sum 0.003',
    'spool_errors_total 1',
    'spool_late_closes_total 1',
    'spool_progress_dropped_total 1',
    'spool_files_removed_total 1',
    'spool_unsynced_records 7',
    'spool_oldest_unsynced_seconds 1.5',
    'spool_bytes 4096',
    'spool_healthy 1',
  ]) {
    t.ok(text.includes(`ra_sidecar_${line}\n`), line);
  }
  ok = false;
  t.match(await page(), /^ra_sidecar_spool_healthy 0$/m);
});
