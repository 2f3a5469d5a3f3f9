import t from 'tap';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

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
  metrics.delivery.watch(() => ({ backlogBytes: 99, oldestMs: 1500 }));
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
