import t from 'tap';
import { EVICTION_REASONS, type CacheReading } from '../../../sidecar/telemetry/cache-metrics.js';
import { EVICTIONS, NO_CACHE } from '../../../engine/protocol/messages.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';

t.test('sums of restarted processes keep growing; bytes are current', async (t) => {
  t.strictSame([...EVICTION_REASONS], [...EVICTIONS], 'the engine’s reasons');
  const metrics = new Metrics(['m']);
  let readings: CacheReading[] = [NO_CACHE, NO_CACHE];
  metrics.caches.watch('m', () => readings);
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
