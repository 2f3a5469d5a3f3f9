/**
 * Which requests may wait while more arrive than the seats can serve. It needs no setting.
 *
 * A queue that never empties adds its wait to every request and no throughput (CoDel: K. Nichols and V. Jacobson, ACM Queue 2012), so
 * once no seat was free for some time the queue counts as standing. Before that no rule applies: while seats become free by themselves,
 * a caller who leaves the queue costs nothing, and a burst is served. Each rule is a method of its name below, and one step of judge.ts,
 * choose.ts or queue.ts that calls it:
 *
 * - `roomOf`, `totalRoom`: each class of an account may have as many requests waiting as are needed so that one waits at almost every
 *   turn of it. So every account that asks for its share has a request waiting when its turn comes, and the queue stays fair between
 *   accounts (fair queuing with a controlled queue for each: FQ-CoDel, RFC 8290).
 * - `surplus`: as the queue begins to stand and more continue to arrive, the requests beyond a class's room are refused.
 * - `newestFirst` of a class: if a full room would make its requests wait so long that seat time is wasted, the class is served newest
 *   first, and its oldest request makes room (adaptive LIFO: B. Maurer, "Fail at Scale", ACM Queue 2015; drop from the front: N. Yin and
 *   M. Hluchyj, 1993). A served request has then waited for about the time since the last arrival, however many wait. Otherwise the
 *   order stays first come, first served, and the newcomer is refused at once.
 * - `isFresh`: a class that is served newest first admits no further request while recent ones wait.
 * - `isAged`: a head of such a class that waited too long lets another account's head go before it.
 * - `longestMs`, `explores`: a request whose predicted wait is longer than callers of its account stay is refused on arrival. A few are
 *   admitted, so that growing patience is noticed.
 * - `isHopeless`: a request that has waited so long that a newer one makes more of the seat is refused then.
 * - reservations of times to return (retry.ts) and "seat time" (make-room.ts).
 *
 * How long callers stay is learned from those who left before they had what they waited for, and from those who did not (patience.ts). A
 * caller counts as having left if it disconnects before the first token of a stream or before the end of a whole reply. It does not if it
 * stops a stream midway, or disconnects when the answer to a copy of its request arrives (`Hedges`). The patience of an account's callers
 * applies to its own requests; in the patience of all callers each account counts alike, and the one of which the most left is left out.
 */
import type { Account, AccountClass } from './accounts.js';
import { Demand } from './measures.js';
import { lastOfLongest } from './make-room.js';
import { PatienceBook, type Patience, type Times } from './patience.js';
import type { QueuedRequest } from './request.js';
import type { ReplicaSeats } from './seats.js';
import type { QueueState } from './state.js';
import type { QueueRequest } from './types.js';

/** The share of requests, among those that patience alone would refuse, that are admitted, so that growing patience is noticed. */
const EXPLORED = 0.02;

/** Weight of the newest lease in the mean time that a request takes. */
const HOLD_STEP = 0.02;

/** A class is served newest first, or trimmed, only above this load: below it nearly all are served. */
const OVERLOADED = 1.05;

/** Arrivals for each request seated, over about the time of one request, that show that a class's load continues. */
const CONTINUING_LOAD = 1.5;

/** A full room's longest waits, over their mean: one request in ten waits twice as long, and it is these whose callers leave. */
const WAIT_SPREAD = 2;

/**
 * A class that is served newest first admits no further request while ENOUGH wait and the last one arrived within this part of the longest
 * wait that wastes no seat time.
 */
const ENOUGH = 2;
const FRESH_PART = 0.25;

/**
 * Bounds of all waiting requests while the queue stands: PLACES_EACH for each class of an account, at most the larger of PLACES and
 * PLACES_A_SEAT for each seat.
 */
const PLACES_EACH = 10;
const PLACES = 32;
const PLACES_A_SEAT = 4;

/** Loads are averaged over the time of so many requests on one seat, and over at least so many ms. */
const LOAD_HOLDS = 20;
const LOAD_MS = 10_000;

export class Overload {
  readonly #patience = new PatienceBook();
  readonly #standing: Standing;
  /** Requests that callers sent more than once. */
  readonly hedges = new Hedges();
  readonly #state: QueueState;
  readonly #random: () => number;
  readonly #learns: boolean;
  /** Of all accounts together. */
  readonly #demand = new Demand();
  #at: number | undefined;
  /** Mean time on a seat, ms. It follows changes more slowly than the mean that predictions use, which varies by a fifth. */
  #holdMs = 1000;
  #leases = 0;
  #leftMs = 0;

  /** `learns`: if false, the queue never counts as standing, so no rule applies. */
  constructor(state: QueueState, random: () => number, learns: boolean) {
    this.#state = state;
    this.#standing = new Standing(state.replicas.lengths);
    this.#learns = learns;
    this.#random = random;
  }

  /** Whether the queue stands for requests of some length. */
  get stands(): boolean {
    return this.#learns && this.#standing.forAny;
  }

  /** Whether the queue stands for requests whose seat has to hold `seatTokens`; 0: any seat will do. */
  standsFor(seatTokens: number): boolean {
    return this.#learns && this.#standing.isFor(seatTokens);
  }

  /** Requests that arrive for each that is seated, of all accounts together. */
  get load(): number {
    return this.#demand.load(this.#state.waiting);
  }

  /** Mean time between two seats of an account's fair part of all that are given, ms. */
  fairEveryMs(account: Account): number {
    return this.#demand.everyMs / this.#state.shareOf(account);
  }

  /** Seat time of requests whose callers left before they had what they waited for, ms. */
  get leftMs(): number {
    return this.#leftMs;
  }

  get #times(): Times {
    return { now: this.#standing.fullMs, holdMs: this.#holdMs };
  }

  /** Advances the time to `now`. Called first in each operation, before the state. */
  advance(now: number): void {
    // Before a first lease has ended, the time that a request takes is unknown.
    if (this.#at !== undefined && this.#leases > 0)
      this.#standing.advance(now - this.#at, this.#state.replicas, this.#holdMs);
    this.#at = now;
  }

  /** A request arrived, whether or not it is admitted. Decides the order in which its class is served (rule `newestFirst`). */
  arrived(request: QueueRequest, account: Account, accountClass: AccountClass): void {
    const { now } = this.#state;
    const windowMs = this.#windowMs;
    this.#demand.arrived(now, windowMs);
    accountClass.demand.arrived(now, windowMs);
    accountClass.recentDemand.arrived(now, this.#holdMs);
    const { load } = accountClass;
    const waitMs = WAIT_SPREAD * roomFor(load) * accountClass.demand.everyMs;
    accountClass.newestFirst = this.stands && load > OVERLOADED && waitMs > this.#patienceOf(account, request).freshMs;
  }

  seated(accountClass: AccountClass): void {
    const { now } = this.#state;
    const windowMs = this.#windowMs;
    this.#demand.seated(now, windowMs);
    accountClass.demand.seated(now, windowMs);
    accountClass.recentDemand.seated(now, this.#holdMs);
  }

  /** How many requests of this class may wait while the queue stands. */
  roomOf({ load, newestFirst }: AccountClass): number {
    return roomFor(load, newestFirst ? FEW_EMPTY_TURNS : undefined);
  }

  /** How many requests may wait in all while the queue stands. */
  get totalRoom(): number {
    const { seats, waitingClasses } = this.#state;
    const most = Math.max(PLACES, PLACES_A_SEAT * seats);
    return Math.max(Math.min(PLACES_EACH * (waitingClasses + 1), most), roomFor(this.load));
  }

  /**
   * As the queue begins to stand: the waiting requests for which their class has no room, the last in its order first. If they stayed,
   * seats would be given for many seconds to callers who have waited for long, and the first of these leave just then. None after a
   * burst, which is served.
   */
  surplus(accountClass: AccountClass): readonly QueuedRequest[] {
    const { periods } = this.#standing;
    if (!this.stands || accountClass.trimmedIn === periods) return [];
    accountClass.trimmedIn = periods;
    if (accountClass.load <= OVERLOADED || accountClass.recentDemand.load(1) <= CONTINUING_LOAD) return [];
    const beyond = lastOfLongest(accountClass, accountClass.list.length - this.roomOf(accountClass));
    return beyond.filter(({ seatTokens }) => this.standsFor(seatTokens));
  }

  /** Whether enough requests of a class that is served newest first wait and are so recent that a newer one would be no better. */
  isFresh(request: QueueRequest, account: Account, { newestFirst, list }: AccountClass): boolean {
    if (!newestFirst || list.last === undefined || list.length < ENOUGH) return false;
    const { freshMs } = this.#patienceOf(account, request);
    return this.#state.now - list.last.enteredAt < FRESH_PART * freshMs;
  }

  /**
   * Whether this request, of a class that is served newest first, has waited longer than wastes no seat time. One of another account
   * may not have.
   */
  isAged(queued: QueuedRequest): boolean {
    const account = this.#state.accountOf(queued);
    if (queued.hasReservation || !account.classFor(queued.request.weight).newestFirst) return false;
    if (!this.standsFor(queued.seatTokens)) return false;
    return this.#state.now - queued.enteredAt > this.#patienceOf(account, queued.request).freshMs;
  }

  /** The longest wait after which this request's caller is likely to be there still, ms; while the queue stands. */
  longestMs(request: QueueRequest, account: Account): number {
    return this.#patienceOf(account, request).longestMs;
  }

  /** Whether a request is admitted to find out whether patience grew. */
  explores(): boolean {
    return this.#random() < EXPLORED;
  }

  /**
   * Whether a request is refused in place of being seated: its client's timeout has passed, or a newer request makes more of the seat.
   * Not the only request that waits: there is no better use of the seat.
   */
  isHopeless(queued: QueuedRequest): boolean {
    const { now, seatableRequests } = this.#state;
    if (queued.request.wantedUntil !== undefined && queued.request.wantedUntil <= now) return true;
    return seatableRequests > 1 && now - queued.enteredAt > this.hopelessMs(queued);
  }

  /** How long a request may wait in the queue before a newer one makes more of a seat, ms. */
  hopelessMs(queued: QueuedRequest): number {
    if (queued.returns > 0 || queued.hasReservation || queued.explores) return Infinity;
    if (!this.standsFor(queued.seatTokens)) return Infinity;
    return this.#patienceOf(this.#state.accountOf(queued), queued.request).hopelessMs;
  }

  /**
   * Records how long a caller stayed, once: its request has ended, or it has what it waited for (`answered`). `left`: its caller
   * disconnected before that; the queue calls this at the disconnect, since an external server may confirm much later that the seat
   * is free. `neither`: the queue refused the request, or its deadline passed.
   */
  observePatience(queued: QueuedRequest, how: 'answered' | 'left' | 'neither'): void {
    if (queued.patienceRecorded) return;
    queued.patienceRecorded = true;
    const left = how === 'left';
    const { now, engineChanges } = this.#state;
    const awaited = queued.request.awaits ?? 'end';
    const isSeated = queued.phase === 'leased';
    queued.leftUnserved = left && isSeated;
    if (queued.engineChanges !== engineChanges || (left && this.hedges.mayEnd(queued, now))) return;
    if (how === 'answered') this.hedges.answered(queued, now);
    const times = this.#times;
    const { patience } = this.#state.accountOf(queued);
    this.#patience.observe(patience, awaited, { ms: now - queued.enteredAt, left }, times);
    if (isSeated) this.#patience.served(awaited, { ms: now - queued.grantedAt, answered: how === 'answered' }, times);
  }

  /** A lease is about to end whose time shows how long requests hold a seat. `how`: as of `observePatience`. */
  leaseEnded(queued: QueuedRequest, how: 'answered' | 'left' | 'neither'): void {
    this.#leases += 1;
    this.#holdMs += Math.max(1 / this.#leases, HOLD_STEP) * (queued.seatMs - this.#holdMs);
    this.observePatience(queued, how);
    if (queued.leftUnserved) this.#leftMs += queued.seatMs;
  }

  /** The times by which these shares of the callers have left, ms; null: fewer are known to leave. */
  patienceReport(awaited: 'first-token' | 'end'): Record<'p10' | 'p50' | 'p90', number | null> {
    const survival = this.#patience.ofAll(awaited, this.#times);
    const by = (share: number): number | null => survival.timeOf(share) ?? null;
    return { p10: by(0.1), p50: by(0.5), p90: by(0.9) };
  }

  /** Over how long loads are averaged, ms. */
  get #windowMs(): number {
    return Math.max(LOAD_MS, LOAD_HOLDS * this.#holdMs);
  }

  /** A newcomer is not counted as waiting yet: of an account that is not known, the second is let in as the only one is. */
  #patienceOf(account: Account, request: QueueRequest): Patience {
    return this.#patience.of(account.patience, request.awaits ?? 'end', this.#times, account.waiting <= 1);
  }
}

/**
 * The share of a class's turns at which no request of it may be waiting, and of one that is served newest first, whose older requests are
 * rarely served.
 */
const EMPTY_TURNS = 0.0005;
const FEW_EMPTY_TURNS = 0.01;

/** Loads are measured and vary: a load above 1 is treated as at least this. */
const LEAST_LOAD = 1.02;

/**
 * How many requests may wait so that one is waiting at almost every turn, where `load` requests arrive for each that is seated: the
 * smallest K for which M/M/1/K is empty for at most that share of the time, (r - 1) / (r^(K+1) - 1). 32 at a load of 1.2, 10 at 2, 4 at 10.
 */
export function roomFor(load: number, emptyTurns = EMPTY_TURNS): number {
  const r = Math.max(load, LEAST_LOAD);
  return Math.max(1, Math.ceil(Math.log(1 + (r - 1) / emptyTurns) / Math.log(r)) - 1);
}

/** The queue stands once no seat was free for so many times the time of a request. */
const STANDING_HOLDS = 4;

/** Time with a free seat counts so many times as much as time without one, so that the queue stops standing soon. */
const FREE_WEIGHT = 25;

/**
 * Whether more requests have arrived for some time than the seats can serve, for each distinct seat length: one counter per length, of
 * the seats of that length or longer. So more long requests than the long seats can serve change nothing for short ones while seats for
 * these are free. Milliseconds of the queue's clock throughout.
 */
export class Standing {
  /** How often the queue has begun to stand for requests of one length. */
  periods = 0;
  /** Time in which no seat of the longest that were available was free, since the start, ms. */
  fullMs = 0;
  readonly #lengths: readonly number[];
  /** For how many times the time of a request no seat was free, by length; at most twice STANDING_HOLDS. */
  readonly #fullHolds: number[];

  /** `lengths`: the distinct seat lengths, in tokens, the lowest first. */
  constructor(lengths: readonly number[]) {
    this.#lengths = lengths;
    this.#fullHolds = lengths.map(() => 0);
  }

  /** Whether the queue stands for requests of some length. */
  get forAny(): boolean {
    return this.#fullHolds.some((holds) => holds >= STANDING_HOLDS);
  }

  /** Whether the queue stands for requests whose seat has to hold so many tokens. */
  isFor(seatTokens: number): boolean {
    const at = this.#lengths.findIndex((length) => length >= seatTokens);
    // -1, the last: a request that no seat is long enough for counts as one for the longest.
    return (this.#fullHolds.at(at) ?? 0) >= STANDING_HOLDS;
  }

  /**
   * For `ms` the seats were held as they are now; a request takes `holdMs`. Time does not count for a seat length while no replica with
   * seats of that length was available.
   */
  advance(ms: number, replicas: Pick<ReplicaSeats, 'freeShareFor'>, holdMs: number): void {
    if (ms <= 0) return;
    const holds = ms / Math.max(holdMs, 1);
    let isFull = false;
    for (let at = 0; at < this.#lengths.length; at += 1) {
      const free = replicas.freeShareFor(this.#lengths[at] ?? 0);
      if (free === undefined) continue;
      isFull = free === 0;
      const before = this.#fullHolds[at] ?? 0;
      const after = before + (isFull ? holds : -holds * FREE_WEIGHT * free);
      this.#fullHolds[at] = Math.min(Math.max(after, 0), 2 * STANDING_HOLDS);
      if (before < STANDING_HOLDS && after >= STANDING_HOLDS) this.periods += 1;
    }
    if (isFull) this.fullMs += ms;
  }
}

/** A caller that hedges sends a request and one or two copies of it. A larger number of equal requests is a load test or a batch. */
const MOST_COPIES = 3;

/** A caller that disconnected so soon after a copy was answered did so because of that, ms. */
const AFTER_ANSWER_MS = 1000;

/**
 * Requests of one account with the same body that are in progress at once. A caller who ends such a request early may have the answer of
 * its copy, so the end shows no patience. Bounded by the requests in progress.
 */
export class Hedges {
  /** Not a Map, since entries come and go with requests (lib/id-map.ts). */
  readonly #copies: Record<string, { inProgress: number; answeredAt: number }> = {};

  entered({ bodyKey }: QueuedRequest): void {
    if (bodyKey === undefined) return;
    const copies = (this.#copies[bodyKey] ??= { inProgress: 0, answeredAt: -Infinity });
    copies.inProgress += 1;
  }

  /** The caller has got what it waited for. */
  answered({ bodyKey }: QueuedRequest, now: number): void {
    const copies = bodyKey === undefined ? undefined : this.#copies[bodyKey];
    if (copies !== undefined) copies.answeredAt = now;
  }

  /** Whether a caller that disconnects now may do so because a copy of its request was answered. */
  mayEnd({ bodyKey, enteredAt }: QueuedRequest, now: number): boolean {
    const copies = bodyKey === undefined ? undefined : this.#copies[bodyKey];
    if (copies === undefined || copies.inProgress > MOST_COPIES) return false;
    return copies.answeredAt >= enteredAt && now - copies.answeredAt <= AFTER_ANSWER_MS;
  }

  over({ bodyKey }: QueuedRequest): void {
    const copies = bodyKey === undefined ? undefined : this.#copies[bodyKey];
    if (bodyKey === undefined || copies === undefined) return;
    copies.inProgress -= 1;
    if (copies.inProgress === 0) Reflect.deleteProperty(this.#copies, bodyKey);
  }
}
