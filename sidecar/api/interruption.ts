import type { Lease } from '../admission/seat-queue.js';
import type { Stop } from './request-context.js';

/**
 * Why the sidecar ended an attempt: its caller disconnected, or its deadline passed. `engineStopped`: settles when the engine no
 * longer computes it; absent: it has stopped already.
 */
export type Interruption =
  | { readonly kind: 'cancelled'; readonly engineStopped?: Promise<void> }
  | { readonly kind: 'deadline'; readonly engineStopped?: Promise<void> };

/** Releases the lease once the engine has stopped; the caller's answer does not wait for that. Returns whether it is later. */
export function releaseWhenStopped(lease: Lease, { kind, engineStopped }: Interruption): boolean {
  if (engineStopped) void engineStopped.then(() => lease.release(kind));
  else lease.release(kind);
  return engineStopped !== undefined;
}

/** The reason with which the lease of a request is released whose prompt could not be made again. */
export function releaseReasonOf(stop: Stop): 'cancelled' | 'deadline' | 'failed' {
  if (stop.kind === 'cancelled') return 'cancelled';
  return stop.kind === 'failed' && stop.error.code === 'timeout' ? 'deadline' : 'failed';
}
