import { statfsSync } from 'node:fs';
import { join } from 'node:path';
import type { GgufInsights, Llama } from 'node-llama-cpp';
import { MEMORY_FILES } from '../../protocol/cache-key.js';
import { groupFolders, systemText } from '../../protocol/usable-cores.js';

/**
 * Bytes of memory that this process may still use on Linux: what the kernel reports as available (including reclaimable
 * page cache), or what the control groups above this process leave if that is less. Undefined on other systems. `root`: the folder
 * that has `proc` and `sys`.
 */
export function availableMemory(root = '/'): number | undefined {
  const available = /^MemAvailable:\s+(\d+) kB$/m.exec(systemText(join(root, 'proc/meminfo')))?.[1];
  if (available === undefined) return undefined;
  const rooms = groupFolders(root, 'memory').flatMap((folder) => roomIn(join(root, folder)));
  return Math.max(0, Math.min(Number(available) * 1024, ...rooms));
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

/** Of both versions of control groups: the files that hold the limit and the use, and what names in memory.stat begin with. */
const VERSIONS = [
  ['memory.max', 'memory.current', ''],
  ['memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_'],
] as const;

/** What the group of this folder leaves, its page cache counted as free. None: it has no limit. */
function roomIn(folder: string): number[] {
  const number = (name: string): number => Number.parseInt(systemText(join(folder, name)), 10);
  return VERSIONS.flatMap(([limit, usage, lead]) => {
    // `max` and a missing file are both no number.
    const [most, used] = [number(limit), number(usage)];
    if (!Number.isFinite(most) || !Number.isFinite(used)) return [];
    const stat = systemText(join(folder, 'memory.stat'));
    const cached = [...stat.matchAll(new RegExp(`^${lead}(?:in)?active_file (\\d+)$`, 'gm'))].map(([, bytes]) =>
      Number(bytes),
    );
    return [most - used + cached.reduce((sum, bytes) => sum + bytes, 0)];
  });
}
