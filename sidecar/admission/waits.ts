/**
 * How long a request may wait in the queue: until its deadline, its client's own timeout or the longest wait, and where its class is served
 * newest first until it is hopeless (overload.ts). A request has one timer, for whichever comes first. While nothing but its own checks
 * keeps it from a seat, the longest wait does not count; the only request that waits is not hopeless.
 */
import type { Clock } from '../lib/clock.js';
import type { Forecast } from './forecast.js';
import type { Overload } from './overload.js';
import type { QueuedRequest } from './request.js';
import type { QueueState } from './state.js';

/** A request whose wait is extended is looked at again after this time, ms: the only one that waits, or one whose checks run. */
const AGAIN_MS = 100;

/** While a seat is free, checks may take this long whatever the longest wait is, ms: it is not for a seat that the request waits. */
export const CHECKS_MS = 5000;

export type PassedBound = 'deadline' | 'wait' | 'hopeless';

export class WaitTimers {
  readonly #clock: Clock;
  readonly #state: QueueState;
  readonly #forecast: Forecast;
  readonly #overload: Overload;
  readonly #turn: (change: () => void) => void;
  readonly #refuse: (queued: QueuedRequest, bound: PassedBound) => void;

  /** `turn` makes one operation of the queue, `refuse` ends a wait; both are called by timers alone. */
  constructor(
    clock: Clock,
    { state, forecast, overload }: { state: QueueState; forecast: Forecast; overload: Overload },
    turn: (change: () => void) => void,
    refuse: (queued: QueuedRequest, bound: PassedBound) => void,
  ) {
    this.#clock = clock;
    this.#state = state;
    this.#forecast = forecast;
    this.#overload = overload;
    this.#turn = turn;
    this.#refuse = refuse;
  }

  /**
   * Starts the timer of a request that has none. `patienceFrom`: from when on its patience counts. `minMs`: the wait lasts at least this
   * long, even when the longest wait has passed.
   */
  arm(queued: QueuedRequest, patienceFrom = queued.enteredAt, minMs = -Infinity): void {
    const { now } = this.#state;
    const deadlineIn = (queued.request.deadlineAt ?? Infinity) - now;
    const waitIn = Math.max(this.#forecast.maxWaitMs - this.#inQueueMs(queued), minMs);
    const clientIn = (queued.request.wantedUntil ?? Infinity) - now;
    // Up to the next whole millisecond, so that sums of fractions do not arm it again and again for no time.
    const patienceIn = Math.ceil(patienceFrom + this.#hopelessMs(queued) - now) + 1;
    const dueIn = Math.min(deadlineIn, waitIn, clientIn, Math.max(patienceIn, 1));
    const bound = deadlineIn === dueIn ? 'deadline' : waitIn === dueIn ? 'wait' : 'hopeless';
    const byPatience = bound === 'hopeless' && dueIn < clientIn;
    queued.disarm = this.#clock.after(dueIn, () => this.#turn(() => this.#due(queued, bound, byPatience)));
  }

  /** Its wait has ended. */
  disarm(queued: QueuedRequest): void {
    queued.disarm?.();
    queued.disarm = undefined;
    queued.inQueueMs = this.#inQueueMs(queued);
  }

  /** A promised wait has ended without a seat: unless it has just done so, it lasts as long again, before all others. Returns whether it does. */
  again(queued: QueuedRequest): boolean {
    const { now, returned } = this.#state;
    // A timer may fire a fraction of a millisecond early.
    if (queued.list === returned && Math.ceil(now - queued.queuedAt) >= this.#forecast.maxWaitMs) return false;
    this.disarm(queued);
    queued.queuedAt = now;
    this.#state.leave(queued, false);
    this.#state.waitsAgain(queued);
    this.arm(queued, queued.enteredAt, this.#forecast.maxWaitMs);
    return true;
  }

  /** A bound of its wait has passed: refuses it, or starts its timer again. `byPatience`: overload rule "isHopeless". */
  #due(queued: QueuedRequest, bound: PassedBound, byPatience: boolean): void {
    const { now, waiting, replicas } = this.#state;
    // Nothing but its own checks keeps it from a seat, and they have not taken too long.
    const isOnlyChecked = queued.phase === 'unready' && replicas.freeSeats > 0 && this.#inQueueMs(queued) < CHECKS_MS;
    // The patience of its class may have been learned to be longer meanwhile.
    if (byPatience && this.#hopelessMs(queued) > now - queued.enteredAt) this.arm(queued);
    // The only request that waits is seated in any case, unless others come.
    else if ((byPatience && waiting === 1) || (bound === 'wait' && isOnlyChecked))
      this.arm(queued, now + AGAIN_MS, isOnlyChecked ? AGAIN_MS : undefined);
    else {
      if (bound !== 'hopeless' && this.#isMispredicted(queued)) this.#forecast.waitedTooLong(queued);
      this.#refuse(queued, bound);
    }
  }

  /** Whether a wait that was too long is an error of the predictions, and not due to a lost engine, slow checks or newer requests. */
  #isMispredicted(queued: QueuedRequest): boolean {
    const byChecks = queued.readyAt - queued.queuedAt > this.#forecast.maxWaitMs;
    const isNewestFirst = this.#state.classOf(queued).newestFirst;
    return queued.phase === 'ready' && !byChecks && !isNewestFirst && this.#state.hadEngine(queued);
  }

  /** How long it may wait, ms. Only where its class is served newest first, since there no other check looks at it. */
  #hopelessMs(queued: QueuedRequest): number {
    return this.#state.classOf(queued).newestFirst ? this.#overload.hopelessMs(queued) : Infinity;
  }

  /** How long it has been in the queue without a seat, checks included, ms. */
  #inQueueMs({ inQueueMs, queuedAt }: QueuedRequest): number {
    return inQueueMs + this.#state.now - queuedAt;
  }
}
