/**
 * Who gets the next seat. Fair between accounts, honest about waits, bounded.
 *
 * Fair queuing (A. Demers, S. Keshav, S. Shenker, 1989; for seats: Kubernetes API Priority and Fairness) by a counter
 * that is charged as service happens (VTC: Y. Sheng et al., OSDI 2024). An account's virtual time V grows by
 * seats held x time / weight; the lowest V is served next. Seat time charges long prompts and long replies without
 * guessing a price. One that begins to wait is lifted to where the queue stands (accounts.ts), so nothing is saved up by
 * staying away. Between accounts that always have somebody waiting, V differs by no more than 2 x seats x the longest hold
 * time / weight, plus what prefix affinity may take out of turn (affinity.ts), whatever the load.
 *
 * A request is refused on arrival when it would wait for nothing: the predicted wait Ŵ (forecast.ts) is held against
 * B = min(longest wait, deadline - now - H), with H what a request of its account takes (early rejection: Mooncake, FAST
 * 2025). The predictions for each class of an account are corrected by its own hits and misses, so that about 2 in 100 of
 * those let in wait in vain. Where a seat is free for the newcomer Ŵ is 0 and nobody is refused, however wrong H may be; nor is anybody
 * before the first lease has ended, since nothing can be foretold then.
 *
 * A full room makes place by dropping the newest request of whoever has most waiting (longest-queue drop: P. McKenney,
 * 1991), so an account that floods it pushes out itself. Between the classes of an account: account.ts, drop.ts; inside a
 * class: user-round-robin.ts.
 *
 *     enter ─> unready ──ready()──> ready ──a seat──> granted ──next microtask──> leased ──release()──> over
 *                                     ^                  │ pause()                   │
 *                                     └──── returned <───┴──────── giveBack() ───────┘  (once; stands before all others)
 *
 * A request that may use several seats takes the free ones that nobody waits for. When others come, such leases are asked for
 * a seat each, no more than wait, and again once that is back: what was begun there ends first, nothing new begins.
 *
 * Only the ready are in line for seats, so one whose checks take long, or that turns out too large, blocks nobody. State
 * changes at once, outcomes are told one microtask later; a cancel or a lost engine in between takes the seat back and no
 * lease ever comes to be. From delivery on, whoever awaits the outcome holds the lease and must end it: await the outcome
 * itself and never race it, since cancel() makes it settle.
 *
 * Bounds: `waitingPerSeat` times seats requests and `waitingBytes` bytes wait (returned ones, at most one a lease, may
 * pass both, for they were let in before; a body over the cap may wait alone, so bytes pass it by one body); one timer a
 * waiting request; MAX_ACCOUNTS accounts; one ask a lease of several seats. Operations are O(log n + seats) but for prediction, drop and affinity, which pass over the active accounts (bench/results/admission-operations.md).
 */
import type { Clock } from '../lib/clock.js';
import { choose, type Shares } from './affinity.js';
import { QueueState } from './queue-state.js';
import type { FairQueueOptions } from './fair-queue-options.js';
import { AdmissionPolicy } from './admission-policy.js';
import { QueuedRequest, type RequestQueue } from './queued-request.js';
import { Overload } from './overload.js';
import { reportOf, snapshotOf } from './report.js';
import { SeatLease, type SeatPool } from './seat-lease.js';
import type {
  QueueRequest,
  FairSeatQueue,
  QueueLoad,
  QueueReport,
  QueueSnapshot,
  Refused,
  RefusalReason,
  ReleaseReason,
  Ticket,
  TicketOutcome,
} from './seat-queue.js';
import { WideLeases } from './wide-leases.js';

/** Leases that end as their callers or their work would have it. */
const TELLING: ReadonlySet<ReleaseReason> = new Set(['done', 'cancelled', 'deadline']);

/** Makes an empty queue. */
export function createFairQueue(options: FairQueueOptions): FairSeatQueue {
  return new FairQueue(options);
}

class FairQueue implements FairSeatQueue, RequestQueue, SeatPool {
  readonly #clock: Clock;
  readonly #maxWaitMs: number;
  readonly #shares: Shares | undefined;
  readonly #state: QueueState;
  readonly #policy: AdmissionPolicy;
  readonly #overload: Overload;
  readonly #wide = new WideLeases();
  #entered = 0;
  #draining = false;

  constructor({ clock, random, config, seats, shares }: FairQueueOptions) {
    this.#clock = clock;
    this.#maxWaitMs = config.maxWaitMs;
    this.#state = new QueueState(seats);
    this.#overload = new Overload(this.#state, config, random);
    this.#policy = new AdmissionPolicy(this.#state, config, random, this.#overload);
    this.#shares = shares;
  }

  enter(request: QueueRequest): Ticket | Refused {
    const now = this.#accrue();
    const account = this.#state.accounts.arriving(request.account, request.weight);
    if (this.#draining) return this.#policy.refuse('drain', account, account.classFor(request.weight));
    this.#overload.came(request, account);
    const verdict = this.#policy.judge(request, account, now);
    if (verdict.kind === 'refused') return verdict;
    for (const queued of verdict.dropped) this.#refuse(queued, 'dropped');
    this.#entered += 1;
    const queued = new QueuedRequest(this, request, this.#entered);
    queued.predictedMs = verdict.predictedMs;
    queued.queuedAt = queued.enteredAt = now;
    this.#overload.entered(queued);
    this.#state.enter(queued);
    this.#arm(queued);
    return queued;
  }

  pause(): void {
    this.#accrue();
    this.#state.pause(true);
    this.#state.accounts.active.each(({ classes }) => {
      for (const { serviceRate } of classes) serviceRate.rest();
    });
  }

  resume(seats: number): void {
    this.#accrue();
    this.#state.seats = seats;
    this.#state.pause(false);
    this.#dispatch();
  }

  drain(): void {
    this.#accrue();
    this.#draining = true;
    for (let queued = this.#state.anyone; queued !== undefined; queued = this.#state.anyone)
      this.#refuse(queued, 'drain');
  }

  get load(): QueueLoad {
    return this.#state;
  }

  snapshot(): QueueSnapshot {
    return snapshotOf(this.#state, this.#policy.refused);
  }

  report(most: number): QueueReport {
    this.#accrue();
    return reportOf(this.snapshot(), this.#state.accounts, most, (account, of) => this.#policy.predict(account, of));
  }

  // Desk: what tickets ask for.

  ready(queued: QueuedRequest): void {
    if (queued.phase !== 'unready') return;
    queued.readyAt = this.#accrue();
    queued.phase = 'ready';
    this.#state.ready(queued);
    this.#dispatch();
  }

  cancel(queued: QueuedRequest, left: boolean): void {
    this.#accrue();
    const waits = queued.phase === 'ready' || queued.phase === 'unready' || queued.phase === 'granted';
    if (left && waits) this.#overload.settled(queued, this.#state.accountOf(queued), true);
    if (queued.phase === 'unready' || queued.phase === 'ready') this.#leave(queued, 'nowhere');
    else if (queued.phase === 'granted') this.#state.hold(queued, -1);
    else return;
    this.#settle(queued, { kind: 'cancelled' });
    this.#dispatch();
  }

  // Bank: what leases ask for.

  take(queued: QueuedRequest): boolean {
    this.#accrue();
    // Nobody in line is passed: while a seat is free, whoever could take it has been given one.
    if (this.#state.free < 1) return false;
    this.#state.hold(queued, 1);
    return true;
  }

  put(queued: QueuedRequest): void {
    this.#accrue();
    this.#state.hold(queued, -1);
    this.#dispatch();
  }

  watch(recall: () => void): void {
    this.#wide.watch(recall);
  }

  forget(recall: () => void): void {
    this.#wide.forget(recall);
  }

  begun(queued: QueuedRequest): void {
    this.#accrue();
    this.#overload.settled(queued, this.#state.accountOf(queued), false);
  }

  end(queued: QueuedRequest, seats: number, grantedAt: number, reason: ReleaseReason): void {
    const heldMs = this.#accrue() - grantedAt;
    const account = this.#state.accountOf(queued);
    this.#state.hold(queued, -seats);
    if (TELLING.has(reason)) {
      this.#overload.held(queued.seatMs);
      this.#overload.settled(queued, account, reason === 'cancelled');
    }
    queued.phase = 'over';
    this.#overload.over(queued);
    this.#state.count(reason);
    this.#policy.forecast.ended(queued, account, { reason, heldMs, unbroken: this.#state.unbroken(queued) });
    this.#dispatch();
  }

  takeBack(queued: QueuedRequest, seats: number): Promise<TicketOutcome> {
    this.#accrue();
    const outcome = queued.promise();
    this.#state.count('given-back');
    const lost = queued.returned ? 'engine-lost' : undefined;
    queued.returned = true;
    this.#comeBack(queued, seats, lost);
    this.#dispatch();
    return outcome;
  }

  /** The clock is read here alone, once in an operation: what happens in it happens at one time. */
  #accrue(): number {
    const now = this.#clock.now();
    this.#overload.passed(now);
    this.#state.accrue(now);
    return now;
  }

  #dispatch(): void {
    const { now, accounts } = this.#state;
    const { seatable } = accounts;
    const measures = { usualMs: this.#policy.forecast.usualMs, maxWaitMs: this.#maxWaitMs };
    while (this.#state.free > 0) {
      const queued = this.#state.returned ?? choose(seatable, measures, this.#shares);
      if (queued === undefined) return;
      if (this.#overload.hopeless(queued, this.#state.accountOf(queued), now)) {
        this.#refuse(queued, 'hopeless');
        continue;
      }
      queued.phase = 'granted';
      queued.waitedMs += now - queued.readyAt;
      queued.seatMs = 0;
      queued.grantedAt = now;
      this.#state.hold(queued, 1);
      this.#leave(queued, 'seat');
      const of = this.#state.classOf(queued);
      of.serviceRate.seated(now, now - queued.readyAt, of.users.head !== undefined);
      this.#policy.forecast.waited(queued, of, false);
      queueMicrotask(() => this.#deliver(queued));
    }
    if (!this.#state.paused) this.#wide.recall(this.#state.seatable);
  }

  #deliver(queued: QueuedRequest): void {
    if (queued.phase !== 'granted') return;
    const now = this.#accrue();
    if (this.#state.paused) {
      this.#comeBack(queued, 1);
      return;
    }
    queued.phase = 'leased';
    queued.settle({ kind: 'seated', lease: new SeatLease(this, queued, now) });
  }

  /** Its seats back, and it to the head of the line, with its deadline and the time already waited kept. */
  #comeBack(queued: QueuedRequest, seats: number, lost?: RefusalReason): void {
    const { now } = this.#state;
    const late = (queued.request.deadlineAt ?? Infinity) <= now ? 'deadline' : undefined;
    const refused = lost ?? late ?? (this.#draining ? 'drain' : undefined);
    if (refused === undefined) {
      queued.phase = 'ready';
      queued.readyAt = now;
      queued.queuedAt = now;
      this.#state.comeBack(queued);
      this.#arm(queued);
    } else
      this.#settle(queued, this.#policy.refuse(refused, this.#state.accountOf(queued), this.#state.classOf(queued)));
    this.#state.hold(queued, -seats);
  }

  #leave(queued: QueuedRequest, to: 'seat' | 'nowhere'): void {
    queued.disarm?.();
    queued.disarm = undefined;
    queued.queuedMs += this.#state.now - queued.queuedAt;
    this.#state.leave(queued, to);
  }

  /** One timer for what comes first: the end of the longest wait or the request's own deadline. */
  #arm(queued: QueuedRequest): void {
    const wantedIn = (queued.request.wantedUntil ?? Infinity) - this.#state.now;
    const deadlineIn = (queued.request.deadlineAt ?? Infinity) - this.#state.now;
    const waitIn = this.#maxWaitMs - queued.queuedMs;
    const least = Math.min(deadlineIn, waitIn, wantedIn);
    const reason = deadlineIn === least ? 'deadline' : waitIn === least ? 'wait' : 'hopeless';
    queued.disarm = this.#clock.after(least, () => {
      this.#accrue();
      // A wait that a lost engine or slow checks made too long says nothing of predictions.
      const telling = queued.phase === 'ready' && this.#state.unbroken(queued);
      if (telling) this.#policy.forecast.waited(queued, this.#state.classOf(queued), true);
      this.#refuse(queued, reason);
    });
  }

  #refuse(queued: QueuedRequest, reason: RefusalReason): void {
    const [account, of] = [this.#state.accountOf(queued), this.#state.classOf(queued)];
    this.#overload.settled(queued, account, false);
    this.#leave(queued, 'nowhere');
    this.#settle(queued, this.#policy.refuse(reason, account, of));
  }

  #settle(queued: QueuedRequest, outcome: TicketOutcome): void {
    queued.phase = 'over';
    this.#overload.over(queued);
    queued.settle(outcome);
  }
}
