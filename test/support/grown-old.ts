import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * The most bytes in V8’s old generation above those before, at any call of `look` by `work`, which must not retain
 * anything and calls it often enough that no full collection passes unseen. Live objects are made old before. Large
 * objects are not counted.
 */
export async function grownOld(work: (look: () => void) => Promise<void> | void): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  const before = oldBytes();
  let most = 0;
  const look = (): void => {
    most = Math.max(most, oldBytes() - before);
  };
  await work(look);
  look();
  return most;
}

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? NaN;
}
