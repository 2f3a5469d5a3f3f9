import type { QueuedRequest } from './queued-request.js';
import type { Lease, ReleaseReason, TicketOutcome } from './seat-queue.js';

/** The functions of the queue that a lease calls. */
export interface SeatPool {
  /** Takes one more seat for `queued`. Returns false if none is free or another request waits for it. */
  take(queued: QueuedRequest): boolean;
  /** Returns one seat of `queued`. */
  put(queued: QueuedRequest): void;
  /** `recall` is called once others wait, unless it is forgotten before. */
  watch(recall: () => void): void;
  forget(recall: () => void): void;
  /** The caller of `queued` has its first token. */
  begun(queued: QueuedRequest): void;
  /** The mean time of a token of a reply of `queued`, ms. */
  observeTokenMs(queued: QueuedRequest, ms: number): void;
  /** Returns all its seats; called once, with the time of the grant. */
  end(queued: QueuedRequest, seats: number, grantedAt: number, reason: ReleaseReason): void;
  /** Returns all its seats, and the request waits again; called once, instead of `end`. */
  takeBack(queued: QueuedRequest, seats: number): Promise<TicketOutcome>;
}

/** The seats of one running request. Only the lease knows their number, so they can be returned only once. */
export class SeatLease implements Lease {
  readonly waitedMs: number;
  readonly replica: number;
  readonly predictedMs: number | undefined;
  readonly #pool: SeatPool;
  readonly #queued: QueuedRequest;
  readonly #grantedAt: number;
  #seats = 1;
  #again: Promise<TicketOutcome> | undefined;
  /** Called when other requests wait, while it has more than one seat. */
  #recall: (() => void) | undefined;

  constructor(pool: SeatPool, queued: QueuedRequest, grantedAt: number) {
    this.#pool = pool;
    this.#queued = queued;
    this.#grantedAt = grantedAt;
    this.waitedMs = queued.waitedMs;
    this.replica = queued.replica;
    this.predictedMs = queued.predictedMs;
  }

  get seats(): number {
    return this.#seats;
  }

  takeSeat(): boolean {
    if (this.#seats === 0 || this.#seats >= this.#queued.request.seatsWanted || !this.#pool.take(this.#queued))
      return false;
    this.#seats += 1;
    return true;
  }

  freeSeat(): void {
    if (this.#seats < 2) return;
    this.#seats -= 1;
    if (this.#seats === 1) this.#forget();
    else if (this.#recall) this.#pool.watch(this.#recall);
    this.#pool.put(this.#queued);
  }

  whenWanted(fn: () => void): void {
    if (this.#seats < 2) return;
    this.#forget();
    this.#recall = fn;
    this.#pool.watch(fn);
  }

  begun(): void {
    if (this.#seats > 0) this.#pool.begun(this.#queued);
  }

  observeTokenMs(ms: number): void {
    if (this.#seats > 0) this.#pool.observeTokenMs(this.#queued, ms);
  }

  release(reason: ReleaseReason): void {
    const seats = this.#close();
    if (seats > 0) this.#pool.end(this.#queued, seats, this.#grantedAt, reason);
  }

  giveBack(): Promise<TicketOutcome> {
    const seats = this.#close();
    if (seats > 0) this.#again = this.#pool.takeBack(this.#queued, seats);
    return this.#again ?? Promise.resolve({ kind: 'cancelled' });
  }

  #forget(): void {
    if (this.#recall) this.#pool.forget(this.#recall);
    this.#recall = undefined;
  }

  #close(): number {
    this.#forget();
    const seats = this.#seats;
    this.#seats = 0;
    return seats;
  }
}
