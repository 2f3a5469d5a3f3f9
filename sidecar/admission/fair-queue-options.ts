import type { Clock } from '../lib/clock.js';
import type { Shares } from './affinity.js';

export interface FairQueueConfig {
  /** The longest wait from `enter` to a seat, ms. */
  readonly maxWaitMs: number;
  /** Requests that may wait, per seat. */
  readonly waitingPerSeat: number;
  /** Body bytes that all waiting requests may hold together. */
  readonly waitingBytes: number;
  /** Learn from callers and from the queue which waits are worth a place (overload.ts): false where it is absent. */
  readonly learns?: boolean;
}

export interface FairQueueOptions {
  readonly clock: Clock;
  /** From 0 to 1, for the spread of retries. */
  readonly random: () => number;
  readonly config: FairQueueConfig;
  /** Seats to begin with; `pause` at once when the engine is not there yet. */
  readonly seats: number;
  /** What the engine's free sequences hold of a prompt; absent: affinity plays no part. */
  readonly shares?: Shares;
}
