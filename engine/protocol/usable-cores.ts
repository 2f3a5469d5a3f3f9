/**
 * How many cores this process may use: those of its affinity, and the CPU quota of its control groups. Node looks at a quota from
 * version 22 on, at one of cgroup 1 in no version, and rounds it down.
 */
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';

/**
 * `cores`: to plan threads for, at least 1: those of the affinity, or the quota, rounded up, if that is less. `present`: those that the
 * process may run on. `quota`: processor time per time that the control groups allow, such as 2.5; undefined if they do not limit it.
 * `root`: the folder that has `proc` and `sys`. Linux alone has quotas; elsewhere the result is Node's number.
 */
export function usableCores(root = '/') {
  const status = systemText(join(root, 'proc/self/status'));
  const [, list] = /^Cpus_allowed_list:\s*(\S+)$/m.exec(status) ?? [];
  const present = list === undefined ? availableParallelism() : Math.max(1, coresIn(list).length);
  const quotas = groupFolders(root, 'cpu').flatMap((folder) => quotaOf(root, folder) ?? []);
  const quota = quotas.length === 0 ? undefined : Math.min(...quotas);
  return { cores: quota === undefined ? present : Math.max(1, Math.min(present, Math.ceil(quota))), present, quota };
}

/** The numbers in a list as taskset and Linux write it: `0-3,8`. */
export function coresIn(list: string): number[] {
  return list.split(',').flatMap((range) => {
    const [from = NaN, to = from] = range.split('-').map(Number);
    return Array.from({ length: Math.max(0, to - from + 1) || 0 }, (_, i) => from + i);
  });
}

/** The folders of the process's own control groups of a controller, of both versions, and of their parents: each may have a limit. */
export function groupFolders(root: string, controller: 'cpu' | 'memory'): string[] {
  const groups = systemText(join(root, 'proc/self/cgroup')).split('\n');
  const folders: string[] = [];
  // Mount id, parent, device, root in its hierarchy, mount point, options, optional fields, a dash, type, source, own options.
  const mounts = systemText(join(root, 'proc/self/mountinfo'));
  const mount = /^\S+ \S+ \S+ (\S+) (\S+) .*? - (cgroup2?) \S+ (\S+)$/gm;
  for (const [, mounted = '/', point = '', type, options = ''] of mounts.matchAll(mount)) {
    if (type === 'cgroup' && !options.split(',').includes(controller)) continue;
    const own = groups.find((line) => {
      const [id, names = ''] = line.split(':');
      return type === 'cgroup2' ? id === '0' && names === '' : names.split(',').includes(controller);
    });
    if (own === undefined) continue;
    const path = own.slice(own.indexOf(':', own.indexOf(':') + 1) + 1);
    const inside = mounted !== '/' && `${path}/`.startsWith(`${mounted}/`);
    const below = inside ? path.slice(mounted.length) : path;
    // A group outside of the namespace has a path with `..`: its own folder is not mounted, the namespace's is.
    const names = below.includes('..') ? [] : below.split('/').filter((name) => name !== '');
    for (let count = names.length; count >= 0; count -= 1) folders.push(join(point, ...names.slice(0, count)));
  }
  return folders;
}

/** The CPU quota that a control group's folder sets, in cores. Returns undefined if the folder sets no quota. */
function quotaOf(root: string, folder: string): number | undefined {
  const text = (file: string): string => systemText(join(root, folder, file));
  const [most, per] = text('cpu.max').split(/\s+/);
  const quota = Number(most) / Number(per);
  const older = Number(text('cpu.cfs_quota_us')) / Number(text('cpu.cfs_period_us'));
  return [quota, older].find((cores) => Number.isFinite(cores) && cores > 0);
}

/** The text of a file in which the kernel describes itself or a process; empty where it cannot be read, as on other systems. */
export function systemText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
