/** What `ra-sidecar doctor` checks of the memory that contains the prefix caches. */
import { statfs } from 'node:fs/promises';
import { sharesCacheRoom, type CacheSettings } from '../app/compose-engine.js';
import { CACHE_SHARE, MEMORY_FILES, MOST_CACHE_BYTES } from '../engine-client/engine.js';
import type { Check } from './check.js';
import { size } from './layout.js';

/** Whether the prefix caches have room. `engines`: the settings of each engine process. */
export async function cacheCheck(engines: readonly CacheSettings[]): Promise<Check> {
  const room = await statfs(MEMORY_FILES).then(
    ({ blocks, bavail, bsize }) => ({ total: blocks * bsize, free: bavail * bsize }),
    () => undefined,
  );
  return cacheRoomCheck(room, process.availableMemory(), engines);
}

/**
 * `room`: bytes that files in memory can take, and still now; undefined: this system has none. `free`: bytes of memory.
 * `engines`: as in {@link cacheCheck}.
 */
export function cacheRoomCheck(
  room: { readonly total: number; readonly free: number } | undefined,
  free: number,
  engines: readonly CacheSettings[],
): Check {
  const what = 'prefix caches';
  const asked = engines.reduce((sum, engine) => sum + askedBytes(engine), 0);
  const sharing = engines.filter(sharesCacheRoom).length;
  if (asked === 0 && sharing === 0) return { what, level: 'ok', says: 'no model has one' };
  if (room === undefined) return { what, level: 'ok', says: `none, since this system has no ${MEMORY_FILES}` };
  const says = `${size(room.free)} free of ${size(room.total)} in ${MEMORY_FILES}`;
  const shared = Math.min(CACHE_SHARE * free, sharing * MOST_CACHE_BYTES);
  if (room.total >= asked + shared) return { what, level: 'ok', says };
  const parts = [
    ...(asked > 0 ? [`prefixCache.bytes of all engines is ${size(asked)}`] : []),
    ...(shared > 0 ? [`a quarter of what is free, at most 8 GiB an engine, is ${size(shared)}`] : []),
  ];
  const advice =
    `they take no more than that, and ${parts.join(', and ')}: in a container set --shm-size, or mount a volume of medium Memory ` +
    '(docs/deploy.md#in-a-container)';
  return { what, level: 'warn', says, advice };
}

/** What is set for an engine's cache; 0: nothing is, or it has none. */
function askedBytes({ engine, prefixReuse, prefixCache }: CacheSettings): number {
  return engine.kind === 'llama.cpp' && prefixReuse !== 'off' ? (prefixCache.bytes ?? 0) : 0;
}
