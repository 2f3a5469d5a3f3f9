import { CACHE_SHARE, MOST_CACHE_BYTES } from '../../protocol/cache-size.js';
import type { EngineSetup } from '../../protocol/setup.js';
import type { Needs } from './estimate.js';
import { totalOf, usableOf } from './verdict.js';

/** Less would have room for a few prompts of a small model only, so there is no cache then; bytes. */
const LEAST = 64 * 2 ** 20;

/**
 * A model's memory including its prefix cache, which is host memory: the configured bytes, or a part of what is free,
 * and at most what files in memory can take. Not what they can take now, since that may be less only because other engines'
 * caches are full; a cache that finds no room gives way when it grows. No cache where nothing is reused. `room`: bytes for all
 * files in memory; undefined: this system has none.
 */
export function withPrefixCache(
  needs: Needs,
  {
    seats,
    prefixReuse,
    prefixCache,
  }: Pick<EngineSetup, 'seats' | 'prefixCache'> & Partial<Pick<EngineSetup, 'prefixReuse'>>,
  free: number,
  room: number | undefined,
): Needs {
  if (!prefixCache || prefixReuse === 'off') return needs;
  const left = Math.max(0, usableOf(free) - totalOf(needs.cpu, seats));
  const { engines = 1, bytes } = prefixCache;
  const most = room ?? 0;
  const share = Math.floor(Math.min((CACHE_SHARE * left) / engines, MOST_CACHE_BYTES, most / engines));
  return {
    ...needs,
    cpu: { ...needs.cpu, prefixCache: bytes === undefined ? (share < LEAST ? 0 : share) : Math.min(bytes, most) },
  };
}
