import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * The most bytes that V8 had taken over into the old generation at any `look` of `work`, which should hold on to nothing, and
 * calls it so often that no full collection passes unseen. What is alive before is old before. Large objects are not counted.
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
