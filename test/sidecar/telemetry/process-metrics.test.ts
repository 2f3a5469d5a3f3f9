import t from 'tap';
import { EVICTIONS, NO_CACHE } from '../../../engine/protocol/messages.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import {
  EVICTION_REASONS,
  type CacheReading,
  type EngineReading,
  type ReplicaReading,
} from '../../../sidecar/telemetry/process-metrics.js';
import { sourcesOf } from '../../support/metric-sources.js';

/** The lines of the page that begin with `name`, without the common prefix. */
async function lines(metrics: Metrics, name: string): Promise<string[]> {
  const { text } = await metrics.render();
  return text
    .split('\n')
    .filter((line) => line.startsWith(`ra_sidecar_${name}`))
    .map((line) => line.slice('ra_sidecar_'.length));
}

t.test('an engine has one state, and a number of tokens', async (t) => {
  const metrics = new Metrics(['m']);
  let reading: EngineReading = { state: 'unloaded', running: 0, kept: 0, capacity: 0 };
  metrics.sources.set('m', sourcesOf({ engine: () => reading }));
  const page = (unloaded: number, ready: number): string[] => [
    `engine_state{model="m",state="unloaded"} ${unloaded}`,
    'engine_state{model="m",state="cold"} 0',
    `engine_state{model="m",state="ready"} ${ready}`,
    'engine_state{model="m",state="lost"} 0',
  ];
  t.strictSame(await lines(metrics, 'engine_state'), page(1, 0));
  reading = { state: 'ready', running: 70, kept: 20, capacity: 4096 };
  t.strictSame(await lines(metrics, 'engine_state'), page(0, 1));
  t.strictSame(await lines(metrics, 'kv_'), [
    'kv_tokens{model="m",use="running"} 70',
    'kv_tokens{model="m",use="kept"} 20',
    'kv_capacity_tokens{model="m"} 4096',
  ]);
});

t.test('each engine process of a model has its own series', async (t) => {
  const metrics = new Metrics(['m']);
  const replicas: ReplicaReading[] = [
    { state: 'ready', seats: 4, busy: 3, tokenTimeRatio: 1.5 },
    { state: 'lost', seats: 0, busy: 0, tokenTimeRatio: undefined },
  ];
  metrics.sources.set('m', sourcesOf({ replicas: () => replicas }));
  metrics.processes.engineRestarted('m', 1);
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
  ])
    t.ok(text.includes(`${line}\n`), line);
  t.notMatch(text, 'ra_sidecar_replica_token_time_ratio{model="m",replica="1"}');
});

t.test('sums of restarted processes keep growing; bytes are current', async (t) => {
  t.strictSame([...EVICTION_REASONS], [...EVICTIONS], 'the engine’s reasons');
  const metrics = new Metrics(['m']);
  let readings: CacheReading[] = [NO_CACHE, NO_CACHE];
  metrics.sources.set('m', sourcesOf({ caches: () => readings }));
  const lines = async (): Promise<(number | undefined)[]> => {
    const { text } = await metrics.render();
    return ['hits_total', 'restored_tokens_total', 'bytes', 'evictions_total'].map((name) => {
      const label = name === 'evictions_total' ? '{model="m",reason="room"}' : '{model="m"}';
      const line = text.split('\n').find((each) => each.startsWith(`ra_sidecar_prefix_cache_${name}${label}`));
      return line === undefined ? undefined : Number(line.split(' ')[1]);
    });
  };
  t.same(await lines(), [0, 0, 0, 0]);
  const first = { hits: 2, restoredTokens: 100, bytes: 10, evictions: { ...NO_CACHE.evictions, room: 3 } };
  readings = [first, { ...NO_CACHE, hits: 1, bytes: 5 }];
  t.same(await lines(), [3, 100, 15, 3]);
  t.same(await lines(), [3, 100, 15, 3], 'read twice');
  readings = [{ ...first, hits: 4 }, { ...NO_CACHE }];
  t.same(await lines(), [5, 100, 10, 3], 'the second was restarted');
  readings = [first, { ...NO_CACHE, hits: 1 }];
  t.same(
    await lines(),
    [8, 100, 10, 3].map((value, at) => (at === 0 ? 5 + 2 + 1 : value)),
  );
});
