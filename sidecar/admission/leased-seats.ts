import { isMeasurement, type Forecast } from './forecast.js';
import type { Overload } from './overload.js';
import type { QueuedRequest } from './queued-request.js';
import type { QueueState } from './queue-state.js';
import type { SeatPool } from './seat-lease.js';
import type { ReleaseReason, TicketOutcome } from './seat-queue.js';
import { WideLeases } from './wide-leases.js';

/** What the end of a lease means for its caller's patience. */
const ENDS: Readonly<Partial<Record<ReleaseReason, 'answered' | 'left'>>> = { done: 'answered', cancelled: 'left' };

/** The functions of the queue that leases call. */
export interface LeasingQueue {
  /** Brings the queue's state to the present and returns that, ms. Called first in each operation. */
  accrue(): number;
  /** Gives free seats to waiting requests. Called last. */
  dispatch(): void;
  /** The request waits again before all others, or is refused with `lost`; its seats are free. */
  returned(queued: QueuedRequest, seats: number, lost?: 'engine-lost'): void;
}

/** The seats of leases, and what is learned when they end. */
export class LeasedSeats implements SeatPool {
  readonly #queue: LeasingQueue;
  readonly #state: QueueState;
  readonly #overload: Overload;
  readonly #forecast: Forecast;
  readonly #wide = new WideLeases();

  constructor(queue: LeasingQueue, state: QueueState, overload: Overload, forecast: Forecast) {
    this.#queue = queue;
    this.#state = state;
    this.#overload = overload;
    this.#forecast = forecast;
  }

  take(queued: QueuedRequest): boolean {
    this.#queue.accrue();
    // No waiting request is passed over: while a seat is free, each request that could take it was given one.
    if (this.#state.replicas.freeOf(queued.replica) < 1) return false;
    this.#state.hold(queued, 1);
    return true;
  }

  put(queued: QueuedRequest): void {
    this.#queue.accrue();
    this.#state.hold(queued, -1);
    this.#queue.dispatch();
  }

  watch(recall: () => void): void {
    this.#wide.watch(recall);
  }

  forget(recall: () => void): void {
    this.#wide.forget(recall);
  }

  /** Asks leases of several seats to return one seat for each request that could be seated. */
  recall(): void {
    this.#wide.recall(this.#state.seatable);
  }

  begun(queued: QueuedRequest): void {
    this.#queue.accrue();
    this.#overload.observePatience(queued, this.#state.accountOf(queued), 'answered');
  }

  observeTokenMs({ replica }: QueuedRequest, ms: number): void {
    this.#state.replicas.observeTokenMs(replica, ms);
  }

  end(queued: QueuedRequest, seats: number, grantedAt: number, reason: ReleaseReason): void {
    const wallMs = this.#queue.accrue() - grantedAt;
    const account = this.#state.accountOf(queued);
    this.#state.hold(queued, -seats);
    if (isMeasurement(reason)) {
      this.#overload.observeHold(queued.seatMs);
      this.#overload.observePatience(queued, account, ENDS[reason] ?? 'neither');
      if (queued.leftUnserved) this.#overload.observeLeft(queued.seatMs);
    }
    queued.phase = 'over';
    this.#overload.over(queued);
    this.#state.count(reason);
    this.#forecast.ended(queued, account, { reason, wallMs, unbroken: this.#state.unbroken(queued) });
    this.#queue.dispatch();
  }

  takeBack(queued: QueuedRequest, seats: number): Promise<TicketOutcome> {
    this.#queue.accrue();
    const outcome = queued.promise();
    this.#state.count('given-back');
    const lost = queued.returns >= this.#state.replicas.all.length ? 'engine-lost' : undefined;
    queued.returns += 1;
    this.#queue.returned(queued, seats, lost);
    this.#queue.dispatch();
    return outcome;
  }
}
