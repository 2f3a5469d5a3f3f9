import t from 'tap';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { sourcesOf } from '../../support/metric-sources.js';

async function samples(metrics: Metrics): Promise<string[]> {
  const { text } = await metrics.renderEndpoint();
  return text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
}

t.test('models are added up, and read each time', async (t) => {
  const metrics = new Metrics(['a', 'b']);
  const one = { seats: 4, busy: 1, waiting: 2, heldTokens: 300, capacityTokens: 1000, blockTokens: 64 };
  const other = { seats: 6, busy: 4, waiting: 3, heldTokens: 450, capacityTokens: 2000, blockTokens: 64 };
  metrics.sources.set('a', sourcesOf({ load: () => one }));
  metrics.sources.set('b', sourcesOf({ load: () => other }));
  t.strictSame(await samples(metrics), [
    'ra_sidecar_endpoint_waiting_requests 5',
    'ra_sidecar_endpoint_running_requests 5',
    'ra_sidecar_endpoint_kv_usage_ratio 0.25',
    'ra_sidecar_endpoint_seat_usage_ratio 0.5',
    'ra_sidecar_endpoint_cache_info{block_size="64",num_gpu_blocks="46"} 1',
  ]);
  one.busy = 4;
  other.capacityTokens = 0;
  other.heldTokens = 0;
  t.strictSame(
    (await samples(metrics)).slice(1),
    [
      'ra_sidecar_endpoint_running_requests 8',
      'ra_sidecar_endpoint_kv_usage_ratio 0.3',
      'ra_sidecar_endpoint_seat_usage_ratio 0.8',
      'ra_sidecar_endpoint_cache_info{block_size="64",num_gpu_blocks="15"} 1',
    ],
    'one info series, not one for each number of blocks that ever was',
  );
});

t.test('ratios stay within 0 and 1, with nothing loaded and with more in use than capacity', async (t) => {
  const metrics = new Metrics(['a']);
  t.match(metrics.endpointLoad, { kvUsage: 0, seatUsage: 0, running: 0, waiting: 0 });
  const load = { seats: 2, busy: 3, waiting: 0, heldTokens: 11, capacityTokens: 10, blockTokens: 64 };
  metrics.sources.set('a', sourcesOf({ load: () => load }));
  t.match(metrics.endpointLoad, { kvUsage: 1, seatUsage: 1, running: 3 });
});
