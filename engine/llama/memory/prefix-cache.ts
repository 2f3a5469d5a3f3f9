import type { EngineSetup } from '../../protocol/setup.js';
import type { Needs } from './estimate.js';
import { totalOf, usableOf } from './verdict.js';

/** At most this share of what is left when the model is loaded, for all engines of the sidecar together. */
const SHARE = 1 / 4;

/** Each engine at most, and none where there would be less: a few prompts of a small model; bytes. */
const MOST = 8 * 2 ** 30;
const LEAST = 64 * 2 ** 20;

/**
 * What a model takes with its prefix cache, which lies in host memory: what is asked for, or by what is free. None where nothing
 * is reused.
 */
export function withPrefixCache(
  needs: Needs,
  {
    seats,
    prefixReuse,
    prefixCache,
  }: Pick<EngineSetup, 'seats' | 'prefixCache'> & Partial<Pick<EngineSetup, 'prefixReuse'>>,
  free: number,
): Needs {
  if (!prefixCache || prefixReuse === 'off') return needs;
  const left = Math.max(0, usableOf(free) - totalOf(needs.cpu, seats));
  const share = Math.floor(Math.min((SHARE * left) / (prefixCache.engines ?? 1), MOST));
  return { ...needs, cpu: { ...needs.cpu, prefixCache: prefixCache.bytes ?? (share < LEAST ? 0 : share) } };
}
