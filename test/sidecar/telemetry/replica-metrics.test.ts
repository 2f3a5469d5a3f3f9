import t from 'tap';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

t.test('each engine process of a model has its own series', async (t) => {
  const metrics = new Metrics(['m']);
  metrics.watchReplicas('m', () => [
    { state: 'ready', seats: 4, busy: 3, tokenTimeRatio: 1.5 },
    { state: 'lost', seats: 0, busy: 0, tokenTimeRatio: undefined },
  ]);
  metrics.engineRestarted('m', 1);
  const { text } = await metrics.render();
  for (const line of [
    'ra_sidecar_replica_seats{model="m",replica="0"} 4',
    'ra_sidecar_replica_seats_busy{model="m",replica="0"} 3',
    'ra_sidecar_replica_token_time_ratio{model="m",replica="0"} 1.5',
    'ra_sidecar_replica_state{model="m",replica="0",state="ready"} 1',
    'ra_sidecar_replica_state{model="m",replica="1",state="lost"} 1',
    'ra_sidecar_replica_state{model="m",replica="1",state="ready"} 0',
    'ra_sidecar_replica_seats{model="m",replica="1"} 0',
    'ra_sidecar_replica_restarts_total{model="m",replica="0"} 0',
    'ra_sidecar_replica_restarts_total{model="m",replica="1"} 1',
    'ra_sidecar_engine_restarts_total{model="m"} 1',
  ]) {
    t.ok(text.includes(`${line}\n`), line);
  }
  t.notMatch(text, 'ra_sidecar_replica_token_time_ratio{model="m",replica="1"}');
});
