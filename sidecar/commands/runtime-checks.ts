/** What `ra-sidecar doctor` checks of Node, of the HTTP library, whose native binaries are made for versions of Node and of glibc, and of swap. */
import type { Check } from './check.js';

/** The package's `engines`, by major version: the least minor one. */
const NODE_MINORS: ReadonlyMap<number, number> = new Map([
  [20, 19],
  [22, 13],
  [24, 0],
  [26, 0],
]);

/** Releases that get no security updates any more. They stay runnable for hosts that have nothing newer, until version 1.0. */
const PAST_END_OF_LIFE: ReadonlySet<number> = new Set([20]);

/** `version`: of Node, as in "22.13.0". */
export function nodeCheck(version: string): Check {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const least = NODE_MINORS.get(major);
  const ok = least !== undefined && minor >= least;
  const wanted = [...NODE_MINORS].map(([name, from]) => `${name}.${from} or newer ${name}`).join(', or ');
  if (!ok)
    return { what: 'Node', level: 'fail', says: `${version} is not supported`, advice: `install Node ${wanted}` };
  if (!PAST_END_OF_LIFE.has(major)) return { what: 'Node', level: 'ok', says: version };
  const advice = 'install Node 24 (Node 22 on glibc below 2.38): Node 20 gets no security updates since April 2026';
  return { what: 'Node', level: 'warn', says: `${version} works, and is past its end of life`, advice };
}

/** Its binaries are made for certain versions of Node and of the C library. */
export async function httpCheck(): Promise<Check> {
  const what = 'HTTP library';
  try {
    await import('../http/uws.js');
    return { what, level: 'ok', says: 'uWebSockets.js loads' };
  } catch (error) {
    return { what, level: 'fail', says: error instanceof Error ? error.message : 'does not load' };
  }
}

/**
 * Whether memory may be written to a swap device: engines keep prompts in memory. `swaps`: the text of /proc/swaps; empty if it does
 * not exist. `most`: the text of the control group's memory.swap.max; undefined: there is none.
 */
export function swapCheck(swaps: string, most: string | undefined): Check {
  const what = 'swap';
  const devices = swaps.trim().split('\n').slice(1);
  if (devices.length === 0)
    return { what, level: 'ok', says: swaps === '' ? 'this system does not report it' : 'none' };
  if (most?.trim() === '0') return { what, level: 'ok', says: 'this control group has none (memory.swap.max is 0)' };
  const says =
    'memory may be written to disk, and with it prompts that engines keep (docs/security.md#where-content-stays)';
  return { what, level: 'warn', says, advice: 'swapoff, encrypted swap, or MemorySwapMax=0 in the unit' };
}
