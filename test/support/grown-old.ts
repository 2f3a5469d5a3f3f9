import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Bytes that V8 took over into the old generation while `work` ran, which should hold on to nothing. What is alive before
 * is old before. Large objects are not counted.
 */
export async function grownOld(work: () => Promise<void> | void): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  const before = oldBytes();
  await work();
  return oldBytes() - before;
}

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? NaN;
}
