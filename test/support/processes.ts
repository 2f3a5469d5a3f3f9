/** What Linux says of running processes, for tests that watch the memory and the children of the sidecar. */
import { readdir, readFile } from 'node:fs/promises';

export interface ProcessInfo {
  readonly pid: number;
  /** Its command line, arguments separated by spaces. */
  readonly command: string;
}

/** Processes that `parent` started and that are still there. */
export async function childrenOf(parent: number): Promise<ProcessInfo[]> {
  const pids = (await readdir('/proc')).filter((name) => /^[0-9]+$/.test(name)).map(Number);
  const found = await Promise.all(pids.map((pid) => childOf(parent, pid).catch(() => undefined)));
  return found.filter((child) => child !== undefined);
}

/** Bytes of physical memory that a process holds. Rejects when there is no such process. */
export async function residentBytes(pid: number): Promise<number> {
  const kib = /^VmRSS:\s+([0-9]+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1];
  if (kib === undefined) throw new Error(`process ${pid} has no memory`);
  return Number(kib) * 1024;
}

async function childOf(parent: number, pid: number): Promise<ProcessInfo | undefined> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  if (!new RegExp(`^PPid:\\s+${parent}$`, 'm').test(status)) return undefined;
  const command = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ').trim();
  return { pid, command };
}
