import type { Lease } from '../admission/seat-queue.js';

/** A try that the sidecar ended. `gone`: settles when the engine computes nothing of it any more; absent: now. */
export type Cut =
  { readonly kind: 'left'; readonly gone?: Promise<void> } | { readonly kind: 'late'; readonly gone?: Promise<void> };

/** The caller's answer does not wait for that. Returns whether it is later than now. */
export function releaseWhenGone(lease: Lease, { kind, gone }: Cut): boolean {
  const reason = kind === 'left' ? 'cancelled' : 'deadline';
  if (gone) void gone.then(() => lease.release(reason));
  else lease.release(reason);
  return gone !== undefined;
}
