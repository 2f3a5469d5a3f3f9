import type { Lease } from '../admission/seat-queue.js';
import type { Cancel, EngineFault } from '../engine-client/engine.js';
import type { ContractError } from '../errors.js';
import * as refusals from './refusals.js';
import type { Visit } from './visit.js';

/** The end of a sink: what every job tells when it is over. */
export interface JobEnd {
  done(): void;
  failed(fault: EngineFault): void;
}

export type RunEnd =
  | { readonly kind: 'done' }
  /** The caller left; the job is cancelled. */
  | { readonly kind: 'left' }
  | { readonly kind: 'failed'; readonly error: ContractError }
  /** Refused while waiting a second time; the caller is answered. */
  | { readonly kind: 'answered' };

/**
 * Runs a job on its seat and ends the lease, whatever happens. A job that the engine lost before it began goes back to
 * its place in the queue, once (the queue refuses a second time, which bounds the loop).
 */
export async function runOnSeat(
  visit: Visit,
  first: Lease,
  draining: () => boolean,
  start: (end: JobEnd) => Cancel,
): Promise<RunEnd> {
  let lease = first;
  for (;;) {
    visit.handedOver();
    const end = await run(visit.exchange.gone, start);
    if (end === 'done' || end === 'left') {
      lease.release(end === 'done' ? 'done' : 'cancelled');
      return { kind: end };
    }
    if (end.kind !== 'lost' || end.started) {
      lease.release(end.kind === 'lost' ? 'engine-lost' : 'failed');
      // The drain's time is over: we took the engine away ourselves.
      const error = draining() ? refusals.draining(refusals.DRAIN_RETRY_MS) : refusals.engineFault(end);
      return { kind: 'failed', error };
    }
    const again = await visit.awaitSeat(lease.giveBack());
    if (!again) return { kind: 'answered' };
    lease = again;
  }
}

function run(gone: AbortSignal, start: (end: JobEnd) => Cancel): Promise<'done' | 'left' | EngineFault> {
  return new Promise((resolve) => {
    if (gone.aborted) {
      resolve('left');
      return;
    }
    const leave = (): void => {
      cancel();
      resolve('left');
    };
    const end = (how: 'done' | EngineFault): void => {
      gone.removeEventListener('abort', leave);
      resolve(how);
    };
    const cancel = start({ done: () => end('done'), failed: end });
    gone.addEventListener('abort', leave, { once: true });
  });
}
