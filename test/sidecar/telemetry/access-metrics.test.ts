import t from 'tap';
import type { BreakerLabel } from '../../../sidecar/telemetry/access-metrics.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

t.test('lookups, requests and the breaker', async (t) => {
  const metrics = new Metrics([]);
  const { authorizer } = metrics;
  const page = async (): Promise<string> => (await metrics.render()).text;
  const before = await page();
  t.match(before, /^ra_sidecar_authorizer_lookups_total\{result="left_alone"\} 0$/m);
  t.match(before, /^ra_sidecar_authorizer_request_duration_seconds_count\{outcome="failed"\} 0$/m);
  t.notMatch(before, 'breaker_state{', 'without an authorizer there is no breaker');
  authorizer.lookedUp('cached');
  authorizer.stale();
  authorizer.asked('answered', 30);
  let state: BreakerLabel = 'open';
  authorizer.breakerState = () => state;
  const after = await page();
  for (const line of [
    ...['lookups_total{result="cached"} 1', 'stale_total 1'],
    'request_duration_seconds_bucket{le="0.025",outcome="answered"} 0',
    ...['request_duration_seconds_bucket{le="0.05",outcome="answered"} 1', 'breaker_state{state="closed"} 0'],
    ...['breaker_state{state="open"} 1', 'breaker_state{state="half-open"} 0'],
  ])
    t.ok(after.includes(`ra_sidecar_authorizer_${line}\n`), line);
  state = 'closed';
  t.match(await page(), /breaker_state\{state="open"\} 0/);
});
