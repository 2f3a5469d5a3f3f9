/**
 * The seat queue of one model: it gives the seats of all replicas of its engine to requests, fair between accounts, with a prediction
 * of each wait, and bounded. It is pure: a clock, a random source and a config go in; no sockets, no promises awaited.
 *
 * Fair queuing (A. Demers, S. Keshav, S. Shenker, 1989; for seats: Kubernetes API Priority and Fairness) by a counter
 * that is charged as service happens (VTC: Y. Sheng et al., OSDI 2024). An account's virtual time V grows by seats held
 * x time / weight; the lowest V is served next. Seat time charges long prompts and long replies without a guess of their
 * price. An account that begins to wait is lifted to the others' V (state.ts), so it gains nothing while it is
 * idle. Between accounts that always have a request waiting, V differs by no more than 2 x seats x the longest hold time
 * / weight, at any load. Between the classes of an account: accounts.ts; between the end users of a class: request.ts.
 *
 * A request whose predicted wait (forecast.ts) exceeds min(longest wait, deadline - now - usual hold time) is refused on
 * arrival (early rejection: Mooncake, FAST 2025; judge.ts). Each class of an account corrects its predictions by their outcomes, so
 * that about 2 in 100 of the admitted wait too long. While a seat is free for it, or before the first lease has ended, no
 * request is refused by a prediction. One that turns out to need a longer seat than the free ones is judged again. Overload:
 * overload.ts. A full queue drops waiting requests: make-room.ts.
 *
 *     enter -> unready --ready()--> ready --a seat--> granted --next microtask--> leased --release()--> over
 *                                     ^                  | pause()                   |
 *                                     +---- returned <---+-------- giveBack() -------+  (before all others)
 *
 * Only ready requests are given seats, so one whose checks take long, or that turns out too large, blocks no other. The state changes at
 * once; outcomes are delivered one microtask later, and a cancel or a lost engine in between takes the seat back. From delivery on, the
 * code that awaits the outcome owns the lease and must end it: it awaits the outcome itself and never races it, since cancel() settles it.
 *
 * Bounds: `waitingPerSeat` times seats requests and `waitingBytes` bytes wait (returned ones, at most one a lease, may exceed both; a
 * body over the cap may wait if no other does); one timer a waiting request; MAX_ACCOUNTS accounts; one recall a lease of several seats.
 * Operations are O(log n + seats) but for prediction and drop, which pass over the active accounts
 * (bench/results/admission-operations.md), and for a head that no free seat is long enough for (choose.ts).
 */
import type { RefusalReason } from '../domain/refusal-reasons.js';
import type { Clock } from '../lib/clock.js';
import type { Account } from './accounts.js';
import { SeatChoice, type ReusableTokens } from './choose.js';
import { Forecast, isMeasurement } from './forecast.js';
import { Judge, type Admitted } from './judge.js';
import { LentSeats } from './lent.js';
import { Overload } from './overload.js';
import { PartWaits } from './part-waits.js';
import { reportOf, snapshotOf, type QueueReport, type QueueSnapshot } from './report.js';
import { QueuedRequest } from './request.js';
import type { ReplicaState, ReplicaSize } from './seats.js';
import { Sessions, type SessionSettings } from './sessions.js';
import { QueueState } from './state.js';
import type {
  Lease,
  QueueConfig,
  QueueRequest,
  Refused,
  ReleaseReason,
  SeatNeeds,
  Ticket,
  TicketOutcome,
} from './types.js';
import { WaitTimers } from './waits.js';

export interface QueueOptions {
  readonly clock: Clock;
  /** From 0 to 1, for the spread of retries. */
  readonly random: () => number;
  readonly config: QueueConfig;
  /** Seats to begin with, of an engine that is one process, or of each replica; `pause` each at once that is not there yet. */
  readonly seats: number | readonly ReplicaSize[];
  /** What the free sequences and the prefix cache of each replica hold of a prompt, which decides between replicas; absent: it plays no part. */
  readonly reusableTokens?: ReusableTokens;
  /** Whether a replica is ready or becomes ready without a new request; absent: always. */
  readonly isServed?: () => boolean;
  /** Absent: no session is recognised. */
  readonly sessions?: SessionSettings | undefined;
  /** The share of the seats that stays idle while others are lent (lent.ts); absent: no seat is lent. */
  readonly headroom?: number;
  /** False, for comparisons: the queue without what it learns of overload (overload.ts). */
  readonly learns?: boolean;
}

/** The present load of a queue. Its properties read the queue's own state, so that reading them allocates nothing. */
export interface QueueLoad {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  readonly replicas: { readonly all: readonly ReplicaState[] };
}

/** What the end of a lease means for its caller's patience; other ends mean neither. */
const PATIENCE_AT_END: Readonly<Partial<Record<ReleaseReason, 'answered' | 'left'>>> = {
  done: 'answered',
  cancelled: 'left',
};

/** A model's queue: the one owner of its waiting requests, their timers, and the leases. Its methods never throw. */
export class SeatQueue {
  /** The same object for as long as the queue lives. */
  readonly load: QueueLoad;
  readonly #clock: Clock;
  readonly #isServed: () => boolean;
  readonly #state: QueueState;
  readonly #forecast: Forecast;
  readonly #overload: Overload;
  readonly #judge: Judge;
  readonly #choice: SeatChoice;
  readonly #sessions: Sessions;
  readonly #waits: WaitTimers;
  readonly #lent: LentSeats;
  readonly #parts: PartWaits;
  /** Leases of several seats that want to know when others wait: those not asked for a seat yet, and those that owe one. */
  readonly #wide = new Set<QueuedRequest>();
  readonly #asked = new Set<QueuedRequest>();
  #entered = 0;
  #draining = false;

  constructor(options: QueueOptions) {
    const { clock, random, config, seats, reusableTokens, isServed = () => true, sessions, learns = true } = options;
    this.#clock = clock;
    this.#isServed = isServed;
    this.load = this.#state = new QueueState(seats);
    this.#forecast = new Forecast(this.#state, config.maxWaitMs);
    this.#overload = new Overload(this.#state, random, learns);
    const expired = (): void => this.#turn(() => undefined);
    this.#sessions = new Sessions(this.#state, this.#forecast, sessions, { clock, expired });
    const parts = { state: this.#state, forecast: this.#forecast, overload: this.#overload };
    const turn = <T>(change: () => T): T => this.#turn(change);
    this.#waits = new WaitTimers(clock, parts, turn, (queued, bound) => {
      const isPromised = bound === 'wait' && this.#sessions.isPromised(queued);
      if (isPromised && this.#sessions.takesPromised(queued)) this.#grant(queued);
      else if (!isPromised || !this.#waits.again(queued)) this.#refuse(queued, bound);
    });
    this.#judge = new Judge({ config, random, sessions: this.#sessions, ...parts });
    this.#choice = new SeatChoice(this.#state, this.#overload, this.#sessions, reusableTokens);
    this.#lent = new LentSeats(
      { clock, config, state: this.#state, judge: this.#judge, sessions: this.#sessions, reusableTokens },
      { turn, enter: (request) => this.enter(request), closedFor: (deadlineAt) => this.#closedFor(deadlineAt) },
      options.headroom ?? 1,
    );
    this.#parts = new PartWaits(this.#state, this.#forecast, this.#judge, {
      clock,
      isServed,
      turn,
      returnSeats: (queued) => this.#returnSeats(queued, queued.seats),
      settle: (queued, outcome) => this.#settle(queued, outcome),
    });
  }

  /** Takes a place, synchronously. */
  enter(request: QueueRequest): Ticket | Refused {
    return this.#turn(() => {
      if (request.lent === true && this.#lent.lends && !this.#draining) return this.#lent.enter(request);
      const account = this.#state.arriving(request);
      const accountClass = account.classFor(request.weight);
      if (this.#draining) return this.#judge.refuse('drain', account, accountClass);
      const claims = this.#sessions.mayHaveSeat(request, account);
      if (!claims) this.#arrived(request, account);
      const verdict = this.#judge.judge(request, account, claims);
      if (verdict.kind === 'refused') return verdict;
      const queued = new QueuedRequest(request, (this.#entered += 1));
      this.#admit(queued, verdict, this.#state.now);
      this.#state.claim(queued, claims);
      this.#overload.hedges.entered(queued);
      return this.#ticketOf(queued);
    });
  }

  /**
   * A replica of the engine became unavailable: none of its seats is granted until `resume`. Waiting requests keep their places and timers.
   * `replica`: its index; absent: the only one.
   */
  pause(replica = 0): void {
    this.#turn(() => {
      this.#sessions.lost(replica);
      this.#state.pause(replica);
    });
  }

  /** A replica is available with this many seats, perhaps of another process. */
  resume(seats: number, replica = 0): void {
    this.#turn(() => {
      this.#sessions.lost(replica);
      this.#state.resume(replica, seats);
    });
  }

  /** Refuses all waiting requests and all that arrive from now on; leases continue. */
  drain(): void {
    this.#draining = true;
    this.#sessions.lost();
    this.#turn(() => this.#refuseWaiting('drain'));
  }

  /** No replica is ready or will be without a new request: refuses all waiting requests. */
  refuseUnserved(): void {
    this.#turn(() => {
      this.#refuseWaiting('no-engine');
      this.#parts.refuseAll('no-engine');
    });
  }

  /** Requests that wait or hold seats, lent ones among them, and those between two parts of their work. */
  get requests(): number {
    return this.#state.waiting + this.#state.busy + this.#lent.present + this.#parts.paused;
  }

  snapshot(): QueueSnapshot {
    return snapshotOf(this.#state, this.#judge);
  }

  /** Names the `most` accounts with the most seat time. More expensive than a snapshot: for pages, not for decisions. */
  report(most: number): QueueReport {
    this.#advance();
    const parts = { sessions: this.#sessions.counts, lent: this.#lent.counts(most) };
    return reportOf(this.#state, this.#judge, this.#overload, parts, most);
  }

  /** One operation: brings the state to the present, changes it, gives free seats out, all at one time. Only here is state changed. */
  #turn<T>(change: () => T): T {
    this.#advance();
    const result = change();
    this.#dispatch();
    this.#lent.dispatch();
    this.#sessions.arm();
    return result;
  }

  #advance(): void {
    const now = this.#clock.now();
    this.#overload.advance(now);
    this.#state.advance(now);
    this.#sessions.advance();
    this.#lent.advance();
  }

  /** Counts a newcomer. */
  #arrived(request: QueueRequest, account: Account): void {
    const accountClass = account.classFor(request.weight);
    this.#overload.arrived(request, account, accountClass);
    for (const extra of this.#overload.surplus(accountClass)) this.#refuse(extra, 'standing');
  }

  /** Gives the free seats to waiting requests. Where requests still wait, asks leases of several seats to return one for each. */
  #dispatch(): void {
    for (let queued = this.#choice.next(); queued !== undefined; queued = this.#choice.next()) {
      // Overload rule "isHopeless".
      if (!queued.betweenTurns && this.#overload.isHopeless(queued)) this.#refuse(queued, 'hopeless');
      else this.#grant(queued);
    }
    if (this.#wide.size === 0 || this.#state.replicas.paused) return;
    for (const queued of this.#wide) {
      if (this.#asked.size >= this.#state.seatableRequests) return;
      this.#wide.delete(queued);
      this.#asked.add(queued);
      queued.recall?.();
    }
  }

  #ticketOf(queued: QueuedRequest): Ticket {
    return {
      outcome: queued.outcome,
      place: () => this.#turn(() => this.#judge.place(queued)),
      ready: (needs) => this.#ready(queued, needs),
      cancel: (cause) => this.#turn(() => this.#cancel(queued, cause === 'disconnected')),
    };
  }

  /** It waits from now on. `enteredAt`: when its caller began to wait, ms. */
  #admit(queued: QueuedRequest, { predictedMs, hasReservation, explores, ...room }: Admitted, enteredAt: number): void {
    for (const other of room.dropped) this.#refuse(other, 'dropped');
    if (room.replaced !== undefined) this.#refuse(room.replaced, 'standing');
    queued.predictedMs = predictedMs;
    queued.hasReservation = hasReservation;
    queued.explores = explores;
    queued.queuedAt = queued.enteredAt = enteredAt;
    this.#state.enter(queued);
    this.#waits.arm(queued);
  }

  #ready(queued: QueuedRequest, needs: SeatNeeds): void {
    queued.needs ??= needs;
    if (queued.phase !== 'unready') return;
    this.#turn(() => {
      queued.readyAt = this.#state.now;
      if (this.#sessions.recognise(queued)) {
        this.#grant(queued);
        return;
      }
      const claimed = queued.claims;
      this.#state.claim(queued, false);
      if (claimed) this.#arrived(queued.request, this.#state.accountOf(queued));
      if ((claimed || this.#judge.outgrew(queued)) && !this.#isAdmittedAgain(queued)) return;
      queued.phase = 'ready';
      this.#state.ready(queued);
    });
  }

  /** Judges a request like a newcomer, now that its prompt is known. If it may not wait, it is refused. */
  #isAdmittedAgain(queued: QueuedRequest): boolean {
    queued.disarm?.();
    this.#state.leave(queued, false);
    const verdict = this.#judge.judge(queued.request, this.#state.accountOf(queued), false, queued);
    if (verdict.kind === 'refused') this.#settle(queued, verdict);
    else this.#admit(queued, verdict, queued.enteredAt);
    return verdict.kind === 'admitted';
  }

  #cancel(queued: QueuedRequest, disconnected: boolean): void {
    const { phase } = queued;
    if (disconnected && phase !== 'over') this.#overload.observePatience(queued, 'left');
    if (!this.#parts.end(queued)) {
      if (phase === 'unready' || phase === 'ready') this.#stopWaiting(queued, false);
      else if (phase === 'granted') this.#returnSeats(queued, 1);
      else return;
    }
    this.#settle(queued, { kind: 'cancelled' });
  }

  /** Counts a seat for it. The outcome is delivered in a microtask. */
  #grant(queued: QueuedRequest): void {
    const { now } = this.#state;
    const isNext = this.#parts.granted(queued);
    queued.phase = 'granted';
    queued.grants += 1;
    queued.waitedMs += now - queued.readyAt;
    queued.seatMs = 0;
    queued.grantedAt = now;
    queued.hadSeat = this.#sessions.granted(queued);
    this.#state.hold(queued, 1);
    this.#stopWaiting(queued, true);
    if (!queued.hadSeat) this.#givenToWaiting(queued, isNext);
    queueMicrotask(() => this.#deliverOnce(queued));
  }

  /** Delivers its outcome, once the engine has stopped as many recalled jobs as its seat needs. */
  #deliverOnce(queued: QueuedRequest): void {
    if (queued.phase !== 'granted') return;
    const stopping = this.#lent.seated(queued);
    if (stopping === undefined) this.#turn(() => this.#deliver(queued));
    else void stopping.then(() => this.#deliverOnce(queued));
  }

  /** Counts a seat that was given to one of those who wait, and was not kept for it. `isNext`: for a later part of its work. */
  #givenToWaiting(queued: QueuedRequest, isNext: boolean): void {
    const { now } = this.#state;
    const accountClass = this.#state.classOf(queued);
    if (!isNext) this.#overload.seated(accountClass);
    accountClass.serviceRate.seated(now, now - queued.readyAt, accountClass.users.head !== undefined);
    this.#forecast.seated(queued);
  }

  #deliver(queued: QueuedRequest): void {
    if (!this.#state.replicas.isUp(queued.replica)) {
      this.#waitAgain(queued);
      return;
    }
    queued.phase = 'leased';
    queued.settle({ kind: 'seated', lease: this.#leaseOf(queued) });
  }

  #leaseOf(queued: QueuedRequest): Lease {
    const { grants } = queued;
    // A request that waited again may have another lease by now.
    const isHeld = (): boolean => queued.phase === 'leased' && queued.grants === grants;
    const hasSeveral = (): boolean => isHeld() && queued.seats > 1;
    let again: Promise<TicketOutcome> | undefined;
    const waitAgain = (begin: () => Promise<TicketOutcome>): Promise<TicketOutcome> => {
      if (isHeld()) again = this.#turn(begin);
      return again ?? Promise.resolve({ kind: 'cancelled' });
    };
    return {
      seats: () => (isHeld() ? queued.seats : 0),
      replica: queued.replica,
      waitedMs: queued.waitedMs,
      predictedMs: queued.predictedMs,
      lent: false,
      claims: this.#sessions.claimsAt(queued.replica, queued.session),
      takeSeat: () => isHeld() && this.#turn(() => this.#takeSeat(queued)),
      freeSeat: () => {
        if (hasSeveral()) this.#turn(() => this.#returnSeats(queued, 1));
      },
      whenWanted: (fn) => {
        if (!hasSeveral()) return;
        queued.recall = fn;
        this.#asked.delete(queued);
        this.#wide.add(queued);
      },
      whenRecalled: () => undefined,
      begun: () => {
        if (isHeld()) this.#turn(() => this.#overload.observePatience(queued, 'answered'));
      },
      prefilled: (ms, cachedTokens) => {
        if (isHeld()) this.#sessions.prefilled(queued, ms, cachedTokens);
      },
      observeTokenMs: (ms) => {
        if (isHeld()) this.#state.replicas.observeTokenMs(queued.replica, ms);
      },
      release: (reason) => {
        if (isHeld()) this.#turn(() => this.#release(queued, reason));
      },
      nextTurn: (after) => waitAgain(() => this.#parts.begin(queued, after)),
      giveBack: () => waitAgain(() => this.#giveBack(queued)),
    };
  }

  #takeSeat(queued: QueuedRequest): boolean {
    // No waiting request is passed over: while a seat is free, each request that could take it was given one.
    const isFree = this.#state.replicas.freeSeatsAt(queued.replica) > 0;
    if (!isFree || queued.seats >= queued.request.seatsWanted) return false;
    this.#state.hold(queued, 1);
    return true;
  }

  /** Returns seats of a request: the only place that does. If it keeps several, it may be asked for a seat again. */
  #returnSeats(queued: QueuedRequest, count: number): void {
    this.#state.hold(queued, -count);
    if (queued.recall === undefined) return;
    this.#asked.delete(queued);
    if (queued.seats > 1) this.#wide.add(queued);
    else {
      this.#wide.delete(queued);
      queued.recall = undefined;
    }
  }

  #release(queued: QueuedRequest, reason: ReleaseReason): void {
    this.#returnSeats(queued, queued.seats);
    this.#state.countReleased(reason);
    const isKept = this.#sessions.ended(queued, reason, !this.#draining);
    if (isMeasurement(reason)) {
      this.#overload.leaseEnded(queued, PATIENCE_AT_END[reason] ?? 'neither');
      this.#forecast.leaseEnded(queued, reason);
      const account = this.#state.accountOf(queued);
      if (!isKept) this.#forecast.seatUsed(account, account.classFor(queued.request.weight), queued.seatMs, true);
    }
    this.#end(queued);
  }

  #giveBack(queued: QueuedRequest): Promise<TicketOutcome> {
    const outcome = queued.awaitAgain();
    this.#state.countReleased('given-back');
    queued.returns += 1;
    this.#waitAgain(queued, queued.returns > this.#state.replicas.all.length ? 'engine-lost' : undefined);
    return outcome;
  }

  /** Returns its seats and puts it before all others, or refuses it; it keeps its deadline and its waiting time. */
  #waitAgain(queued: QueuedRequest, lost?: RefusalReason): void {
    const { now } = this.#state;
    const refused = lost ?? this.#closedFor(queued.request.deadlineAt);
    if (refused === undefined) {
      queued.phase = 'ready';
      queued.readyAt = queued.queuedAt = now;
      this.#sessions.waitsAgain(queued);
      this.#state.waitsAgain(queued);
      this.#waits.arm(queued);
    } else this.#settle(queued, this.#judge.refuseWaiting(queued, refused));
    this.#returnSeats(queued, queued.seats);
  }

  /** Why a request with this deadline may not wait again; undefined if it may. */
  #closedFor(deadlineAt = Infinity): RefusalReason | undefined {
    if (deadlineAt <= this.#state.now) return 'deadline';
    return this.#draining ? 'drain' : this.#isServed() ? undefined : 'no-engine';
  }

  /** It waits no more. `seated`: it was given a seat. */
  #stopWaiting(queued: QueuedRequest, seated: boolean): void {
    this.#waits.disarm(queued);
    this.#state.leave(queued, seated);
  }

  #refuseWaiting(reason: RefusalReason): void {
    for (let queued = this.#state.anyWaiting; queued; queued = this.#state.anyWaiting) this.#refuse(queued, reason);
    this.#lent.refuseWaiting(reason);
  }

  #refuse(queued: QueuedRequest, reason: RefusalReason): void {
    this.#overload.observePatience(queued, 'neither');
    this.#stopWaiting(queued, false);
    this.#settle(queued, this.#judge.refuseWaiting(queued, reason));
  }

  #settle(queued: QueuedRequest, outcome: TicketOutcome): void {
    this.#sessions.stopped(queued);
    this.#end(queued);
    queued.settle(outcome);
  }

  #end(queued: QueuedRequest): void {
    queued.phase = 'over';
    this.#overload.hedges.over(queued);
    this.#lent.ended(queued);
  }
}
