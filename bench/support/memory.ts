/**
 * The most memory that a process had at any time, as Linux counts it, which includes mapped weights that it has read.
 */
import { readdir, readFile } from 'node:fs/promises';

const KIB = 1024;

/** MiB; NaN once the process is gone. */
export async function peakMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/^VmHWM:\s+([0-9]+) kB$/m.exec(status)?.[1] ?? NaN) / KIB;
}

/** The process whose parent is `pid` and whose command line contains `text`. Throws if there is none. */
export async function childWith(pid: number, text: string): Promise<number> {
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    const children = await readFile(`/proc/${pid}/task/${thread}/children`, 'utf8');
    for (const child of children.split(' ').filter((each) => each !== '')) {
      if ((await readFile(`/proc/${child}/cmdline`, 'utf8')).includes(text)) return Number(child);
    }
  }
  throw new Error(`process ${pid} has no child ${text}`);
}
