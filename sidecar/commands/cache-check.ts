/** What `ra-sidecar doctor` checks of the memory that contains the prefix caches. */
import { statfs } from 'node:fs/promises';
import type { Config } from '../config/config.js';
import { MEMORY_FILES } from '../engine-client/shared-states.js';
import type { Check } from './check.js';
import { size } from './layout.js';

/** What prefix caches take by default, as engine/llama/memory/prefix-cache.ts has it. */
const SHARE = 1 / 4;

/** Whether the models' prefix caches have room. */
export async function cacheCheck(config: Pick<Config, 'models'>): Promise<Check> {
  const room = await statfs(MEMORY_FILES).then(
    ({ bavail, bsize }) => bavail * bsize,
    () => undefined,
  );
  return cacheRoomCheck(room, process.availableMemory(), askedBytes(config));
}

/** Of all models' prefix caches; undefined: one of them is sized by what is free. */
function askedBytes({ models }: Pick<Config, 'models'>): number | undefined {
  let bytes: number | undefined = 0;
  for (const { prefixCache, prefixReuse, engine } of models) {
    if (prefixReuse === 'off' || engine.kind !== 'llama.cpp' || bytes === undefined) continue;
    bytes = prefixCache.bytes === undefined ? undefined : bytes + prefixCache.bytes;
  }
  return bytes;
}

/**
 * `room`: bytes that files in memory can take; undefined: this system has none. `free`: bytes of memory. `asked`: see
 * {@link askedBytes}.
 */
export function cacheRoomCheck(room: number | undefined, free: number, asked: number | undefined): Check {
  const what = 'prefix caches';
  if (asked === 0) return { what, level: 'ok', says: 'no model has one' };
  if (room === undefined) return { what, level: 'ok', says: `none, since this system has no ${MEMORY_FILES}` };
  const says = `${size(room)} free in ${MEMORY_FILES}`;
  const wanted = asked ?? SHARE * free;
  if (room >= wanted) return { what, level: 'ok', says };
  const why = asked === undefined ? 'a quarter of what is free' : 'prefixCache.bytes';
  const advice =
    `they take no more than that, and ${why} is ${size(wanted)}: in a container set --shm-size, or mount a volume of medium Memory ` +
    '(docs/deploy.md#in-a-container)';
  return { what, level: 'warn', says, advice };
}
