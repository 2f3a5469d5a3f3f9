/**
 * Requests between two parts of their work (`Lease.nextTurn`): a long list of embeddings takes turns with the requests of all accounts. They
 * have a part of their answer, so none is refused for its wait, dropped for another or ended by a drain. They have no place that another
 * request could take, and are at most as many as had seats.
 */
import type { RefusalReason } from '../domain/refusal-reasons.js';
import type { Clock } from '../lib/clock.js';
import type { Forecast } from './forecast.js';
import type { Judge } from './judge.js';
import type { QueuedRequest } from './request.js';
import type { QueueState } from './state.js';
import type { TicketOutcome } from './types.js';

interface Queue {
  readonly clock: Clock;
  readonly isServed: () => boolean;
  /** Makes one change, and gives the free seats to those who wait. */
  readonly turn: <R>(change: () => R) => R;
  readonly returnSeats: (queued: QueuedRequest) => void;
  readonly settle: (queued: QueuedRequest, outcome: TicketOutcome) => void;
}

/** The requests of one queue that wait for a next part. */
export class PartWaits {
  readonly #state: QueueState;
  readonly #forecast: Forecast;
  readonly #judge: Judge;
  readonly #queue: Queue;
  readonly #waiting = new Set<QueuedRequest>();

  constructor(state: QueueState, forecast: Forecast, judge: Judge, queue: Queue) {
    this.#state = state;
    this.#forecast = forecast;
    this.#judge = judge;
    this.#queue = queue;
  }

  /** A part of a request's work has ended: returns its seats. It is ready for the next one now, or once `after` settles. */
  begin(queued: QueuedRequest, after: Promise<void> | undefined): Promise<TicketOutcome> {
    const outcome = queued.awaitAgain();
    const { deadlineAt } = queued.request;
    const { clock, turn, returnSeats } = this.#queue;
    queued.inQueueMs = 0;
    this.#waiting.add(queued);
    if (deadlineAt !== undefined)
      queued.disarm = clock.after(deadlineAt - this.#state.now, () => turn(() => this.#refuse(queued, 'deadline')));
    queued.phase = 'paused';
    if (after === undefined) this.#ready(queued, false);
    else void after.then(() => turn(() => this.#ready(queued, true)));
    returnSeats(queued);
    this.#forecast.leaseEnded(queued, 'done');
    this.#forecast.seatUsed(this.#state.accountOf(queued), this.#state.classOf(queued), queued.seatMs, true);
    this.#state.countReleased('done');
    return outcome;
  }

  /** Those that are not ready for their next part. */
  get paused(): number {
    return [...this.#waiting].filter(({ phase }) => phase === 'paused').length;
  }

  /** It is given a seat. Returns whether it was one of these. */
  granted(queued: QueuedRequest): boolean {
    return this.#waiting.delete(queued);
  }

  /** It waits no more, if it was one of these. Returns whether it was. */
  end(queued: QueuedRequest): boolean {
    if (!this.#waiting.delete(queued)) return false;
    queued.disarm?.();
    queued.disarm = undefined;
    if (queued.phase === 'ready') this.#state.leave(queued, false);
    return true;
  }

  refuseAll(reason: RefusalReason): void {
    for (const queued of [...this.#waiting]) this.#refuse(queued, reason);
  }

  /** `paused`: its account may have been idle since its last part. Does nothing where it has ended meanwhile. */
  #ready(queued: QueuedRequest, paused: boolean): void {
    if (queued.phase !== 'paused') return;
    if (!this.#queue.isServed()) {
      this.#refuse(queued, 'no-engine');
      return;
    }
    queued.phase = 'ready';
    queued.readyAt = queued.queuedAt = this.#state.now;
    queued.turnDelayMs = this.#state.now - queued.enteredAt;
    this.#state.readyAgain(queued, paused);
  }

  #refuse(queued: QueuedRequest, reason: RefusalReason): void {
    if (this.end(queued)) this.#queue.settle(queued, this.#judge.refuseWaiting(queued, reason));
  }
}
