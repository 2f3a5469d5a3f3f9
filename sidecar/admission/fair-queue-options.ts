import type { Clock } from '../lib/clock.js';
import type { ReusableTokens } from './next-request.js';
import type { ReplicaSize } from './replica-seats.js';

export interface FairQueueConfig {
  /** The longest wait from `enter` to a seat, ms. */
  readonly maxWaitMs: number;
  /** Requests that may wait, per seat. */
  readonly waitingPerSeat: number;
  /** Body bytes that all waiting requests may hold together. */
  readonly waitingBytes: number;
}

export interface FairQueueOptions {
  readonly clock: Clock;
  /** From 0 to 1, for the spread of retries. */
  readonly random: () => number;
  readonly config: FairQueueConfig;
  /**
   * Seats to begin with, of an engine that is one process, or of each replica; `pause` each at once that is not there yet.
   */
  readonly seats: number | readonly ReplicaSize[];
  /** What the free sequences and the prefix cache of each replica hold of a prompt; absent: affinity plays no part. */
  readonly reusableTokens?: ReusableTokens;
  /** Whether a replica is ready or becomes ready without a new request; absent: always. */
  readonly comes?: () => boolean;
  /** False, for comparisons: the queue without what it learns of overload (overload.ts). */
  readonly learns?: boolean;
}
