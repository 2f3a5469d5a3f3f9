import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * The most bytes in V8’s old generation above those before, at any call of `look` by `work`, which must not retain
 * anything and calls it often enough that no full collection passes unseen. Live objects are made old before. Large
 * objects are not counted.
 */
export async function grownOld(work: (look: () => void) => Promise<void> | void): Promise<number> {
  fullCollector()();
  const before = oldBytes();
  let most = 0;
  const look = (): void => {
    most = Math.max(most, oldBytes() - before);
  };
  await work(look);
  look();
  return most;
}

/** A function that collects the young generation, so that a test does not depend on when V8 does. */
export function youngCollector(): () => void {
  const collect = collector();
  return () => collect({ type: 'minor' });
}

/** A function that collects everything that is not referenced. */
export function fullCollector(): () => void {
  const collect = collector();
  return () => collect();
}

/** By default it collects everything. */
function collector(): (options?: { readonly type: 'minor' }) => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as ReturnType<typeof collector>;
}

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? NaN;
}
