import type { Lease } from '../admission/seat-queue.js';
import type { Stop } from './request-context.js';

/**
 * An attempt that the sidecar ended. `gone`: settles when the engine no longer computes it; absent: it has stopped
 * already.
 */
export type Cut =
  { readonly kind: 'left'; readonly gone?: Promise<void> } | { readonly kind: 'late'; readonly gone?: Promise<void> };

/** The caller's answer does not wait for that. Returns whether it settles later. */
export function releaseWhenGone(lease: Lease, { kind, gone }: Cut): boolean {
  const reason = kind === 'left' ? 'cancelled' : 'deadline';
  if (gone) void gone.then(() => lease.release(reason));
  else lease.release(reason);
  return gone !== undefined;
}

/** Why the lease of a request ends whose prompt could not be made anew. */
export function reasonOf(stop: Stop): 'cancelled' | 'deadline' | 'failed' {
  if (stop.kind === 'left') return 'cancelled';
  return stop.kind === 'failed' && stop.error.code === 'timeout' ? 'deadline' : 'failed';
}
