/**
 * All counts of a queue: which requests wait, which hold seats and which seats are kept for sessions, recorded for the queue and for the
 * account together, so that the two never differ; which accounts are active (wait or run); and what each has been charged. Only the queue
 * changes it (queue.ts), after `advance` has brought it to the present.
 *
 * An account gains no claim to seats while it is idle: when one of its requests can be seated, its virtual time is lifted.
 * VTC lifts to the lowest of the accounts that wait, which is undefined while none waits. This takes the highest of three
 * values: the lowest of the other active accounts; that of the account whose turn it was when a seat was last given
 * (start-time fair queuing, P. Goyal et al., 1996), below which an account with few requests would otherwise stay; and,
 * after all accounts were idle, the highest that there was, so that no difference outlives the contention that caused it. None of
 * the three is above the lowest of the accounts that wait already, so a lift never delays an account beyond its turn.
 */
import { classOf, type ServiceClass } from '../domain/service-class.js';
import { Heap } from '../lib/heap.js';
import { Account, AccountColumns, type AccountClass } from './accounts.js';
import { OrderedList, type QueuedRequest, type Session } from './request.js';
import { ReplicaSeats, type ReplicaSize } from './seats.js';
import type { QueueRequest, ReleaseReason } from './types.js';

/** The most accounts that are remembered. Past it the account that has been idle longest is forgotten; one that waits or runs never is. */
const MAX_ACCOUNTS = 10_000;

/** How long an account still counts as having a backlog after one of its requests was refused because the queue stands, ms. */
const PRESSED_MS = 5000;

export class QueueState {
  readonly replicas: ReplicaSeats;
  /** How often a replica of the engine became unavailable or available. */
  engineChanges = 0;
  /** Leases ended, by how. */
  readonly released: Partial<Record<ReleaseReason | 'given-back', number>> = {};
  /** The accounts that wait, run or have kept seats, the one whose requests take the most places first. */
  readonly byPlaces = new Heap<Account>((a, b) => a.places > b.places);
  /** Those with a request that can be seated, lowest virtual time first. */
  readonly seatable = new Heap<Account>(isLower);
  /** The same, and the numbers of them that a prediction reads in one pass. */
  readonly columns = new AccountColumns();
  readonly #accounts = new Map<string, Account>();
  /** In the order in which they became idle. */
  readonly #idle = new Heap<Account>((a, b) => a.idleOrder < b.idleOrder);
  /** Those that hold seats or have kept ones, in no order. */
  readonly #holding = new Heap<Account>(() => false);
  #lastIdle = 0;
  /** The least virtual time to which an account is lifted. */
  #floorMs = 0;
  /** The highest virtual time of the accounts that became idle. */
  #highestMs = 0;
  readonly #window = new FairnessWindow();
  /** Requests whose engine was lost, and promised ones that waited in vain: served before all others, in the order of entering. */
  readonly #returned = new OrderedList<QueuedRequest>();
  readonly #waitingBy: Record<ServiceClass, number> = { interactive: 0, standard: 0, batch: 0 };
  #waitingClasses = 0;
  #seatableRequests = 0;
  #claiming = 0;
  #waiting = 0;
  #bytes = 0;
  #now = 0;

  /** `seats`: of an engine of one replica, or of each. */
  constructor(seats: number | readonly ReplicaSize[]) {
    this.replicas = new ReplicaSeats(typeof seats === 'number' ? [{ seats, contextPerSeat: Infinity }] : seats);
  }

  /** The time up to which all accounts are charged. It stays the same throughout an operation. */
  get now(): number {
    return this.#now;
  }

  /** Seats of the available replicas; of all replicas while none is available. */
  get seats(): number {
    return this.replicas.seats;
  }

  /** Busy seats. */
  get busy(): number {
    return this.replicas.busy;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** The same by class. */
  get waitingBy(): Readonly<Record<ServiceClass, number>> {
    return this.#waitingBy;
  }

  /** Classes of accounts that have a request waiting. */
  get waitingClasses(): number {
    return this.#waitingClasses;
  }

  /** Waiting requests that may be seated once a seat is free. */
  get seatableRequests(): number {
    return this.#seatableRequests;
  }

  /** Waiting requests whose prompts are not known yet that may be turns of sessions whose seats are kept. */
  get claiming(): number {
    return this.#claiming;
  }

  /** Body bytes of the requests that wait. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether there are seats for a newcomer, and for all waiting requests that could still take one that is not kept for them. */
  get hasSeatForNewcomer(): boolean {
    return this.replicas.freeSeats > this.#waiting - this.#seatableRequests - this.#claiming;
  }

  /** Jain's index of the last whole window; undefined if fewer than two accounts had a backlog all through it. */
  get fairness(): number | undefined {
    return this.#window.index;
  }

  accounts(): Iterable<Account> {
    return this.#accounts.values();
  }

  accountOf({ request }: QueuedRequest): Account {
    const account = this.#accounts.get(request.account);
    if (account === undefined) throw new Error('an account was forgotten that waits or runs');
    return account;
  }

  /** Undefined if it is not remembered. One with kept seats always is. */
  accountNamed(name: string): Account | undefined {
    return this.#accounts.get(name);
  }

  /** The part of all seats that is an account's, by its weight among those that wait, run or have kept seats. */
  shareOf({ weight, activeAt }: Account): number {
    let all = activeAt < 0 ? weight : 0;
    this.columns.each((other) => (all += other.weight));
    return weight / all;
  }

  /** The requests of the same account and class. */
  classOf(queued: QueuedRequest): AccountClass {
    return this.accountOf(queued).classFor(queued.request.weight);
  }

  /** The requests whose engine was lost, in the order in which they are seated: before all others. */
  get returned(): OrderedList<QueuedRequest> {
    return this.#returned;
  }

  /** The first of the requests whose engine was lost for which `wanted` is true. */
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
    this.columns.each(({ classes }) => {
      for (const { list } of classes) found ??= list.first;
    });
    return found;
  }

  /** Whether all replicas were there all the time since `queued` entered. */
  hadEngine(queued: QueuedRequest): boolean {
    return !this.replicas.paused && queued.engineChanges === this.engineChanges;
  }

  /** A lease ended. */
  countReleased(how: ReleaseReason | 'given-back'): void {
    this.released[how] = (this.released[how] ?? 0) + 1;
  }

  /** Charges all accounts for the seats that they held until `now`, and for kept seats if requests waited. Called first in each operation. */
  advance(now: number): void {
    const ms = now - this.#now;
    this.#now = now;
    if (ms <= 0) return;
    const chargesKept = this.#waiting > 0;
    this.#holding.each((account) => {
      // A charge only ever raises a rank.
      account.charge(ms, chargesKept);
      this.seatable.movedBack(account.seatable);
    });
    this.#window.roll(now, this.columns);
  }

  /** A replica of the engine went away. */
  pause(replica: number): void {
    this.replicas.pause(replica);
    this.engineChanges += 1;
    if (!this.replicas.paused) return;
    this.columns.each(({ classes }) => {
      for (const { serviceRate } of classes) serviceRate.interrupt();
    });
  }

  /** A replica is there, with so many seats: it came back, or the number has changed, as that of an external server often does. */
  resume(replica: number, seats: number): void {
    if (!this.replicas.isUp(replica)) this.engineChanges += 1;
    this.replicas.resume(replica, seats);
  }

  /** The account of an arriving request, created if necessary. The request's class is lifted if it had no request to seat. */
  arriving({ account: name, weight, ownWeight = weight }: QueueRequest): Account {
    let account = this.#accounts.get(name);
    if (account === undefined) {
      this.#forgetOne();
      this.#accounts.set(name, (account = new Account(name, this.columns)));
      this.#becomeIdle(account);
    }
    // Begins again whenever it was idle: its heaviest key may have been revoked.
    account.ownWeight = account.activeAt < 0 ? ownWeight : Math.max(account.ownWeight, ownWeight);
    const arrived = account.classFor(weight);
    if (account.activeAt < 0) account.weight = account.weightOf(arrived);
    if (!arrived.hasSeatable) this.#lift(account, arrived);
    return account;
  }

  /** A newcomer waits. It cannot be seated yet. */
  enter(queued: QueuedRequest): void {
    queued.engineChanges = this.engineChanges;
    const account = this.accountOf(queued);
    const accountClass = account.classFor(queued.request.weight);
    if (accountClass.list.length === 0) this.#waitingClasses += 1;
    accountClass.list.insert(queued);
    this.#countPlace(queued, account, accountClass, 1);
    this.#countWaiting(queued, account, 1);
  }

  /** It may be seated. */
  ready(queued: QueuedRequest): void {
    const account = this.accountOf(queued);
    const accountClass = account.classFor(queued.request.weight);
    if (!accountClass.hasSeatable) this.#lift(account, accountClass);
    accountClass.users.add(queued);
    this.#seatableRequests += 1;
    this.#reorder(account);
  }

  /** A request that had a seat waits again. Called before its seats are returned, since an account that is idle in between is lifted. */
  waitsAgain(queued: QueuedRequest): void {
    const account = this.accountOf(queued);
    this.#returned.insert(queued);
    this.#seatableRequests += 1;
    account.classFor(queued.request.weight).returned += 1;
    this.#countWaiting(queued, account, 1);
  }

  /**
   * A request waits for a seat for the next part of its work. It has no place that another request could take. Called before its seats are
   * returned, as {@link waitsAgain}. `lifts`: they were returned before, so that its class is lifted as at a new request.
   */
  readyAgain(queued: QueuedRequest, lifts: boolean): void {
    const account = this.accountOf(queued);
    const accountClass = account.classFor(queued.request.weight);
    if (lifts && !accountClass.hasSeatable) this.#lift(account, accountClass);
    queued.betweenTurns = true;
    accountClass.users.add(queued);
    this.#seatableRequests += 1;
    this.#countWaiting(queued, account, 1);
  }

  /** A request waits no more. `seated`: it was given a seat, which must be counted before, so that its account is not idle in between. */
  leave(queued: QueuedRequest, seated: boolean): void {
    this.claim(queued, false);
    const account = this.accountOf(queued);
    const accountClass = account.classFor(queued.request.weight);
    const returned = queued.list === this.#returned;
    const seatable = queued.turn.at >= 0;
    const placed = !returned && !queued.betweenTurns;
    if (returned) accountClass.returned -= 1;
    else if (placed) this.#countPlace(queued, account, accountClass, -1);
    if (returned || seatable) this.#seatableRequests -= 1;
    // No account is lifted below the one whose turn it is, though that one may be passed over (choose.ts).
    if (seated && seatable) this.#floorMs = Math.max(this.#floorMs, this.seatable.first?.virtualMs ?? 0);
    accountClass.users.remove(queued, seated);
    if (seatable && accountClass.users.head === undefined) accountClass.serviceRate.interrupt();
    queued.list?.remove(queued);
    if (placed && accountClass.list.length === 0) this.#waitingClasses -= 1;
    queued.betweenTurns = false;
    this.#countWaiting(queued, account, -1);
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
    this.replicas.count(queued.replica, 'busy', seats);
    account.running += seats;
    account.classFor(queued.request.weight).running += seats;
    this.#chargeWhileHolding(account);
  }

  /** One seat more, or less, is kept for this session. */
  keep({ account: name, weight, replica }: Session, seats: 1 | -1): void {
    const account = this.#accounts.get(name);
    if (account === undefined) throw new Error('an account was forgotten that has a kept seat');
    this.replicas.count(replica, 'kept', seats);
    account.kept += seats;
    account.classFor(weight).kept += seats;
    this.#chargeWhileHolding(account);
  }

  /** A waiting request may, or may no longer, turn out to be a turn of a session whose seat is kept. */
  claim(queued: QueuedRequest, claims: boolean): void {
    if (queued.claims === claims) return;
    queued.claims = claims;
    this.#claiming += claims ? 1 : -1;
    this.accountOf(queued).claiming += claims ? 1 : -1;
  }

  #chargeWhileHolding(account: Account): void {
    if (account.running + account.kept === 0) this.#holding.remove(account.holding);
    else if (account.holding.at < 0) this.#holding.add(account.holding);
    this.#reorder(account);
  }

  #countPlace({ request }: QueuedRequest, account: Account, accountClass: AccountClass, sign: 1 | -1): void {
    account.places += sign;
    account.bytes += sign * request.bytes;
    accountClass.bytes += sign * request.bytes;
  }

  #countWaiting({ request }: QueuedRequest, account: Account, sign: 1 | -1): void {
    this.#waiting += sign;
    this.#waitingBy[classOf(request.weight)] += sign;
    this.#bytes += sign * request.bytes;
    account.waiting += sign;
    this.#reorder(account);
  }

  /** Puts an account into its heaps again, after its waiting or running requests changed. */
  #reorder(account: Account): void {
    account.rank();
    this.byPlaces.moved(account.byPlaces);
    this.seatable.moved(account.seatable);
    const active = account.waiting + account.running + account.kept > 0;
    if (active && account.activeAt < 0) {
      this.#idle.remove(account.idle);
      this.columns.setActive(account, true);
      this.byPlaces.add(account.byPlaces);
    } else if (!active && account.activeAt >= 0) {
      this.columns.setActive(account, false);
      this.byPlaces.remove(account.byPlaces);
      this.#highestMs = Math.max(this.#highestMs, account.virtualMs);
      if (this.columns.active.length === 0) this.#floorMs = this.#highestMs;
      this.#becomeIdle(account);
    }
    const seatable = account.next !== undefined;
    if (seatable && account.seatable.at < 0) {
      this.seatable.add(account.seatable);
      this.columns.seatable[account.slot] = 1;
      if (!this.#isPressed(account)) account.backloggedSince = this.#now;
      account.backloggedSince ??= this.#now;
    } else if (!seatable && account.seatable.at >= 0) {
      this.seatable.remove(account.seatable);
      this.columns.seatable[account.slot] = 0;
      account.emptyAt = this.#now;
      if (!this.#isPressed(account)) account.backloggedSince = undefined;
    }
  }

  /** Lifts a class of which no request can be seated to the others' virtual time. */
  #lift(account: Account, accountClass: AccountClass): void {
    account.lift(accountClass, Math.max(this.columns.lowestBut(account) ?? 0, this.#floorMs));
    this.seatable.moved(account.seatable);
  }

  /** Whether it wants more than it is given, though nothing of it waits: a request was refused, and none waits, for PRESSED_MS at most. */
  #isPressed({ pressedAt, emptyAt }: Account): boolean {
    return this.#now - pressedAt < PRESSED_MS && this.#now - emptyAt < PRESSED_MS;
  }

  #forgetOne(): void {
    if (this.#accounts.size < MAX_ACCOUNTS) return;
    const longest = this.#idle.first;
    if (longest === undefined) return;
    this.#idle.remove(longest.idle);
    this.#accounts.delete(longest.name);
    this.columns.release(longest);
  }

  #becomeIdle(account: Account): void {
    account.idleOrder = this.#lastIdle += 1;
    this.#idle.add(account.idle);
  }
}

/** Of two accounts that were charged alike, the one that holds fewer seats now is first. */
function isLower(a: Account, b: Account): boolean {
  return a.virtualMs === b.virtualMs ? a.rate < b.rate : a.virtualMs < b.virtualMs;
}

/** Long enough that the turns of a few seats even out. */
const WINDOW_MS = 60_000;

/**
 * How evenly seat time went to those who wanted more of it, window by window: Jain's index (R. Jain, D. Chiu, W. Hawe,
 * 1984) of seat-milliseconds over weight, over the accounts that had a request to seat all through the window. 1: all got
 * the same; 1/n: one of n got everything.
 */
class FairnessWindow {
  /** Of the last window that ended. */
  index: number | undefined;
  #from = 0;

  /** Ends the window if its time is over. `active`: the accounts that wait or run, charged up to `now`. */
  roll(now: number, active: Pick<AccountColumns, 'each'>): void {
    if (now - this.#from < WINDOW_MS) return;
    const shares: number[] = [];
    active.each((account) => {
      if (account.backloggedSince !== undefined && account.backloggedSince <= this.#from) shares.push(account.windowMs);
      account.windowMs = 0;
    });
    this.index = shares.length > 1 ? jain(shares) : undefined;
    this.#from = now;
  }
}

/** Jain's index of shares; 1 where all are 0. */
export function jain(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  const squares = shares.reduce((total, share) => total + share * share, 0);
  return squares === 0 ? 1 : (sum * sum) / (shares.length * squares);
}
