/**
 * Chooses the request that gets the next seat: fair between accounts, with a prediction of each wait, and bounded.
 *
 * Fair queuing (A. Demers, S. Keshav, S. Shenker, 1989; for seats: Kubernetes API Priority and Fairness) by a counter
 * that is charged as service happens (VTC: Y. Sheng et al., OSDI 2024). An account's virtual time V grows by seats held
 * x time / weight; the lowest V is served next. Seat time charges long prompts and long replies without a guess of their
 * price. An account that begins to wait is lifted to the others' V (accounts.ts), so it gains nothing while it is
 * idle. Between accounts that always have a request waiting, V differs by no more than 2 x seats x the longest hold time
 * / weight, plus what prefix affinity may take out of turn (next-request.ts), at any load.
 *
 * A request whose predicted wait (forecast.ts) exceeds min(longest wait, deadline - now - usual hold time) is refused on
 * arrival (early rejection: Mooncake, FAST 2025). Each class of an account corrects its predictions by their outcomes, so
 * that about 2 in 100 of the admitted wait too long. While a seat is free for it, or before the first lease has ended, no
 * request is refused by a prediction. One that turns out to need a longer seat than the free ones is judged again. Overload:
 * overload.ts. A full queue drops the newest request of the account with most waiting (longest-queue drop: P. McKenney, 1991), or
 * where all have one that of the account with the most seat time.
 * Between the classes of an account: account.ts, drop.ts; inside a class: user-round-robin.ts.
 *
 *     enter -> unready --ready()--> ready --a seat--> granted --next microtask--> leased --release()--> over
 *                                     ^                  | pause()                   |
 *                                     +---- returned <---+-------- giveBack() -------+  (before all others)
 *
 * Only ready requests are given seats, so one whose checks take long, or that turns out too large, blocks no other. The
 * state changes at once; outcomes are delivered one microtask later, and a cancel or a lost engine in between takes the
 * seat back. From delivery on, the code that awaits the outcome owns the lease and must end it: it awaits the outcome itself
 * and never races it, since cancel() settles it.
 *
 * Bounds: `waitingPerSeat` times seats requests and `waitingBytes` bytes wait (returned ones, at most one a lease, may exceed both; a
 * body over the cap may wait if no other does); one timer a waiting request; MAX_ACCOUNTS accounts; one recall a lease of several seats.
 * Operations are O(log n + seats) but for prediction, drop and affinity, which pass over the active accounts
 * (bench/results/admission-operations.md), and for a head that no free seat is long enough for (next-request.ts). Replicas: placement.ts.
 */
import type { Clock } from '../lib/clock.js';
import { QueueState } from './queue-state.js';
import type { FairQueueOptions } from './fair-queue-options.js';
import { AdmissionPolicy, type Admitted } from './admission-policy.js';
import { QueuedRequest, type RequestQueue } from './queued-request.js';
import { Overload } from './overload.js';
import { reportOf, snapshotOf } from './report.js';
import { LeasedSeats } from './leased-seats.js';
import { Seating } from './seating.js';
import { SeatLease } from './seat-lease.js';
import { WaitTimer, type WaitEnd } from './wait-timer.js';
import type {
  QueueRequest,
  SeatQueue,
  QueueLoad,
  QueueReport,
  QueueSnapshot,
  Refused,
  RefusalReason,
  Ticket,
  TicketOutcome,
} from './seat-queue.js';

/** Makes an empty queue. */
export function createFairQueue(options: FairQueueOptions): SeatQueue {
  return new FairQueue(options);
}

class FairQueue implements SeatQueue, RequestQueue {
  readonly #clock: Clock;
  readonly #state: QueueState;
  readonly #policy: AdmissionPolicy;
  readonly #overload: Overload;
  readonly #leased: LeasedSeats;
  readonly #seating: Seating;
  readonly #timer: WaitTimer;
  readonly #comes: () => boolean;
  #entered = 0;
  #draining = false;

  constructor({ clock, random, config, seats, reusableTokens, comes = () => true, learns = true }: FairQueueOptions) {
    this.#clock = clock;
    this.#comes = comes;
    this.#state = new QueueState(seats);
    this.#overload = new Overload(this.#state, random, learns);
    this.#policy = new AdmissionPolicy(this.#state, config, random, this.#overload);
    this.#seating = new Seating(this.#state, this.#overload, reusableTokens);
    const queue = {
      accrue: () => this.#accrue(),
      dispatch: () => this.#dispatch(),
      returned: this.#returned.bind(this),
      timedOut: this.#timedOut.bind(this),
    };
    this.#timer = new WaitTimer(clock, config.maxWaitMs, this.#state, this.#overload, queue);
    this.#leased = new LeasedSeats(queue, this.#state, this.#overload, this.#policy.forecast);
  }

  enter(request: QueueRequest): Ticket | Refused {
    const now = this.#accrue();
    const account = this.#state.accounts.arriving(request.account, request.weight);
    const accountClass = account.classFor(request.weight);
    if (this.#draining) return this.#policy.refuse('drain', account, accountClass);
    this.#overload.arrived(request, account, accountClass);
    for (const extra of this.#overload.surplus(accountClass)) this.#refuse(extra, 'standing');
    const verdict = this.#policy.judge(request, account, now);
    if (verdict.kind === 'refused') return verdict;
    const queued = new QueuedRequest(this, request, (this.#entered += 1));
    this.#admit(queued, verdict, now);
    this.#overload.entered(queued);
    return queued;
  }

  pause(replica = 0): void {
    this.#accrue();
    this.#state.pause(replica);
  }

  resume(seats: number, replica = 0): void {
    this.#accrue();
    this.#state.resume(replica, seats);
    this.#dispatch();
  }

  drain(): void {
    this.#accrue();
    this.#draining = true;
    this.#refuseWaiting('drain');
  }

  refuseUnserved(): void {
    this.#accrue();
    this.#refuseWaiting('no-engine');
  }

  get load(): QueueLoad {
    return this.#state;
  }

  snapshot(): QueueSnapshot {
    return snapshotOf(this.#state, this.#policy.refused);
  }

  report(most: number): QueueReport {
    this.#accrue();
    return reportOf(this.#state, this.#policy, most);
  }

  // RequestQueue: called by tickets.

  ready(queued: QueuedRequest): void {
    if (queued.phase !== 'unready') return;
    queued.readyAt = this.#accrue();
    if (this.#policy.outgrew(queued) && !this.#judgedAgain(queued)) return;
    queued.phase = 'ready';
    this.#state.ready(queued);
    this.#dispatch();
  }

  cancel(queued: QueuedRequest, disconnected: boolean): void {
    this.#accrue();
    const { phase } = queued;
    if (disconnected && phase !== 'over') this.#overload.observePatience(queued, this.#state.accountOf(queued), 'left');
    if (phase === 'unready' || phase === 'ready') this.#leave(queued, 'nowhere');
    else if (phase === 'granted') this.#state.hold(queued, -1);
    else return;
    this.#settle(queued, { kind: 'cancelled' });
    this.#dispatch();
  }

  /** Reads the clock, once in an operation, so that everything in it happens at one time. */
  #accrue(): number {
    const now = this.#clock.now();
    this.#overload.passed(now);
    this.#state.accrue(now);
    return now;
  }

  /** It waits from now on. `enteredAt`: when its caller began to wait, ms. */
  #admit(queued: QueuedRequest, verdict: Admitted, enteredAt: number): void {
    for (const other of verdict.dropped) this.#refuse(other, 'dropped');
    if (verdict.replaced !== undefined) this.#refuse(verdict.replaced, 'standing');
    queued.admit(verdict, enteredAt);
    this.#state.enter(queued);
    this.#timer.arm(queued);
  }

  /** Judges a request like a newcomer, now that its length is known. Whether it may still wait; if not, it is refused. */
  #judgedAgain(queued: QueuedRequest): boolean {
    const account = this.#state.accountOf(queued);
    queued.disarm?.();
    this.#state.leave(queued, 'nowhere');
    const verdict = this.#policy.judge(queued.request, account, this.#state.now, queued);
    if (verdict.kind === 'refused') this.#settle(queued, verdict);
    else this.#admit(queued, verdict, queued.enteredAt);
    return verdict.kind === 'admitted';
  }

  #dispatch(): void {
    const { now } = this.#state;
    for (;;) {
      const queued = this.#seating.next(this.#policy.measures);
      if (queued === undefined) break;
      if (this.#overload.isHopeless(queued, this.#state.accountOf(queued), now)) {
        this.#refuse(queued, 'hopeless');
        continue;
      }
      queued.grant(now);
      this.#state.hold(queued, 1);
      this.#leave(queued, 'seat');
      this.#policy.seated(queued);
      queueMicrotask(() => this.#deliver(queued));
    }
    if (!this.#state.paused) this.#leased.recall();
  }

  #deliver(queued: QueuedRequest): void {
    if (queued.phase !== 'granted') return;
    const now = this.#accrue();
    if (!this.#state.replicas.isUp(queued.replica)) {
      this.#returned(queued, 1);
      this.#dispatch();
      return;
    }
    queued.phase = 'leased';
    queued.settle({ kind: 'seated', lease: new SeatLease(this.#leased, queued, now) });
  }

  /** Frees its seats and puts it before all others; it keeps its deadline and its waiting time. */
  #returned(queued: QueuedRequest, seats: number, lost?: RefusalReason): void {
    const { now } = this.#state;
    const late = (queued.request.deadlineAt ?? Infinity) <= now ? 'deadline' : undefined;
    const ended = this.#draining ? 'drain' : this.#comes() ? undefined : 'no-engine';
    const refused = lost ?? late ?? ended;
    if (refused === undefined) {
      queued.phase = 'ready';
      queued.readyAt = queued.queuedAt = now;
      this.#state.returned(queued);
      this.#timer.arm(queued);
    } else this.#settle(queued, this.#policy.refuseWaiting(queued, refused));
    this.#state.hold(queued, -seats);
  }

  #leave(queued: QueuedRequest, to: 'seat' | 'nowhere'): void {
    queued.disarm?.();
    queued.disarm = undefined;
    queued.inQueueMs += this.#state.now - queued.queuedAt;
    this.#state.leave(queued, to);
  }

  #timedOut(queued: QueuedRequest, reason: WaitEnd, mispredicted: boolean): void {
    if (mispredicted) this.#policy.forecast.waited(queued, this.#state.classOf(queued), true);
    this.#refuse(queued, reason);
  }

  #refuseWaiting(reason: RefusalReason): void {
    for (let queued = this.#state.anyWaiting; queued; queued = this.#state.anyWaiting) this.#refuse(queued, reason);
  }

  #refuse(queued: QueuedRequest, reason: RefusalReason): void {
    this.#overload.observePatience(queued, this.#state.accountOf(queued), 'neither');
    this.#leave(queued, 'nowhere');
    this.#settle(queued, this.#policy.refuseWaiting(queued, reason));
  }

  #settle(queued: QueuedRequest, outcome: TicketOutcome): void {
    queued.phase = 'over';
    this.#overload.over(queued);
    queued.settle(outcome);
  }
}
