import { classOf, type ServiceClass } from '../domain/service-class.js';
import { OrderedList } from './ordered-list.js';
import type { QueuedRequest } from './queued-request.js';
import type { ReleaseReason } from './seat-queue.js';
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';
import { Accounts } from './accounts.js';
import { ReplicaSeats, type ReplicaSize } from './replica-seats.js';

/**
 * Which requests wait and which hold seats, recorded for the queue and for the account together, so that the two never differ.
 * A request that moves from waiting to a seat or back is added at its new place before it is removed from the old one, so that
 * its account is not idle in between, which would lift it.
 */
export class QueueState {
  readonly accounts = new Accounts();
  readonly replicas: ReplicaSeats;
  /** How often a replica of the engine became unavailable or available. */
  breaks = 0;
  /** Leases ended, by how. */
  readonly released: Partial<Record<ReleaseReason | 'given-back', number>> = {};
  /** Requests whose engine was lost: served before all others, in the order of entering. */
  readonly #returned = new OrderedList<QueuedRequest>();
  readonly #waitingBy: Record<ServiceClass, number> = { interactive: 0, standard: 0, batch: 0 };
  #waitingClasses = 0;
  #seatable = 0;
  #waiting = 0;
  #bytes = 0;
  #now = 0;

  /** `seats`: of an engine of one replica, or of each. */
  constructor(seats: number | readonly ReplicaSize[]) {
    this.replicas = new ReplicaSeats(typeof seats === 'number' ? [{ seats, contextPerSeat: Infinity }] : seats);
  }

  /** Seats of the available replicas; of all replicas while none is available. */
  get seats(): number {
    return this.replicas.seats;
  }

  /** Whether no replica is available. */
  get paused(): boolean {
    return this.replicas.paused;
  }

  /** The time up to which all accounts are charged. It stays the same throughout an operation. */
  get now(): number {
    return this.#now;
  }

  /** Requests that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Classes of accounts that have a request waiting. */
  get waitingClasses(): number {
    return this.#waitingClasses;
  }

  /** Waiting requests that may be seated once a seat is free. */
  get seatable(): number {
    return this.#seatable;
  }

  /** Those that wait by class. */
  get waitingBy(): Readonly<Record<ServiceClass, number>> {
    return this.#waitingBy;
  }

  /** Body bytes that they hold. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Seats held. */
  get busy(): number {
    return this.replicas.busy;
  }

  /** Seats that no lease holds; none of replicas that are away. */
  get free(): number {
    return this.replicas.free;
  }

  /** Whether there are seats for a newcomer, and for all waiting requests that could still take one. */
  get hasSeatForNewcomer(): boolean {
    return this.replicas.free > this.#waiting - this.#seatable;
  }

  /** The first of the returned for which this is so. */
  firstReturned(wanted: (queued: QueuedRequest) => boolean): QueuedRequest | undefined {
    let queued = this.#returned.first;
    while (queued !== undefined && !wanted(queued)) queued = queued.next;
    return queued;
  }

  /** Any request that waits, seatable or not; undefined if none does. */
  get anyWaiting(): QueuedRequest | undefined {
    const { first } = this.#returned;
    if (first !== undefined || this.#waiting === 0) return first;
    let found: QueuedRequest | undefined;
    this.accounts.active.each(({ classes }) => {
      for (const { list } of classes) found ??= list.first;
    });
    return found;
  }

  accountOf({ request }: QueuedRequest): Account {
    return this.accounts.known(request.account);
  }

  /** The requests of the same account and class. */
  classOf(queued: QueuedRequest): AccountClass {
    return this.accountOf(queued).classFor(queued.request.weight);
  }

  /** A lease ended. */
  count(how: ReleaseReason | 'given-back'): void {
    this.released[how] = (this.released[how] ?? 0) + 1;
  }

  /** Charges seat time up to `now`. */
  accrue(now: number): void {
    this.#now = now;
    this.accounts.accrue(now);
  }

  /** A replica of the engine went away. */
  pause(replica: number): void {
    this.replicas.pause(replica);
    this.breaks += 1;
    if (!this.paused) return;
    this.accounts.active.each(({ classes }) => {
      for (const { serviceRate } of classes) serviceRate.rest();
    });
  }

  /** A replica is there, with so many seats: it came back, or the number has changed, as that of an external server often does. */
  resume(replica: number, seats: number): void {
    if (!this.replicas.isUp(replica)) this.breaks += 1;
    this.replicas.resume(replica, seats);
  }

  /** Whether all replicas were there all the time since `queued` entered. */
  unbroken(queued: QueuedRequest): boolean {
    return !this.paused && queued.breaks === this.breaks;
  }

  /** A newcomer. It cannot be seated yet. */
  enter(queued: QueuedRequest): void {
    queued.breaks = this.breaks;
    const account = this.accountOf(queued);
    const accountClass = account.classFor(queued.request.weight);
    if (accountClass.list.length === 0) this.#waitingClasses += 1;
    accountClass.list.insert(queued);
    this.#inRoom(queued, account, accountClass, 1);
    this.#wait(queued, account, 1);
  }

  /** It may be seated. */
  ready(queued: QueuedRequest): void {
    const account = this.accountOf(queued);
    const accountClass = account.classFor(queued.request.weight);
    if (!accountClass.hasSeatable) this.accounts.lift(account, accountClass);
    accountClass.users.add(queued);
    this.#seatable += 1;
    this.accounts.stir(account);
  }

  /** One that had a seat waits again. */
  returned(queued: QueuedRequest): void {
    const account = this.accountOf(queued);
    this.#returned.insert(queued);
    this.#seatable += 1;
    account.classFor(queued.request.weight).returned += 1;
    this.#wait(queued, account, 1);
  }

  /** One that waited waits no more: for a seat, or for good. */
  leave(queued: QueuedRequest, to: 'seat' | 'nowhere'): void {
    const account = this.accountOf(queued);
    const accountClass = account.classFor(queued.request.weight);
    const returned = queued.list === this.#returned;
    const inTurns = queued.turn.at >= 0;
    if (returned) accountClass.returned -= 1;
    else this.#inRoom(queued, account, accountClass, -1);
    if (returned || inTurns) this.#seatable -= 1;
    if (inTurns && to === 'seat') {
      this.accounts.raiseFloor();
      accountClass.users.serve(queued);
    } else accountClass.users.remove(queued);
    if (inTurns && accountClass.users.head === undefined) accountClass.serviceRate.rest();
    queued.list?.remove(queued);
    if (!returned && accountClass.list.length === 0) this.#waitingClasses -= 1;
    this.#wait(queued, account, -1);
  }

  /** `queued` holds so many seats more, or less. */
  hold(queued: QueuedRequest, seats: number): void {
    queued.seatMs += queued.seats * (this.#now - queued.seatsSince);
    queued.seatsSince = this.#now;
    const account = this.accountOf(queued);
    if (queued.seats === 0) {
      account.leases += 1;
      this.replicas.granted(queued.replica);
    }
    queued.seats += seats;
    if (queued.seats === 0) account.leases -= 1;
    this.replicas.hold(queued.replica, seats);
    this.accounts.hold(account, account.classFor(queued.request.weight), seats);
  }

  #inRoom({ request }: QueuedRequest, account: Account, accountClass: AccountClass, sign: 1 | -1): void {
    account.inRoom += sign;
    account.bytes += sign * request.bytes;
    accountClass.bytes += sign * request.bytes;
  }

  #wait(queued: QueuedRequest, account: Account, sign: 1 | -1): void {
    this.#waiting += sign;
    this.#waitingBy[classOf(queued.request.weight)] += sign;
    this.#bytes += sign * queued.request.bytes;
    account.waiting += sign;
    this.accounts.stir(account);
  }
}
