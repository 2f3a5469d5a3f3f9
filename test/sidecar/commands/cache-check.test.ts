import t from 'tap';
import type { CacheSettings } from '../../../sidecar/app/compose-engine.js';
import { cacheRoomCheck } from '../../../sidecar/commands/cache-check.js';

const GIB = 2 ** 30;

/** An engine whose cache has this size; undefined: by what is free. */
function engine(bytes?: number, more: Partial<CacheSettings> = {}): CacheSettings {
  const prefixCache = { scope: 'account', maxAgeMs: 1000, ...(bytes !== undefined && { bytes }) } as const;
  return { engine: { kind: 'llama.cpp' } as CacheSettings['engine'], prefixReuse: 'auto', prefixCache, ...more };
}

const room = (total: number): { total: number; free: number } => ({ total, free: total / 2 });

t.test('a /dev/shm that is smaller than what prefix caches would take is a warning', async (t) => {
  t.match(cacheRoomCheck(room(8 * GIB), 16 * GIB, [engine()]), {
    level: 'ok',
    says: '4 GiB free of 8 GiB in /dev/shm',
  });
  t.match(cacheRoomCheck(room(GIB / 16), 16 * GIB, [engine()]), {
    level: 'warn',
    says: '32 MiB free of 64 MiB in /dev/shm',
    advice: /a quarter of what is free, at most 8 GiB an engine, is 4 GiB: in a container set --shm-size/,
  });
  t.match(cacheRoomCheck(room(2 * GIB), 16 * GIB, [engine(3 * GIB)]), {
    level: 'warn',
    advice: /prefixCache\.bytes of all engines is 3 GiB: in/,
  });
  t.match(cacheRoomCheck(room(2 * GIB), 16 * GIB, [engine(GIB)]), { level: 'ok' });
  t.match(cacheRoomCheck(undefined, 16 * GIB, [engine()]), {
    level: 'ok',
    says: 'none, since this system has no /dev/shm',
  });
});

t.test('no engine takes more than 8 GiB unless it is set', async (t) => {
  t.match(cacheRoomCheck(room(16 * GIB), 256 * GIB, [engine()]), { level: 'ok' });
  t.match(cacheRoomCheck(room(16 * GIB), 256 * GIB, [engine(), engine()]), { level: 'ok' });
  t.match(cacheRoomCheck(room(16 * GIB), 256 * GIB, [engine(), engine(), engine()]), {
    level: 'warn',
    advice: /is 24 GiB/,
  });
  t.match(cacheRoomCheck(room(16 * GIB), 256 * GIB, [engine(), engine(10 * GIB)]), {
    level: 'warn',
    advice: /prefixCache\.bytes of all engines is 10 GiB, and .* is 8 GiB:/,
  });
});

t.test('engines without a cache are not counted', async (t) => {
  const elsewhere = engine(undefined, { engine: { kind: 'vllm' } as CacheSettings['engine'] });
  const off = engine(9 * GIB, { prefixReuse: 'off' });
  t.match(cacheRoomCheck(room(GIB / 16), 16 * GIB, [elsewhere, off, engine(0)]), {
    level: 'ok',
    says: 'no model has one',
  });
  t.match(cacheRoomCheck(room(GIB), 16 * GIB, [elsewhere, off, engine(GIB)]), { level: 'ok' });
});
