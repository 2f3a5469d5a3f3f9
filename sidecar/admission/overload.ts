/**
 * Which waits are worth a place when more comes than the seats can serve, without a setting for it.
 *
 * Nothing here plays a part before the queue stands (standing-queue.ts): while seats come free by themselves a caller who
 * leaves the queue costs nothing, and a burst is served. Once it stands:
 *
 * 1. Room. Each class of an account may keep as many waiting as leave hardly a turn of it without one (demand.ts): 34 at a
 *    load just above what it is given, 5 at twice, 2 at ten times. So every account that asks for its share is there when its
 *    turn comes, and fairness between accounts stays what it is (fair queuing with a controlled queue for each: FQ-CoDel,
 *    RFC 8290). All together keep three for each account, or for each seat where there are more accounts than seats.
 * 2. Patience. How long callers stay is learned from those who left before they had what they waited for and from those
 *    who did not (patience.ts; E. Kaplan and P. Meier, 1958). Where a full room would make a class's requests wait so long
 *    that it costs seat time, that class is served newest first and its oldest request makes room (adaptive LIFO:
 *    B. Maurer, "Fail at Scale", ACM Queue 2015; drop from the front: N. Yin and M. Hluchyj, 1993): the wait of the served is
 *    then the time since the last arrival, however many wait, and room costs nothing. Elsewhere the order stays first come,
 *    first served, and the newcomer is refused at once.
 * 3. A request whose predicted wait is longer than callers of its account stay is refused on arrival, and one that has
 *    waited so long that a seat would be for nothing is refused then.
 *
 * A caller counts as having left where it left before the first token of a stream or before the end of a whole reply. One
 * that stops a stream midway does not, nor one that leaves as the answer to a copy of its request comes (hedges.ts). What an
 * account's callers do decides over its own requests; it enters what is believed of others as one account of many.
 */
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';
import { Demand, roomFor } from './demand.js';
import { Hedges } from './hedges.js';
import { PatienceBook, type Awaited, type Patience, type Times } from './patience.js';
import type { QueuedRequest } from './queued-request.js';
import type { QueueState } from './queue-state.js';
import type { PatienceReport, QueueRequest } from './seat-queue.js';
import { StandingQueue, windowOf } from './standing-queue.js';

/** Of those whom patience alone would refuse, so many are let in all the same: else a patience that grew is never seen. */
const EXPLORED = 0.02;

/** Weight of the newest lease in what a request takes. */
const HOLD_STEP = 0.02;

/** Requests that may wait in all while the queue stands: so many for each class of an account, but no more than these. */
const PLACES_EACH = 10;
const PLACES = 32;
const PLACES_A_SEAT = 4;

/** A class is served newest first only above this load: below it nearly all are served. */
const NEWEST_FIRST_LOAD = 1.05;

/** Where the newest goes first, those who wait behind it are hardly ever served: so many turns may find none. */
const FEW_EMPTY = 0.01;

/** Served newest first: while so many wait, and the last came within this part of the wait that costs nothing, no other is let in. */
const ENOUGH = 2;
const FRESH_PART = 0.25;

export class Overload {
  readonly patience = new PatienceBook();
  readonly standing = new StandingQueue();
  readonly #demand = new Demand();
  readonly #hedges = new Hedges();
  readonly #state: QueueState;
  readonly #random: () => number;
  readonly #learns: boolean;
  #at: number | undefined;
  /** What a request takes; slower to follow than what predictions go by, which vary by a fifth. */
  #holdMs = 1000;
  #held = 0;
  #wastedMs = 0;

  /** `learns`: false: the queue never counts as standing, so that nothing here plays a part. */
  constructor(state: QueueState, random: () => number, learns: boolean) {
    this.#state = state;
    this.#learns = learns;
    this.#random = random;
  }

  get stands(): boolean {
    return this.#learns && this.standing.stands;
  }

  /** Requests that come for each that is seated, of all accounts together. */
  get load(): number {
    return this.#demand.load(this.#state.waiting);
  }

  /** Seat time of requests whose callers left before they had what they waited for, ms. */
  get wastedMs(): number {
    return this.#wastedMs;
  }

  /** How long callers stay, all accounts alike. */
  patienceReport(awaited: Awaited): PatienceReport {
    const { survival } = this.patience.of({}, awaited, this.times);
    const by = (share: number): number | null => survival.timeOf(share) ?? null;
    return { p10: by(0.1), p50: by(0.5), p90: by(0.9) };
  }

  get times(): Times {
    return { now: this.standing.fullMs, holdMs: this.#holdMs };
  }

  /** Time goes on to `now`, before anything else happens then. */
  passed(now: number): void {
    const { seats, free, paused } = this.#state;
    // Nothing is known of a queue before a first lease has ended.
    if (this.#at !== undefined && !paused && seats > 0 && this.#held > 0) {
      this.standing.passed(now - this.#at, free / seats, this.#holdMs);
    }
    this.#at = now;
  }

  /** A request came, let in or not: settles the order in which its class is served. */
  arrived(request: QueueRequest, account: Account, accountClass: AccountClass): void {
    const { now } = this.#state;
    const windowMs = windowOf(this.#holdMs);
    this.#demand.arrived(now, windowMs);
    accountClass.demand.arrived(now, windowMs);
    const { load } = accountClass;
    accountClass.newestFirst =
      this.stands &&
      load > NEWEST_FIRST_LOAD &&
      roomFor(load) * accountClass.demand.everyMs > this.#of(account, request).freshMs;
  }

  /** A request was given a seat. */
  seated(accountClass: AccountClass): void {
    const windowMs = windowOf(this.#holdMs);
    this.#demand.seated(this.#state.now, windowMs);
    accountClass.demand.seated(this.#state.now, windowMs);
  }

  /** How many requests of this class may wait; Infinity: the queue does not stand. */
  roomOf(accountClass: AccountClass): number {
    return this.stands ? roomFor(accountClass.load, accountClass.newestFirst ? FEW_EMPTY : undefined) : Infinity;
  }

  /** How many requests may wait in all; Infinity: the queue does not stand. */
  get room(): number {
    if (!this.stands) return Infinity;
    const { seats, kinds } = this.#state;
    const most = Math.max(PLACES, PLACES_A_SEAT * seats);
    return Math.max(Math.min(PLACES_EACH * (kinds + 1), most), roomFor(this.load));
  }

  /** Whether enough of a class wait that is served newest first, and so lately that a newer one would be no better. */
  fresh(request: QueueRequest, account: Account, accountClass: AccountClass): boolean {
    const { last, length } = accountClass.list;
    if (!this.stands || !accountClass.newestFirst || last === undefined || length < ENOUGH) return false;
    return this.#state.now - last.enteredAt < FRESH_PART * this.#of(account, request).freshMs;
  }

  /** The longest wait for a seat that is worth a place to this request, ms. */
  longestMs(request: QueueRequest, account: Account): number {
    return this.stands ? this.#of(account, request).longestMs : Infinity;
  }

  /** Whether a request is let in to find out whether patience grew. */
  explores(): boolean {
    return this.#random() < EXPLORED;
  }

  /** After so long in the queue, ms, a seat would be for nothing by what is learned. */
  hopelessMs({ request, explores }: QueuedRequest, account: Account): number {
    return this.stands && !explores ? this.#of(account, request).hopelessMs : Infinity;
  }

  /** Whether a seat would be for nothing: by what its caller says, or while the queue stands, by what is learned. */
  isHopeless(queued: QueuedRequest, account: Account, now: number): boolean {
    if (queued.request.wantedUntil !== undefined && queued.request.wantedUntil <= now) return true;
    if (queued.returns > 0) return false;
    // The last one in line is seated whatever its chance: there is no better use of the seat.
    return this.#state.seatable > 1 && now - queued.enteredAt > this.hopelessMs(queued, account);
  }

  /** Whether this request, of a class that is served newest first, has waited so long that it costs seat time: another account's may not. */
  isAged(queued: QueuedRequest): boolean {
    const account = this.#state.accountOf(queued);
    if (!this.stands || queued.promised || !this.#state.classOf(queued).newestFirst) return false;
    return this.#state.now - queued.enteredAt > this.#of(account, queued.request).freshMs;
  }

  /** A lease ended that held seats for `ms`. */
  held(ms: number): void {
    this.#held += 1;
    this.#holdMs += Math.max(1 / this.#held, HOLD_STEP) * (ms - this.#holdMs);
  }

  /** A request got its place. */
  entered(queued: QueuedRequest): void {
    this.#hedges.entered(queued);
  }

  /**
   * A request is over, or has what its caller waited for. `left`: its caller left before that. `neither`: it was refused, or
   * its deadline passed.
   */
  settled(queued: QueuedRequest, account: Account, how: 'answered' | 'left' | 'neither'): void {
    if (queued.patienceRecorded) return;
    queued.patienceRecorded = true;
    const left = how === 'left';
    const { now, breaks } = this.#state;
    const awaited = awaitedBy(queued.request);
    const seated = queued.phase === 'leased';
    if (left && seated) this.#wastedMs += queued.seatMs;
    if (queued.breaks !== breaks || (left && this.#hedges.mayEnd(queued, now))) return;
    if (how === 'answered') this.#hedges.answered(queued, now);
    this.patience.observe(account.patience, awaited, { ms: now - queued.enteredAt, left }, this.times);
    if (seated) this.patience.served(awaited, { ms: now - queued.grantedAt, answered: how === 'answered' }, this.times);
  }

  /** It is over. */
  over(queued: QueuedRequest): void {
    this.#hedges.over(queued);
  }

  #of(account: Account, request: QueueRequest): Patience {
    return this.patience.of(account.patience, awaitedBy(request), this.times);
  }
}

function awaitedBy({ awaits }: QueueRequest): Awaited {
  return awaits ?? 'end';
}
