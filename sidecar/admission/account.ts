/**
 * One account's part of the queue. Its requests are of one service class or of several, by the keys that sent them.
 *
 * The classes share inside an account as accounts do among each other, and an account gains nothing over others by spreading
 * its requests over classes. Each class has a counter that is charged for its own requests' seat time and for that of
 * all lighter classes, over its own weight. A request is ranked by the highest counter of its class and of the heavier
 * ones. So batch requests get no more than weight 1, standard and batch requests together no more than 4, and all
 * together no more than 16: what the account would get if all its requests were of its heaviest class. Requests of a
 * heavier class do not pay for what the lighter ones took at the lighter one's price, so a batch backlog costs an
 * interactive request a sixteenth of its seat time.
 *
 * Among classes of equal rank the lowest counter goes first, then the heavier class. Where all three always wait, the
 * seat time is shared 12 : 3 : 1.
 */
import { HeapNode } from '../lib/heap.js';
import { classOf, SERVICE_CLASSES, type ServiceClass } from '../domain/service-class.js';
import { HoldTime } from './hold-time.js';
import { AccountClass } from './account-class.js';
import type { AccountColumns } from './account-columns.js';
import type { OwnPatience } from './patience.js';
import type { QueuedRequest } from './queued-request.js';

/** What the queue knows of one account. Plain state: QueueState and FairQueue change it. */
export class Account {
  readonly name: string;
  /** Its place in the columns, until it is forgotten. */
  readonly slot: number;
  readonly #columns: AccountColumns;
  /** How fast its rank grows now. */
  rate = 0;
  /** The class that its next seat goes to; undefined: none of it is seatable. */
  next: AccountClass | undefined;
  /** Of the requests that wait, those whose engine was not lost, and the body bytes of those. */
  inRoom = 0;
  bytes = 0;
  /** Seats held. */
  running = 0;
  /** Seat-milliseconds in all, without weights. */
  seatMs = 0;
  /** Seat-milliseconds over weight since the fairness window began. */
  windowMs = 0;
  /** Clock reading since which it has always had a request that could be seated; undefined: it has none now. */
  backloggedSince: number | undefined;
  /** When its last seatable request was seated or left, and when one of its requests was last refused because the queue stands. */
  emptyAt = 0;
  pressedAt = -Infinity;
  /** Seat-milliseconds that one request takes, whatever its class. */
  readonly #hold = new HoldTime();
  /** How long its callers wait, whatever their class. */
  readonly patience: OwnPatience = {};
  /** Its node among the accounts that wait or run. */
  readonly active: HeapNode<Account> = new HeapNode<Account>(this);
  /** Its node among the accounts with a request to seat. */
  readonly seatable: HeapNode<Account> = new HeapNode<Account>(this);
  /** Its node among the accounts ordered by waiting requests. */
  readonly crowd: HeapNode<Account> = new HeapNode<Account>(this);
  /** Its node among the idle accounts, and its place in their order. */
  readonly idle: HeapNode<Account> = new HeapNode<Account>(this);
  idleOrder = 0;
  /** Its node among the accounts that hold seats. */
  readonly holding: HeapNode<Account> = new HeapNode<Account>(this);
  /** The classes that it ever used, heaviest first. */
  readonly #classes: AccountClass[] = [];

  constructor(name: string, columns: AccountColumns) {
    this.name = name;
    this.#columns = columns;
    this.slot = columns.take();
  }

  /** Its rank among accounts: that of the heaviest class with a request that can be seated, else of the heaviest that waits or runs. */
  get virtualMs(): number {
    return this.#columns.virtualMs[this.slot] ?? 0;
  }

  set virtualMs(ms: number) {
    this.#columns.virtualMs[this.slot] = ms;
  }

  /** Of the class that it is ranked by, or last was. */
  get weight(): number {
    return this.#columns.weight[this.slot] ?? 0;
  }

  set weight(weight: number) {
    this.#columns.weight[this.slot] = weight;
  }

  /** Requests that wait. */
  get waiting(): number {
    return this.#columns.waiting[this.slot] ?? 0;
  }

  set waiting(count: number) {
    this.#columns.waiting[this.slot] = count;
  }

  /** Requests that hold seats. */
  get leases(): number {
    return this.#columns.leases[this.slot] ?? 0;
  }

  set leases(count: number) {
    this.#columns.leases[this.slot] = count;
  }

  /** Seat-milliseconds that one request takes, whatever its class; undefined: none has ended. */
  get holdMs(): number | undefined {
    return this.#hold.meanMs;
  }

  /** Counts a request that held seats for so many seat-milliseconds. */
  observeHold(seatMs: number): void {
    this.#hold.observe(seatMs);
    this.#columns.holdMs[this.slot] = this.#hold.meanMs ?? NaN;
  }

  /** The classes that it ever used, heaviest first. */
  get classes(): readonly AccountClass[] {
    return this.#classes;
  }

  /** Its requests of this weight's class, none at first. */
  classFor(weight: number): AccountClass {
    const name = classOf(weight);
    return this.#classes.find((known) => known.class === name) ?? this.#make(name);
  }

  /** The first of its requests, in the order of their turns, for which this is so; of the class that is next, else of the heaviest. */
  first(wanted: (queued: QueuedRequest) => boolean): QueuedRequest | undefined {
    let found = this.next?.users.first(wanted);
    for (const { users } of this.#classes) found ??= users.first(wanted);
    return found;
  }

  /** The rank of a class of it. */
  rankOf(accountClass: AccountClass): number {
    this.#settle();
    let rank = 0;
    for (const known of this.#classes) {
      rank = Math.max(rank, known.virtualMs);
      if (known === accountClass) break;
    }
    return rank;
  }

  /** Charges the seats held for `passed` ms. */
  charge(passed: number): void {
    const before = this.virtualMs;
    this.seatMs += this.running * passed;
    // The fast path for nearly all accounts, since this runs for each that holds a seat, in every operation.
    if (this.#classes.length === 1) this.virtualMs += this.rate * passed;
    else {
      this.#chargeEach(passed);
      this.rank();
    }
    this.windowMs += this.virtualMs - before;
  }

  /** Lifts a class's counter to the others' virtual time. */
  lift(accountClass: AccountClass, least: number): void {
    this.#settle();
    accountClass.virtualMs = Math.max(accountClass.virtualMs, least);
    this.#rank();
  }

  /** Computes its rank again after its waiting or running requests changed. O(classes). */
  rank(): void {
    this.#settle();
    this.#rank();
  }

  /** The counter of an only class is its account's rank, and is charged there alone. */
  #settle(): void {
    const [only] = this.#classes;
    if (only !== undefined && this.#classes.length === 1) only.virtualMs = this.virtualMs;
  }

  #rank(): void {
    let rank = 0;
    let seats = this.running;
    let leads: AccountClass | undefined;
    this.next = undefined;
    for (const known of this.#classes) {
      rank = Math.max(rank, known.virtualMs);
      const seatable = known.users.head !== undefined;
      if (seatable && this.next === undefined) {
        this.next = leads = known;
        this.#lead(known, rank, seats);
      } else if (seatable && this.next !== undefined && rank === this.virtualMs) {
        if (known.virtualMs < this.next.virtualMs) this.next = known;
      } else if (leads === undefined && known.running + known.waiting > 0) {
        leads = known;
        this.#lead(known, rank, seats);
      }
      seats -= known.running;
    }
    if (leads !== undefined) return;
    // Idle: the highest of its counters, so that after all accounts were idle none starts below another's counter.
    this.virtualMs = rank;
    this.rate = 0;
  }

  #chargeEach(passed: number): void {
    let seats = 0;
    for (let at = this.#classes.length - 1; at >= 0; at -= 1) {
      const charged = this.#classes[at];
      if (charged === undefined) continue;
      seats += charged.running;
      charged.virtualMs += (seats * passed) / charged.weight;
    }
  }

  /** It is ranked by this class: the heaviest that has a request to seat, else the heaviest that waits or runs. */
  #lead({ weight }: AccountClass, rank: number, seats: number): void {
    this.virtualMs = rank;
    this.weight = weight;
    this.rate = seats / weight;
  }

  #make(name: ServiceClass): AccountClass {
    this.#settle();
    const made = new AccountClass(name);
    this.#classes.push(made);
    this.#columns.classes[this.slot] = this.#classes.length;
    this.#classes.sort((a, b) => SERVICE_CLASSES.indexOf(a.class) - SERVICE_CLASSES.indexOf(b.class));
    return made;
  }
}
