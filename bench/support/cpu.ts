/** CPU time of a process as Linux counts it for each of its threads, so without any waiting. */
import { readdir, readFile } from 'node:fs/promises';

/** Seconds on a processor so far. */
export interface Cpu {
  readonly mainThread: number;
  readonly all: number;
}

export async function cpuOf(pid: number): Promise<Cpu> {
  const threads = await readdir(`/proc/${pid}/task`);
  const seconds = async (thread: string): Promise<number> =>
    Number((await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8')).split(' ')[0]) / 1e9;
  const each = await Promise.all(threads.map(async (thread) => [thread, await seconds(thread)] as const));
  return {
    mainThread: each.find(([thread]) => Number(thread) === pid)?.[1] ?? NaN,
    all: each.reduce((sum, [, spent]) => sum + spent, 0),
  };
}
