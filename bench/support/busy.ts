import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { CpuGroup } from '../../test/support/cpu-group.js';

/** Cores in use by others, from which on the figures of a bench are marked as rough. */
export const BUSY = 0.2;

/** Cores that are busy with other work: the machine's busy time less this process's own, over `lookMs`. */
export async function foreignCores(lookMs: number): Promise<number> {
  const [before, own] = [busyMs(), process.cpuUsage()];
  const from = performance.now();
  await new Promise((later) => setTimeout(later, lookMs));
  const { user, system } = process.cpuUsage(own);
  return Math.max(0, (busyMs() - before - (user + system) / 1000) / (performance.now() - from));
}

/** Set in a process whose work is counted, and so in those that it starts, which count theirs no second time. */
const COUNTED = 'BENCH_COUNTED';

let own: CpuGroup | undefined;

/**
 * From now on the processor time of this process and of all that it starts is counted, for {@link OtherWork}. Nothing happens where
 * it cannot be: only root on Linux may create the control group.
 */
export function countOwnWork(): void {
  if (process.env[COUNTED] !== undefined) return;
  process.env[COUNTED] = '1';
  const group = CpuGroup.make();
  try {
    if (group !== undefined) writeFileSync(group.members, String(process.pid));
    own = group;
    process.once('exit', () => group?.leave());
  } catch {
    group?.close();
  }
}

/** What else the machine did from its creation on, while this process and those that it started worked. */
export class OtherWork {
  readonly #from = { at: performance.now(), busyMs: busyMs(), ownS: ownS() };

  /** Cores that were busy with other work, on average; undefined: unknown, since this process's own work is not counted. */
  get cores(): number | undefined {
    const { at, busyMs: before, ownS: ownBefore } = this.#from;
    const now = ownS();
    if (now === undefined || ownBefore === undefined) return undefined;
    return Math.max(0, (busyMs() - before - (now - ownBefore) * 1000) / (performance.now() - at));
  }
}

/** Seconds of processor time of what is counted. */
function ownS(): number | undefined {
  try {
    const used = own?.usedS ?? NaN;
    return Number.isFinite(used) ? used : undefined;
  } catch {
    return undefined;
  }
}

function busyMs(): number {
  return cpus().reduce((sum, { times: { user, nice, sys, irq } }) => sum + user + nice + sys + irq, 0);
}
