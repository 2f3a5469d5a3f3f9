import { cpus } from 'node:os';

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

function busyMs(): number {
  return cpus().reduce((sum, { times: { user, nice, sys, irq } }) => sum + user + nice + sys + irq, 0);
}
