import type { EngineSetup } from '../../protocol/setup.js';
import type { Needs } from './estimate.js';
import { totalOf, usableOf } from './verdict.js';

/** At most this share of the memory that is free when the model is loaded, for all engines of the sidecar together. */
const SHARE = 1 / 4;

/**
 * The bounds of one engine's cache, bytes. Less than the lower one would have room for a few prompts of a small model
 * only, so there is no cache then.
 */
const MOST = 8 * 2 ** 30;
const LEAST = 64 * 2 ** 20;

/**
 * A model's memory including its prefix cache, which is host memory: the configured bytes, or a part of what is free,
 * and at most the room for files in memory. No cache where nothing is reused. `room`: bytes; undefined: this system has
 * no files in memory.
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
