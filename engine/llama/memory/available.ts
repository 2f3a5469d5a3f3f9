import { statfsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { GgufInsights, Llama } from 'node-llama-cpp';
import { MEMORY_FILES } from '../../protocol/cache-key.js';
import { systemText } from '../../protocol/usable-cores.js';

/** A file's text; empty or undefined when it cannot be read. */
export type ReadText = (path: string) => string | undefined;

/**
 * Bytes of memory that this process may still use on Linux: what the kernel reports as available (including reclaimable
 * page cache), or what the control groups above this process leave if that is less. Undefined on other systems.
 */
export function availableMemory(read: ReadText = systemText): number | undefined {
  const available = /^MemAvailable:\s+(\d+) kB$/m.exec(read('/proc/meminfo') ?? '')?.[1];
  if (available === undefined) return undefined;
  return Math.max(0, Math.min(Number(available) * 1024, ...groupRooms(read)));
}

/** Bytes of each kind of memory. */
export type Sizes = Awaited<ReturnType<GgufInsights['estimateModelResourceRequirementsV2']>>;

/** What is free now of each kind of memory. */
export async function freeMemory(llama: Llama): Promise<Sizes> {
  return {
    cpuRam: availableMemory() ?? (await llama.getRamState()).free,
    gpuVram: llama.gpu === false ? 0 : (await llama.getVramState()).free,
  };
}

/** Bytes that files in memory can take, of all processes together, and still now; undefined if this system has none. */
export function roomForMemoryFiles(): { readonly total: number; readonly free: number } | undefined {
  try {
    const { blocks, bavail, bsize } = statfsSync(MEMORY_FILES);
    return { total: blocks * bsize, free: bavail * bsize };
  } catch {
    return undefined;
  }
}

/** Files of one version of control groups: where it is mounted, and what holds limit, use and page cache. */
interface Version {
  readonly root: string;
  readonly limit: string;
  readonly usage: string;
  /** Names in memory.stat. */
  readonly cache: readonly string[];
}

const V2: Version = {
  root: '/sys/fs/cgroup',
  limit: 'memory.max',
  usage: 'memory.current',
  cache: ['inactive_file', 'active_file'],
};
const V1: Version = {
  root: '/sys/fs/cgroup/memory',
  limit: 'memory.limit_in_bytes',
  usage: 'memory.usage_in_bytes',
  cache: ['total_inactive_file', 'total_active_file'],
};

/** What each limited group from ours up to the root leaves. In a container the path may not exist: then its root is ours. */
function groupRooms(read: ReadText): number[] {
  return (read('/proc/self/cgroup') ?? '').split('\n').flatMap((line) => {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined) return [];
    if (controllers === '') return ancestors(path).flatMap((group) => roomIn(V2, group, read));
    if (controllers?.split(',').includes('memory')) return ancestors(path).flatMap((group) => roomIn(V1, group, read));
    return [];
  });
}

/** `/a/b`, `/a`, `/`. */
function ancestors(path: string): string[] {
  return path === '/' ? ['/'] : [path, ...ancestors(dirname(path))];
}

function roomIn({ root, limit, usage, cache }: Version, group: string, read: ReadText): number[] {
  const number = (name: string): number => Number.parseInt(read(join(root, group, name)) ?? '', 10);
  // `max` and a missing file are both no number.
  const [most, used] = [number(limit), number(usage)];
  if (!Number.isFinite(most) || !Number.isFinite(used)) return [];
  const stat = read(join(root, group, 'memory.stat')) ?? '';
  const cached = cache.map((name) => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0));
  return [most - used + cached.reduce((sum, bytes) => sum + bytes, 0)];
}
