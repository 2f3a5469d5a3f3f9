import type { Clock } from '../lib/clock.js';
import type { Overload } from './overload.js';
import type { QueuedRequest } from './queued-request.js';
import type { QueueState } from './queue-state.js';

/** Why a wait ended by time: its own deadline, the longest wait, or `hopeless` as in RefusalReason (seat-queue.ts). */
export type WaitEnd = 'deadline' | 'wait' | 'hopeless';

/** The functions of the queue that the timers call. */
export interface TimedQueue {
  /** Brings the queue's state to the present; called before anything else when a timer fires. */
  accrue(): void;
  /** The wait is over. `mispredicted`: the prediction should have been longer. */
  timedOut(queued: QueuedRequest, reason: WaitEnd, mispredicted: boolean): void;
}

/** A request whose wait is extended is looked at again so much later, ms: the only one that waits, or one whose checks run. */
const AGAIN_MS = 100;

/** While a seat is free, checks may take so long whatever the longest wait is, ms: it is not for a seat that the request waits. */
const CHECKS_MS = 5000;

/** One timer for each waiting request, for whichever bound of its wait comes first. */
export class WaitTimer {
  readonly #clock: Clock;
  readonly #maxWaitMs: number;
  readonly #state: QueueState;
  readonly #overload: Overload;
  readonly #queue: TimedQueue;

  /** `maxWaitMs`: the longest wait from `enter` to a seat. */
  constructor(clock: Clock, maxWaitMs: number, state: QueueState, overload: Overload, queue: TimedQueue) {
    this.#clock = clock;
    this.#maxWaitMs = maxWaitMs;
    this.#state = state;
    this.#overload = overload;
    this.#queue = queue;
  }

  /**
   * Starts the timer of a request that has none. The queue's state must be at the present. `since`: from when on its patience counts.
   * `leastMs`: a longest wait that is over does not end the wait before that.
   */
  arm(queued: QueuedRequest, since = queued.enteredAt, leastMs = -Infinity): void {
    const { now } = this.#state;
    const wantedIn = (queued.request.wantedUntil ?? Infinity) - now;
    // Up to the next whole millisecond, so that sums of fractions do not arm it again and again for no time.
    const patienceIn = Math.ceil(since + this.#hopelessMs(queued) - now) + 1;
    const deadlineIn = (queued.request.deadlineAt ?? Infinity) - now;
    const waitIn = Math.max(this.#maxWaitMs - waitedMs(queued, now), leastMs);
    const least = Math.min(deadlineIn, waitIn, wantedIn, Math.max(patienceIn, 1));
    const reason = deadlineIn === least ? 'deadline' : waitIn === least ? 'wait' : 'hopeless';
    const byPatience = reason === 'hopeless' && least < wantedIn;
    queued.disarm = this.#clock.after(least, () => {
      this.#queue.accrue();
      // The patience of its class may have been learned to be longer meanwhile.
      if (byPatience && this.#hopelessMs(queued) > this.#state.now - queued.enteredAt) this.arm(queued);
      // The only request that waits is seated in any case, unless others come.
      else if (byPatience && this.#state.waiting === 1) this.#armAgain(queued);
      else if (reason === 'wait' && this.#isOnlyChecked(queued)) this.#armAgain(queued);
      else this.#queue.timedOut(queued, reason, this.#isMispredicted(queued, reason));
    });
  }

  #armAgain(queued: QueuedRequest): void {
    this.arm(queued, this.#state.now + AGAIN_MS, this.#isOnlyChecked(queued) ? AGAIN_MS : undefined);
  }

  /** Whether nothing but its own checks keeps it from a seat, and they have not taken too long. */
  #isOnlyChecked(queued: QueuedRequest): boolean {
    return queued.phase === 'unready' && this.#state.free > 0 && waitedMs(queued, this.#state.now) < CHECKS_MS;
  }

  /**
   * A wait that became too long because of a lost engine, slow checks or newer requests is no error of the predictions.
   */
  #isMispredicted(queued: QueuedRequest, reason: WaitEnd): boolean {
    if (reason === 'hopeless' || this.#state.classOf(queued).newestFirst) return false;
    const byChecks = queued.readyAt - queued.queuedAt > this.#maxWaitMs;
    return queued.phase === 'ready' && !byChecks && this.#state.unbroken(queued);
  }

  /** How long it may wait, ms. Only where its class is served newest first, since there no other check looks at it. */
  #hopelessMs(queued: QueuedRequest): number {
    const accountClass = this.#state.classOf(queued);
    if (!accountClass.newestFirst || queued.hasReservation || queued.returns > 0) return Infinity;
    return this.#overload.hopelessMs(queued, this.#state.accountOf(queued));
  }
}

/** How long it has waited for a seat, ms. */
function waitedMs({ inQueueMs, queuedAt }: QueuedRequest, now: number): number {
  return inQueueMs + now - queuedAt;
}
