import type { EngineSetup } from '../../engine/protocol/setup.js';
import { EngineChild, type EngineChildEvents } from './child.js';
import type { SupervisedReplicaOptions } from './supervisor-options.js';

/** Forks an engine process with this setup. It reports to `events` from the next tick on. */
export function forkChild(
  { entry, timing, clock, log, names, environment, mappedElsewhere }: SupervisedReplicaOptions,
  setup: EngineSetup,
  events: Omit<EngineChildEvents, 'failed'>,
): EngineChild {
  const memory = mappedElsewhere && { mappedElsewhere: mappedElsewhere(setup.file) };
  const child = new EngineChild(
    { entry, setup: memory ? { ...setup, memory } : setup, timing, clock, ...(environment && { environment }) },
    { ...events, failed: (reason) => log.warn('job failed', { ...names, reason }) },
  );
  // A child that could not be forked has no pid, and is reported as lost.
  if (child.pid !== undefined) log.info('engine forked', { ...names, pid: child.pid });
  return child;
}
