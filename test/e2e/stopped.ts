import { readdirSync, readFileSync } from 'node:fs';
import { eventually } from '../support/processes.js';

/** Stops a process and resolves once each of its threads is stopped: until then one may still process what arrives. */
export async function stopProcess(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  await eventually('it has stopped', () =>
    readdirSync(`/proc/${pid}/task`).every((thread) => {
      const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8');
      return stat.slice(stat.lastIndexOf(')') + 2).startsWith('T');
    }),
  );
}
