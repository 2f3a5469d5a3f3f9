import type { Lease } from '../admission/seat-queue.js';
import type { EngineFault, JobHandle } from '../engine-client/engine.js';
import type { ContractError } from '../domain/errors.js';
import * as refusals from './refusals.js';
import type { UsageSession } from './usage-session.js';
import type { RequestContext, Stop } from './request-context.js';

/** The end of a sink: what every job reports when it is over. */
export interface JobEnd {
  /** One of its seats is not needed any more. */
  freed(): void;
  done(): void;
  failed(fault: EngineFault): void;
}

export type RunEnd =
  | { readonly kind: 'done' }
  /** The caller left; the job is cancelled. */
  | { readonly kind: 'left' }
  | { readonly kind: 'failed'; readonly outcome: 'failed' | 'timeout' | 'refused'; readonly error: ContractError }
  /** It lost its place while it waited a second time. */
  | { readonly kind: 'stopped'; readonly stop: Stop };

/** A job that is ready for its engine. */
export interface SeatedJob {
  /** Hands it to the engine; called a second time when the engine is lost before it began. Returns why it must not start. */
  start(end: JobEnd, lease: Lease): JobHandle | ContractError;
}

/** The job must not start. */
interface NotStarted {
  readonly kind: 'not-started';
  readonly error: ContractError;
}

/**
 * Runs a job on its seats and ends the lease, whatever happens. `start` may grow the lease to the seats that the job
 * uses. A job that the engine lost before it began goes back to its place in the
 * queue, once (the queue refuses a second time, which bounds the loop).
 */
export async function runJob(
  context: RequestContext,
  first: Lease,
  draining: () => boolean,
  job: SeatedJob,
): Promise<RunEnd> {
  let lease = first;
  try {
    for (;;) {
      context.times.handedOver();
      const end = await run(context, lease, job);
      if (end === 'done') context.times.ran();
      if (end === 'done' || end === 'left') {
        lease.release(end === 'done' ? 'done' : 'cancelled');
        return { kind: end };
      }
      if (end === 'late') {
        lease.release('deadline');
        return { kind: 'failed', outcome: 'timeout', error: refusals.timedOut() };
      }
      if (end.kind === 'not-started') {
        lease.release('failed');
        return { kind: 'failed', outcome: 'refused', error: end.error };
      }
      if (end.kind !== 'lost' || end.started) {
        lease.release(end.kind === 'lost' ? 'engine-lost' : 'failed');
        // The drain's time is over: we took the engine away ourselves.
        const error = draining() ? refusals.cutShort() : refusals.engineFault(end);
        return { kind: 'failed', outcome: 'failed', error };
      }
      context.times.ran();
      const again = await context.awaitSeat(lease.giveBack());
      if ('kind' in again) return { kind: 'stopped', stop: again };
      lease = again;
    }
  } finally {
    // Only after a fault is it still held.
    lease.release('failed');
  }
}

/** Takes up to `wanted` seats in all, as many as are free and no request waits for. Returns how many it has. */
export function growTo(lease: Lease, wanted: number): number {
  while (lease.seats < wanted && lease.grow());
  return lease.seats;
}

/** Answers and records what every route ends alike: all but `done`. */
export async function endUnfinished(
  context: RequestContext,
  usage: UsageSession,
  end: Exclude<RunEnd, { readonly kind: 'done' }>,
): Promise<void> {
  switch (end.kind) {
    case 'left':
      context.left(context.phase);
      await usage.close('cancelled');
      return;
    case 'failed':
      context.fail(end.error);
      await usage.close(end.outcome);
      return;
    case 'stopped':
      context.stop(end.stop);
      await usage.close(outcomeOf(end.stop));
  }
}

function outcomeOf(stop: Stop): 'cancelled' | 'timeout' | 'refused' {
  if (stop.kind === 'left') return 'cancelled';
  return stop.kind === 'refused' && stop.code === 'timeout' ? 'timeout' : 'refused';
}

/** One try: until the job ends, its caller leaves or its deadline passes, whichever comes first. */
function run(
  context: RequestContext,
  lease: Lease,
  seated: SeatedJob,
): Promise<'done' | 'left' | 'late' | EngineFault | NotStarted> {
  const { gone } = context.exchange;
  return new Promise((resolve) => {
    if (gone.aborted) {
      resolve('left');
      return;
    }
    const clear = (): void => {
      gone.removeEventListener('abort', leave);
      cancelTimer();
    };
    const end = (how: 'done' | 'left' | 'late' | EngineFault | NotStarted): void => {
      clear();
      resolve(how);
    };
    const stop = (how: 'left' | 'late'): void => {
      job?.cancel();
      end(how);
    };
    const leave = (): void => stop('left');
    let job: JobHandle | undefined;
    // Before the start, which may end the job at once.
    const cancelTimer = context.atDeadline(() => stop('late'));
    gone.addEventListener('abort', leave);
    try {
      const started = seated.start({ freed: () => lease.shrink(), done: () => end('done'), failed: end }, lease);
      if ('cancel' in started) {
        job = started;
        lease.whenWanted(() => started.reduceSeats());
      } else end({ kind: 'not-started', error: started });
    } catch (fault) {
      clear();
      throw fault;
    }
  });
}
