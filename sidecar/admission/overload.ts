/**
 * Decides which requests may wait while more arrive than the seats can serve. It needs no setting.
 *
 * Nothing here applies before the queue stands (standing-queue.ts): while seats become free by themselves, a caller who
 * leaves the queue costs nothing, and a burst is served. Once the queue stands:
 *
 * 1. Room. Each class of an account may have as many requests waiting as are needed so that one waits at almost every turn
 *    of it (room.ts). So every account that asks for its share has a request waiting when its turn comes, and the queue stays fair
 *    between accounts (fair queuing with a controlled queue for each: FQ-CoDel, RFC 8290). `room` bounds the requests of all classes
 *    together. When the queue begins to stand and more continue to arrive, those beyond a class's room are refused, the last in its
 *    order first.
 * 2. Patience. How long callers stay is learned from those who left before they had what they waited for, and from those
 *    who did not (patience.ts; E. Kaplan and P. Meier, 1958). If a full room would make a class's requests wait so long
 *    that seat time is wasted, that class is served newest first, and its oldest request makes room (adaptive LIFO:
 *    B. Maurer, "Fail at Scale", ACM Queue 2015; drop from the front: N. Yin and M. Hluchyj, 1993): a served request has then
 *    waited for about the time since the last arrival, however many wait. Otherwise the order stays first come, first
 *    served, and the newcomer is refused at once.
 * 3. A request whose predicted wait is longer than callers of its account stay is refused on arrival. One that has waited so
 *    long that a newer one makes more of the seat is refused then.
 *
 * A caller counts as having left if it disconnects before the first token of a stream or before the end of a whole reply. It
 * does not if it stops a stream midway, or disconnects when the answer to a copy of its request arrives (hedges.ts). The
 * patience of an account's callers applies to its own requests; in the patience of all callers each account counts alike, and the one
 * of which the most left is left out.
 */
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';
import { Hedges } from './hedges.js';
import { PatienceBook } from './patience-book.js';
import type { Awaited, Patience, Times } from './patience.js';
import { lastOfLongest } from './drop.js';
import type { QueuedRequest } from './queued-request.js';
import type { QueueState } from './queue-state.js';
import { Room } from './room.js';
import type { PatienceReport, QueueRequest } from './seat-queue.js';
import { StandingQueues } from './standing-queue.js';

/** The share of requests, among those that patience alone would refuse, that are admitted, so that growing patience is noticed. */
const EXPLORED = 0.02;

/** Weight of the newest lease in the mean time that a request takes. */
const HOLD_STEP = 0.02;

/** A class is served newest first only above this load: below it nearly all are served. */
const NEWEST_FIRST_LOAD = 1.05;

/** So many requests for each that was seated, in about the time of one request and without the present one, show that a class's load continues. */
const CONTINUING_LOAD = 1.5;

/** A full room's longest waits, over their mean: one request in ten waits twice as long, and it is these whose callers leave. */
const WAIT_SPREAD = 2;

/**
 * Of a class that is served newest first no further request is admitted while ENOUGH wait and the last one arrived within this part of
 * the longest wait that wastes no seat time.
 */
const ENOUGH = 2;
const FRESH_PART = 0.25;

export class Overload {
  readonly patience = new PatienceBook();
  readonly #standing: StandingQueues;
  readonly #room = new Room();
  readonly #hedges = new Hedges();
  readonly #state: QueueState;
  readonly #random: () => number;
  readonly #learns: boolean;
  #at: number | undefined;
  /** Mean time on a seat, ms. It follows changes more slowly than the mean that predictions use, which varies by a fifth. */
  #holdMs = 1000;
  #leases = 0;
  #leftMs = 0;

  /** `learns`: if false, the queue never counts as standing, so nothing here applies. */
  constructor(state: QueueState, random: () => number, learns: boolean) {
    this.#state = state;
    this.#standing = new StandingQueues(state.replicas.lengths);
    this.#learns = learns;
    this.#random = random;
  }

  /** Whether the queue stands, for requests of any length. */
  get stands(): boolean {
    return this.#learns && this.#standing.stand;
  }

  /** Whether it stands for requests whose seat has to hold so many tokens; 0: any seat will do. */
  standsFor(seatTokens: number): boolean {
    return this.#learns && this.#standing.standsFor(seatTokens);
  }

  /** Requests that come for each that is seated, of all accounts together. */
  get load(): number {
    return this.#room.load(this.#state.waiting);
  }

  /** Seat time of requests whose callers left before they had what they waited for, ms. */
  get leftMs(): number {
    return this.#leftMs;
  }

  /** How long callers stay. Each account counts alike. */
  patienceReport(awaited: Awaited): PatienceReport {
    const survival = this.patience.ofAll(awaited, this.times);
    const by = (share: number): number | null => survival.timeOf(share) ?? null;
    return { p10: by(0.1), p50: by(0.5), p90: by(0.9) };
  }

  get times(): Times {
    return { now: this.#standing.fullMs, holdMs: this.#holdMs };
  }

  /** Advances the time to `now`. Called first in each operation. */
  passed(now: number): void {
    const { replicas } = this.#state;
    // Before a first lease has ended, the time that a request takes is unknown.
    if (this.#at !== undefined && this.#leases > 0) this.#standing.passed(now - this.#at, replicas, this.#holdMs);
    this.#at = now;
  }

  /** A request arrived, whether or not it is admitted. Decides the order in which its class is served. */
  arrived(request: QueueRequest, account: Account, accountClass: AccountClass): void {
    this.#room.arrived(accountClass, this.#state.now, this.#holdMs);
    const { load } = accountClass;
    const waitMs = WAIT_SPREAD * this.#room.of(accountClass) * accountClass.demand.everyMs;
    const long = this.stands && load > NEWEST_FIRST_LOAD;
    accountClass.newestFirst = long && waitMs > this.#patienceOf(account, request).freshMs;
  }

  /** A request was given a seat. */
  seated(accountClass: AccountClass): void {
    this.#room.seated(accountClass, this.#state.now, this.#holdMs);
  }

  /** How many requests of this class may wait while the queue stands. */
  roomOf(accountClass: AccountClass): number {
    return this.#room.of(accountClass, accountClass.newestFirst);
  }

  /**
   * As the queue begins to stand: the waiting requests for which their class has no room. If they stayed, seats would be given for many
   * seconds to callers who have waited for long, and the first of these leave just then. None after a burst, which is served.
   */
  surplus(accountClass: AccountClass): readonly QueuedRequest[] {
    const { periods } = this.#standing;
    if (!this.stands || accountClass.trimmedIn === periods) return [];
    accountClass.trimmedIn = periods;
    if (accountClass.load <= NEWEST_FIRST_LOAD || accountClass.recentDemand.load(1) <= CONTINUING_LOAD) return [];
    const beyond = lastOfLongest(accountClass, accountClass.list.length - this.roomOf(accountClass));
    return beyond.filter((queued) => this.#standsForThis(queued));
  }

  /** How many requests may wait in all while the queue stands. */
  get room(): number {
    const { seats, waitingClasses, waiting } = this.#state;
    return this.#room.total(seats, waitingClasses, waiting);
  }

  /** Whether enough requests of a class that is served newest first wait and are so recent that a newer one would be no better. */
  fresh(request: QueueRequest, account: Account, accountClass: AccountClass): boolean {
    const { last, length } = accountClass.list;
    if (!accountClass.newestFirst || last === undefined || length < ENOUGH) return false;
    const { freshMs } = this.#patienceOf(account, request);
    return this.#state.now - last.enteredAt < FRESH_PART * freshMs;
  }

  /** The longest wait after which this request's caller is likely to be there still, ms; while the queue stands. */
  longestMs(request: QueueRequest, account: Account): number {
    return this.#patienceOf(account, request).longestMs;
  }

  /** Whether a request is admitted to find out whether patience grew. */
  explores(): boolean {
    return this.#random() < EXPLORED;
  }

  /** The time in the queue after which a newer request makes more of a seat, ms. */
  hopelessMs({ request, needs, explores }: QueuedRequest, account: Account): number {
    if (explores || !this.#standsForThis({ needs })) return Infinity;
    return this.#patienceOf(account, request).hopelessMs;
  }

  /** Whether it is refused in place of being seated: its client's timeout has passed, or a newer one makes more of the seat. */
  isHopeless(queued: QueuedRequest, account: Account, now: number): boolean {
    if (queued.request.wantedUntil !== undefined && queued.request.wantedUntil <= now) return true;
    if (queued.returns > 0 || queued.hasReservation) return false;
    // The only request that waits is seated in any case: there is no better use of the seat.
    return this.#state.seatable > 1 && now - queued.enteredAt > this.hopelessMs(queued, account);
  }

  /** Whether this request, of a class that is served newest first, has waited longer than wastes no seat time. One of another account may not have. */
  isAged(queued: QueuedRequest): boolean {
    const account = this.#state.accountOf(queued);
    if (queued.hasReservation || !this.#state.classOf(queued).newestFirst || !this.#standsForThis(queued)) return false;
    const { freshMs } = this.#patienceOf(account, queued.request);
    return this.#state.now - queued.enteredAt > freshMs;
  }

  /** A lease ended that held seats for so many seat-milliseconds. */
  observeHold(seatMs: number): void {
    this.#leases += 1;
    this.#holdMs += Math.max(1 / this.#leases, HOLD_STEP) * (seatMs - this.#holdMs);
  }

  /** A lease ended that held seats for so many seat-milliseconds, and whose caller had left before it had what it waited for. */
  observeLeft(seatMs: number): void {
    this.#leftMs += seatMs;
  }

  /** A request got its place. */
  entered(queued: QueuedRequest): void {
    this.#hedges.entered(queued);
  }

  /**
   * Records how long a caller stayed, once: its request has ended, or it has what it waited for (`answered`). `left`: its caller
   * disconnected before that; the queue calls this at the disconnect, since an external server may confirm much later that the seat
   * is free. `neither`: the queue refused the request, or its deadline passed.
   */
  observePatience(queued: QueuedRequest, account: Account, how: 'answered' | 'left' | 'neither'): void {
    if (queued.patienceRecorded) return;
    queued.patienceRecorded = true;
    const left = how === 'left';
    const { now, breaks } = this.#state;
    const awaited = queued.request.awaits ?? 'end';
    const seated = queued.phase === 'leased';
    queued.leftUnserved = left && seated;
    if (queued.breaks !== breaks || (left && this.#hedges.mayEnd(queued, now))) return;
    if (how === 'answered') this.#hedges.answered(queued, now);
    this.patience.observe(account.patience, awaited, { ms: now - queued.enteredAt, left }, this.times);
    if (seated) this.patience.served(awaited, { ms: now - queued.grantedAt, answered: how === 'answered' }, this.times);
  }

  /** A request has ended. */
  over(queued: QueuedRequest): void {
    this.#hedges.over(queued);
  }

  /** Whether it stands for a request that waits. */
  #standsForThis({ needs }: Pick<QueuedRequest, 'needs'>): boolean {
    return this.standsFor(needs?.seatTokens ?? 0);
  }

  /** A newcomer is not counted as waiting yet: of an account that is not known, the second is let in as the only one is. */
  #patienceOf(account: Account, request: QueueRequest): Patience {
    return this.patience.of(account.patience, request.awaits ?? 'end', this.times, account.waiting <= 1);
  }
}
