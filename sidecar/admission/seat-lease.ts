import type { Place } from './queued-request.js';
import type { Lease, ReleaseReason, TicketOutcome } from './seat-queue.js';

/** What a lease asks of the queue whose seats it holds. */
export interface Bank {
  /** One more seat for `place`; false: none is free, or others wait for it. */
  take(place: Place): boolean;
  /** One seat of `place` is free again. */
  put(place: Place): void;
  /** `recall` is called once others wait, unless it is forgotten before. */
  watch(recall: () => void): void;
  forget(recall: () => void): void;
  /** All of them are; called once, with the time of the grant. */
  end(place: Place, seats: number, grantedAt: number, reason: ReleaseReason): void;
  /** All of them are, and the request asks to wait again; called once, instead of `end`. */
  takeBack(place: Place, seats: number): Promise<TicketOutcome>;
}

/** The seats of one running request. It alone knows how many they are, so they can be given back only once. */
export class SeatLease implements Lease {
  readonly waitedMs: number;
  readonly predictedMs: number | undefined;
  readonly #bank: Bank;
  readonly #place: Place;
  readonly #grantedAt: number;
  #seats = 1;
  #again: Promise<TicketOutcome> | undefined;
  /** Who is told when others want its seats, while it has some to spare. */
  #recall: (() => void) | undefined;

  constructor(bank: Bank, place: Place, grantedAt: number) {
    this.#bank = bank;
    this.#place = place;
    this.#grantedAt = grantedAt;
    this.waitedMs = place.waitedMs;
    this.predictedMs = place.predictedMs;
  }

  get seats(): number {
    return this.#seats;
  }

  grow(): boolean {
    if (this.#seats === 0 || this.#seats >= this.#place.entry.seatsWanted || !this.#bank.take(this.#place))
      return false;
    this.#seats += 1;
    return true;
  }

  shrink(): void {
    if (this.#seats < 2) return;
    this.#seats -= 1;
    if (this.#seats === 1) this.#forget();
    else if (this.#recall) this.#bank.watch(this.#recall);
    this.#bank.put(this.#place);
  }

  whenWanted(fn: () => void): void {
    if (this.#seats < 2) return;
    this.#forget();
    this.#recall = fn;
    this.#bank.watch(fn);
  }

  release(reason: ReleaseReason): void {
    const seats = this.#close();
    if (seats > 0) this.#bank.end(this.#place, seats, this.#grantedAt, reason);
  }

  giveBack(): Promise<TicketOutcome> {
    const seats = this.#close();
    if (seats > 0) this.#again = this.#bank.takeBack(this.#place, seats);
    return this.#again ?? Promise.resolve({ kind: 'cancelled' });
  }

  #forget(): void {
    if (this.#recall) this.#bank.forget(this.#recall);
    this.#recall = undefined;
  }

  #close(): number {
    this.#forget();
    const seats = this.#seats;
    this.#seats = 0;
    return seats;
  }
}
