/**
 * One account's part of the queue. Its requests are of one service class or of several, by the keys that sent them.
 *
 * The classes share inside an account as accounts do among each other, and an account gains nothing over others by spreading its requests
 * over classes. Each class has a counter that is charged for its own requests' seat time and for that of all lighter classes, over its own
 * weight. A request is ranked by the highest counter of its class and of the heavier ones. So batch requests get no more than weight 1,
 * standard and batch requests together no more than 4, and all together no more than 16: what the account would get if all its requests
 * were of its heaviest class. Requests of a heavier class do not pay for what the lighter ones took at the lighter one's price, so a batch
 * backlog costs an interactive request a sixteenth of its seat time.
 *
 * Among classes of equal rank the lowest counter goes first, then the heavier class. Where all three always wait, the
 * seat time is shared 12 : 3 : 1.
 *
 * A caller may ask for a heavier class than its account's keys have (`service_tier: priority`). That changes the order inside the account
 * and not its share: such a class is charged over the weight of the account's heaviest key. Its order in the account then
 * needs a counter of its own.
 */
import { HeapNode } from '../lib/heap.js';
import { CLASS_WEIGHTS, classOf, SERVICE_CLASSES, type ServiceClass } from '../domain/service-class.js';
import { Demand, HoldTime, ServiceRate } from './measures.js';
import type { OwnPatience } from './patience.js';
import { OrderedList, UserRoundRobin, type QueuedRequest } from './request.js';

/** How far predictions may be corrected. */
const MIN_CALIBRATION = 0.5;
const MAX_CALIBRATION = 4;

/** After a wait that was too long, predictions are multiplied by 1 + this. */
const STEP = 0.08;

/** The share of admitted requests that may wait too long, where steps up and down cancel out; the bound to be kept is 0.03. */
const TIMEOUT_SHARE = 0.02;

/** After a wait that ended with a seat, predictions are multiplied by this. */
const DOWN = 1 - STEP * TIMEOUT_SHARE;

/** What the queue knows of one account's requests of one service class. Plain state: only the queue changes it. */
export class AccountClass {
  readonly class: ServiceClass;
  readonly weight: number;
  /**
   * Seat-milliseconds of the account's requests of this class and of all lighter ones, over this class's weight. It is charged as
   * time passes, and lifted when the class begins to wait. Out of date in an account with one class, which charges `Account.virtualMs`
   * alone: use `Account.rankOf`.
   */
  virtualMs = 0;
  /** The same over {@link weight} in any case, and lifted to the other classes of its account alone: their order (`Account.turnOf`). */
  turnMs = 0;
  /** Busy seats, and seats kept for its sessions. */
  running = 0;
  kept = 0;
  /** All that wait, seatable or not, in the order of entering, except those whose engine was lost. */
  readonly list = new OrderedList<QueuedRequest>();
  /** Those who may be seated, in the order of their turns. */
  readonly users = new UserRoundRobin();
  /** Waiting requests whose engine was lost. */
  returned = 0;
  /** Body bytes of those in `list`. */
  bytes = 0;
  /** Seat-milliseconds that one request takes, or one session. */
  readonly hold = new HoldTime();
  /** Milliseconds from a request's first seat to its end, however many seats it holds in between. */
  readonly duration = new HoldTime();
  /** How fast it is given seats while it waits. */
  readonly serviceRate = new ServiceRate();
  readonly demand = new Demand();
  /** The same over about the time of one request. */
  readonly recentDemand = new Demand();
  /** The next is the newest, not the one that waited longest (overload.ts). */
  newestFirst = false;
  /** The last period of a standing queue at whose start the requests beyond its room were refused (overload.ts). */
  trimmedIn = 0;
  /** The times to come back at that are reserved for these requests, each for how many, and the last past one: the first one first (retry.ts). */
  readonly reservedTimes = [{ at: 0, retries: 1 }];
  #calibration = 1;

  constructor(name: ServiceClass) {
    this.class = name;
    this.weight = CLASS_WEIGHTS[name];
  }

  get waiting(): number {
    return this.list.length + this.returned;
  }

  /** Whether one of these requests may be seated once a seat is free. */
  get hasSeatable(): boolean {
    return this.users.head !== undefined || this.returned > 0;
  }

  /** Requests that arrive for each that is seated. */
  get load(): number {
    return this.demand.load(this.waiting);
  }

  /** What predictions are multiplied by. */
  get calibration(): number {
    return this.#calibration;
  }

  /** The request that its next turn goes to; undefined if none of it may be seated. */
  get next(): QueuedRequest | undefined {
    return this.users.next(this.newestFirst);
  }

  waitedTooLong(): void {
    this.#calibration = Math.min(MAX_CALIBRATION, this.#calibration * (1 + STEP));
  }

  /** One of its requests waited and got its seat. */
  waitedAndSeated(): void {
    this.#calibration = Math.max(MIN_CALIBRATION, this.#calibration * DOWN);
  }

  /** One was refused for the correction alone while none waits whose outcome would correct it. */
  refusedByCalibration(): void {
    this.#calibration = Math.max(1, this.#calibration * DOWN);
  }
}

/** Accounts that the columns have room for at first; doubled when all slots are taken. */
const FIRST_SLOTS = 64;

/**
 * Copies of the numbers that a prediction reads of each account that waits or runs (forecast.ts), one array for each quantity. In the
 * accounts' objects they lie on seven cache lines an account, since V8 keeps each number that changes and is no small integer on its
 * own; a prediction with 1,000 accounts then takes twice as long (bench/micro/admission.bench.ts). `Account` writes them.
 */
export class AccountColumns {
  virtualMs = new Float64Array(FIRST_SLOTS);
  weight = new Float64Array(FIRST_SLOTS);
  /** NaN: no request has ended. */
  holdMs = new Float64Array(FIRST_SLOTS);
  waiting = new Int32Array(FIRST_SLOTS);
  /** Kept seats among them. */
  leases = new Int32Array(FIRST_SLOTS);
  rate = new Float64Array(FIRST_SLOTS);
  classes = new Uint8Array(FIRST_SLOTS);
  /** 1: a request of it can be seated. The queue's state writes it. */
  seatable = new Uint8Array(FIRST_SLOTS);
  /** The slots of the accounts that wait, run or have kept seats, in no order. */
  readonly active: number[] = [];
  readonly #accounts: Account[] = [];
  readonly #unused: number[] = [];

  /** Gives a new account a slot, until `release`. */
  take(account: Account): number {
    const slot = this.#unused.pop() ?? this.#accounts.length;
    if (slot === this.classes.length) this.#grow();
    this.#accounts[slot] = account;
    return slot;
  }

  /** The account is forgotten: its slot is another one's from now on. It must not be active. */
  release({ slot }: Account): void {
    this.#unused.push(slot);
  }

  /** The account of a slot; throws if none ever had it. */
  accountAt(slot: number): Account {
    const account = this.#accounts[slot];
    if (account === undefined) throw new Error('no account has this slot');
    return account;
  }

  /** The account is active from now on, or not any more; it was not so before. */
  setActive(account: Account, isActive: boolean): void {
    if (isActive) {
      account.activeAt = this.active.length;
      this.active.push(account.slot);
      return;
    }
    const last = this.active.pop();
    if (last !== undefined && last !== account.slot) {
      this.active[account.activeAt] = last;
      this.accountAt(last).activeAt = account.activeAt;
    }
    account.activeAt = -1;
  }

  /** Calls `fn` with each active account. */
  each(fn: (account: Account) => void): void {
    for (const slot of this.active) fn(this.accountAt(slot));
  }

  /** The lowest virtual time of the other active accounts; undefined if there is none. O(active accounts), without reading their objects. */
  lowestBut({ slot: own }: Account): number | undefined {
    const { virtualMs } = this;
    let lowest = Infinity;
    for (const slot of this.active) if (slot !== own) lowest = Math.min(lowest, virtualMs[slot] ?? Infinity);
    return lowest === Infinity ? undefined : lowest;
  }

  #grow(): void {
    this.virtualMs = doubled(this.virtualMs);
    this.weight = doubled(this.weight);
    this.holdMs = doubled(this.holdMs);
    this.waiting = doubled(this.waiting);
    this.leases = doubled(this.leases);
    this.rate = doubled(this.rate);
    this.classes = doubled(this.classes);
    this.seatable = doubled(this.seatable);
  }
}

/** A copy with twice the room. */
function doubled<C extends Float64Array | Int32Array | Uint8Array>(column: C): C {
  const copy = new (column.constructor as new (length: number) => C)(2 * column.length);
  copy.set(column);
  return copy;
}

/** What is assumed of an account before turns of its sessions were seen. */
const FIRST_CONTINUED_SHARE = 0.6;

/** What the queue knows of one account. Plain state: only the queue changes it. */
export class Account {
  readonly name: string;
  /** Its place in the columns, until it is forgotten, and its slot's place in their list of active ones; -1: it is not active. */
  readonly slot: number;
  activeAt = -1;
  readonly #columns: AccountColumns;
  /** Its rank among accounts: that of the heaviest class with a request that can be seated, else of the heaviest that waits or runs. */
  virtualMs = 0;
  /** Of the class that it is ranked by, or last was; at most `ownWeight`. */
  weight = 1;
  /** The weight of the heaviest class of the keys that it was seen with since it was idle: no request counts as more. 0: not known, which bounds nothing. */
  ownWeight = 0;
  /** How fast its rank grows now by the seats that it holds, and by those that are kept for its sessions. */
  rate = 0;
  keptRate = 0;
  /** Requests that wait, and requests that hold seats. */
  waiting = 0;
  leases = 0;
  /** The class that its next seat goes to; undefined if none of it is seatable. */
  next: AccountClass | undefined;
  /** Places that its requests take: those that wait, without the ones whose engine was lost; and the body bytes of these. */
  places = 0;
  bytes = 0;
  /** Busy seats, and seats kept for its sessions. */
  running = 0;
  kept = 0;
  /** Requests whose prompts are not known yet that may be turns of sessions whose seats are kept. */
  claiming = 0;
  /** The share of the turns of its sessions that a next one followed. */
  continuedShare = FIRST_CONTINUED_SHARE;
  /** Of the pauses before its sessions' turns about one in ten is longer; undefined if none was seen. */
  pauseMs: number | undefined;
  /** About half of them are longer; a second at first, ms. */
  medianPauseMs = 1000;
  /** Seat-milliseconds in all, without weights. */
  seatMs = 0;
  /** Seat-milliseconds over weight since the fairness window began. */
  windowMs = 0;
  /** Clock reading since which it has always had a request that could be seated; undefined if it has none now. */
  backloggedSince: number | undefined;
  /** When its last seatable request was seated or left, and when one of its requests was last refused because the queue stands. */
  emptyAt = 0;
  pressedAt = -Infinity;
  /** Seat-milliseconds that one request takes, whatever its class. */
  readonly #hold = new HoldTime();
  /** How long its callers wait, whatever their class. */
  readonly patience: OwnPatience = {};
  /** Its nodes in the heaps of state.ts that have these names. */
  readonly seatable: HeapNode<Account> = new HeapNode<Account>(this);
  readonly byPlaces: HeapNode<Account> = new HeapNode<Account>(this);
  readonly holding: HeapNode<Account> = new HeapNode<Account>(this);
  readonly idle: HeapNode<Account> = new HeapNode<Account>(this);
  /** Its place in the order in which accounts became idle. */
  idleOrder = 0;
  /** The classes that it ever used, heaviest first. */
  readonly #classes: AccountClass[] = [];

  constructor(name: string, columns: AccountColumns) {
    this.name = name;
    this.#columns = columns;
    this.slot = columns.take(this);
    this.#copy();
  }

  /** Seat-milliseconds that one request takes, whatever its class; undefined if none has ended. */
  get holdMs(): number | undefined {
    return this.#hold.meanMs;
  }

  /** As {@link HoldTime.observe}. */
  observeHold(seatMs: number, isFreed: boolean): void {
    this.#hold.observe(seatMs, isFreed);
    this.#copy();
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

  /** The first of its requests, in the order of turns, for which `wanted` is true: of the next class, else of the heaviest. O(requests). */
  first(wanted: (queued: QueuedRequest) => boolean): QueuedRequest | undefined {
    let found = this.next?.users.first(wanted);
    for (const { users } of this.#classes) found ??= users.first(wanted);
    return found;
  }

  /** The weight over which the seat time of one of its classes is charged. */
  weightOf({ weight }: AccountClass): number {
    return this.ownWeight === 0 ? weight : Math.min(weight, this.ownWeight);
  }

  /** The counter by which one of its classes has its turn among those of equal rank. */
  turnOf(accountClass: AccountClass): number {
    const [heaviest] = this.#classes;
    const isBounded = heaviest !== undefined && this.weightOf(heaviest) < heaviest.weight;
    return isBounded ? accountClass.turnMs : accountClass.virtualMs;
  }

  rankOf(accountClass: AccountClass): number {
    this.#syncOnlyClass();
    let rank = 0;
    for (const known of this.#classes) {
      rank = Math.max(rank, known.virtualMs);
      if (known === accountClass) break;
    }
    return rank;
  }

  /** Charges the seats held for `ms`; also those that are kept for its sessions, while requests wait. */
  charge(ms: number, chargesKept: boolean): void {
    const before = this.virtualMs;
    this.seatMs += this.running * ms;
    // The fast path for nearly all accounts, since this runs for each that holds a seat, in every operation.
    if (this.#classes.length === 1) {
      this.virtualMs += (chargesKept ? this.rate + this.keptRate : this.rate) * ms;
      this.#columns.virtualMs[this.slot] = this.virtualMs;
    } else {
      this.#chargeEach(ms, chargesKept);
      this.rank();
    }
    this.windowMs += this.virtualMs - before;
  }

  /** Lifts a class's counter to `minMs`, the virtual time of the other accounts. */
  lift(accountClass: AccountClass, minMs: number): void {
    this.#syncOnlyClass();
    accountClass.virtualMs = Math.max(accountClass.virtualMs, minMs);
    if (this.#classes.length > 1) this.#liftTurn(accountClass);
    this.#rank();
  }

  /** Lifts the counter of a class's turns to those of the other classes with a request that can be seated. */
  #liftTurn(accountClass: AccountClass): void {
    const others = this.#classes.filter((known) => known !== accountClass && known.hasSeatable);
    if (others.length === 0) return;
    accountClass.turnMs = Math.max(accountClass.turnMs, Math.min(...others.map(({ turnMs }) => turnMs)));
  }

  /** Computes its rank again after its classes, or its waiting or running requests changed. O(classes). */
  rank(): void {
    this.#syncOnlyClass();
    this.#rank();
  }

  /** Copies its numbers to the columns. Called after each change but that of `waiting`, `leases` and `kept`, which `rank` follows. */
  #copy(): void {
    const { slot } = this;
    const { virtualMs, weight, holdMs, waiting, leases, rate, classes } = this.#columns;
    virtualMs[slot] = this.virtualMs;
    weight[slot] = this.weight;
    holdMs[slot] = this.#hold.meanMs ?? NaN;
    waiting[slot] = this.waiting;
    leases[slot] = this.leases + this.kept;
    rate[slot] = this.rate;
    classes[slot] = this.#classes.length;
  }

  /** The counter of an only class is its account's rank, and is charged there alone. */
  #syncOnlyClass(): void {
    const [only] = this.#classes;
    if (only !== undefined && this.#classes.length === 1) only.virtualMs = this.virtualMs;
  }

  #rank(): void {
    let rank = 0;
    let seats = this.running;
    let { kept } = this;
    let ranksBy: AccountClass | undefined;
    this.next = undefined;
    for (const known of this.#classes) {
      rank = Math.max(rank, known.virtualMs);
      const seatable = known.users.head !== undefined;
      if (seatable && this.next === undefined) {
        this.next = ranksBy = known;
        this.#rankBy(known, rank, seats, kept);
      } else if (seatable && this.next !== undefined && rank === this.virtualMs) {
        if (this.turnOf(known) < this.turnOf(this.next)) this.next = known;
      } else if (ranksBy === undefined && known.running + known.kept + known.waiting > 0) {
        ranksBy = known;
        this.#rankBy(known, rank, seats, kept);
      }
      seats -= known.running;
      kept -= known.kept;
    }
    if (ranksBy === undefined) {
      // Idle: the highest of its counters, so that after all accounts were idle none starts below another's counter.
      this.virtualMs = rank;
      this.rate = 0;
      this.keptRate = 0;
    }
    this.#copy();
  }

  #rankBy(accountClass: AccountClass, rank: number, seats: number, kept: number): void {
    const weight = this.weightOf(accountClass);
    this.virtualMs = rank;
    this.weight = weight;
    this.rate = seats / weight;
    this.keptRate = kept / weight;
  }

  #chargeEach(ms: number, chargesKept: boolean): void {
    let seats = 0;
    for (let at = this.#classes.length - 1; at >= 0; at -= 1) {
      const charged = this.#classes[at];
      if (charged === undefined) continue;
      seats += chargesKept ? charged.running + charged.kept : charged.running;
      charged.virtualMs += (seats * ms) / this.weightOf(charged);
      charged.turnMs += (seats * ms) / charged.weight;
    }
  }

  #make(name: ServiceClass): AccountClass {
    this.#syncOnlyClass();
    const made = new AccountClass(name);
    this.#classes.push(made);
    this.#classes.sort((a, b) => SERVICE_CLASSES.indexOf(a.class) - SERVICE_CLASSES.indexOf(b.class));
    return made;
  }
}
