import type { SeatNeeds } from '../admission/seat-queue.js';

/** A job for the engine, and what the queue is to know of it. */
export interface JobPlan<T> {
  readonly needs: SeatNeeds & { readonly prefix: Uint32Array };
  readonly job: T;
}
