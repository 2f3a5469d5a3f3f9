import type { EngineSetup } from '../../protocol/setup.js';
import type { Needs } from './estimate.js';
import { totalOf, usableOf } from './verdict.js';

/** At most this share of what is left when the model is loaded, for all engines of the sidecar together. */
const SHARE = 1 / 4;

/** Each engine at most, and none where there would be less: a few prompts of a small model; bytes. */
const MOST = 8 * 2 ** 30;
const LEAST = 64 * 2 ** 20;

/**
 * What a model takes with its prefix cache, which lies in host memory: what is asked for, or by what is free, and at most what
 * files in memory have room for. None where nothing is reused. `room`: bytes; undefined: this system has no files in memory.
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
  const most = Math.floor((room ?? 0) / engines);
  const share = Math.floor(Math.min((SHARE * left) / engines, MOST, most));
  return {
    ...needs,
    cpu: { ...needs.cpu, prefixCache: bytes === undefined ? (share < LEAST ? 0 : share) : Math.min(bytes, most) },
  };
}
