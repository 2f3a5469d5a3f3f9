import type { SeatNeeds } from '../admission/seat-queue.js';

/** A job for the engine, but for the number of its seats, and what the queue is to know of it. */
export interface JobPlan<T> {
  readonly needs: SeatNeeds & { readonly prefix: Uint32Array };
  /** With the prompt's tokens and grammars. Undefined once an engine has begun it. */
  job: Omit<T, 'seats'> | undefined;
}
