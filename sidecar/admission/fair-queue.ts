/**
 * Who gets the next seat. Fair between tenants, honest about waits, bounded.
 *
 * Fair queuing (A. Demers, S. Keshav, S. Shenker, 1989; for seats: Kubernetes API Priority and Fairness) by a counter
 * that is charged as service happens (VTC: Y. Sheng et al., OSDI 2024). A tenant's virtual time V grows by
 * seats held x time / weight; the lowest V is served next. Seat time charges long prompts and long replies without
 * guessing a price. One that begins to wait is lifted to where the queue stands (tenants.ts), so nothing is saved up by
 * staying away. Between tenants that always have somebody waiting, V differs by no more than 2 x seats x the longest hold
 * time / weight, plus what prefix affinity may take out of turn (affinity.ts), whatever the load.
 *
 * A request is refused on arrival when it would wait for nothing: the predicted wait Ŵ (forecast.ts) is held against
 * B = min(longest wait, deadline - now - H), with H what a request of its tenant takes (early rejection: Mooncake, FAST
 * 2025). The predictions for each class of a tenant are corrected by its own hits and misses, so that about 2 in 100 of
 * those let in wait in vain. Where a seat is free for the newcomer Ŵ is 0 and nobody is refused, however wrong H may be; nor is anybody
 * before the first lease has ended, since nothing can be foretold then.
 *
 * A full room makes place by dropping the newest request of whoever has most waiting (longest-queue drop: P. McKenney,
 * 1991), so a tenant that floods it pushes out itself. Between the classes of a tenant: tenant.ts, drop.ts; inside a
 * class: turns.ts.
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
 * waiting request; MAX_TENANTS tenants; one ask a lease of several seats. Operations are O(log n + seats) but for prediction, drop and affinity, which pass over the active tenants (bench/results/admission-operations.md).
 */
import type { Clock } from '../lib/clock.js';
import { choose, type Shares } from './affinity.js';
import { Books } from './queue-state.js';
import type { FairQueueOptions } from './fair-queue-options.js';
import { Gate } from './admission-policy.js';
import { Place, type Desk } from './queued-request.js';
import { reportOf, snapshotOf } from './report.js';
import { SeatLease, type Bank } from './seat-lease.js';
import type {
  Entry,
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

/** Makes an empty queue. */
export function createFairQueue(options: FairQueueOptions): FairSeatQueue {
  return new FairQueue(options);
}

class FairQueue implements FairSeatQueue, Desk, Bank {
  readonly #clock: Clock;
  readonly #maxWaitMs: number;
  readonly #shares: Shares | undefined;
  readonly #books: Books;
  readonly #gate: Gate;
  /** Leases of several seats, at most one for two seats: those that nobody asked for one yet, and those that owe one. */
  readonly #wide = new Set<() => void>();
  readonly #asked = new Set<() => void>();
  #entered = 0;
  #draining = false;

  constructor({ clock, random, config, seats, shares }: FairQueueOptions) {
    this.#clock = clock;
    this.#maxWaitMs = config.maxWaitMs;
    this.#books = new Books(seats);
    this.#gate = new Gate(this.#books, config, random);
    this.#shares = shares;
  }

  enter(entry: Entry): Ticket | Refused {
    const now = this.#accrue();
    const tenant = this.#books.tenants.arriving(entry.tenant, entry.weight);
    if (this.#draining) return this.#gate.refuse('drain', tenant, tenant.classFor(entry.weight));
    const verdict = this.#gate.judge(entry, tenant, now);
    if (verdict.kind === 'refused') return verdict;
    for (const place of verdict.dropped) this.#refuse(place, 'dropped');
    this.#entered += 1;
    const place = new Place(this, entry, this.#entered);
    place.predictedMs = verdict.predictedMs;
    place.queuedAt = now;
    this.#books.enter(place);
    this.#arm(place);
    return place;
  }

  pause(): void {
    this.#accrue();
    this.#books.pause(true);
    this.#books.tenants.active.each(({ classes }) => {
      for (const { pace } of classes) pace.rest();
    });
  }

  resume(seats: number): void {
    this.#accrue();
    this.#books.seats = seats;
    this.#books.pause(false);
    this.#dispatch();
  }

  drain(): void {
    this.#accrue();
    this.#draining = true;
    for (let place = this.#books.anyone; place !== undefined; place = this.#books.anyone) this.#refuse(place, 'drain');
  }

  get load(): QueueLoad {
    return this.#books;
  }

  snapshot(): QueueSnapshot {
    return snapshotOf(this.#books, this.#gate.refused);
  }

  report(most: number): QueueReport {
    this.#accrue();
    return reportOf(this.snapshot(), this.#books.tenants, most, (tenant, of) => this.#gate.predict(tenant, of));
  }

  // Desk: what tickets ask for.

  ready(place: Place): void {
    if (place.phase !== 'unready') return;
    place.readyAt = this.#accrue();
    place.phase = 'ready';
    this.#books.ready(place);
    this.#dispatch();
  }

  cancel(place: Place): void {
    this.#accrue();
    if (place.phase === 'unready' || place.phase === 'ready') this.#leave(place, 'nowhere');
    else if (place.phase === 'granted') this.#books.hold(place, -1);
    else return;
    this.#settle(place, { kind: 'cancelled' });
    this.#dispatch();
  }

  // Bank: what leases ask for.

  take(place: Place): boolean {
    this.#accrue();
    // Nobody in line is passed: while a seat is free, whoever could take it has been given one.
    if (this.#books.free < 1) return false;
    this.#books.hold(place, 1);
    return true;
  }

  put(place: Place): void {
    this.#accrue();
    this.#books.hold(place, -1);
    this.#dispatch();
  }

  watch(recall: () => void): void {
    this.#asked.delete(recall);
    this.#wide.add(recall);
  }

  forget(recall: () => void): void {
    this.#asked.delete(recall);
    this.#wide.delete(recall);
  }

  end(place: Place, seats: number, grantedAt: number, reason: ReleaseReason): void {
    const heldMs = this.#accrue() - grantedAt;
    const tenant = this.#books.tenantOf(place);
    place.phase = 'over';
    this.#books.hold(place, -seats);
    this.#books.count(reason);
    this.#gate.forecast.ended(place, tenant, { reason, heldMs, unbroken: this.#books.unbroken(place) });
    this.#dispatch();
  }

  takeBack(place: Place, seats: number): Promise<TicketOutcome> {
    this.#accrue();
    const outcome = place.promise();
    this.#books.count('given-back');
    const lost = place.returned ? 'engine-lost' : undefined;
    place.returned = true;
    this.#comeBack(place, seats, lost);
    this.#dispatch();
    return outcome;
  }

  /** The clock is read here alone, once in an operation: what happens in it happens at one time. */
  #accrue(): number {
    const now = this.#clock.now();
    this.#books.accrue(now);
    return now;
  }

  #dispatch(): void {
    const { now, tenants } = this.#books;
    const { seatable } = tenants;
    const measures = { usualMs: this.#gate.forecast.usualMs, maxWaitMs: this.#maxWaitMs };
    while (this.#books.free > 0) {
      const place = this.#books.returned ?? choose(seatable, measures, this.#shares);
      if (place === undefined) return;
      place.phase = 'granted';
      place.waitedMs += now - place.readyAt;
      place.seatMs = 0;
      this.#books.hold(place, 1);
      this.#leave(place, 'seat');
      const of = this.#books.classOf(place);
      of.pace.seated(now, now - place.readyAt, of.turns.head !== undefined);
      this.#gate.forecast.waited(place, of, false);
      queueMicrotask(() => this.#deliver(place));
    }
    this.#recall();
  }

  /** No seat is free: of those who hold several, as many are asked for one as requests wait for it. */
  #recall(): void {
    if (this.#books.paused) return;
    for (const recall of this.#wide) {
      if (this.#asked.size >= this.#books.seatable) return;
      this.#wide.delete(recall);
      this.#asked.add(recall);
      recall();
    }
  }

  #deliver(place: Place): void {
    if (place.phase !== 'granted') return;
    const now = this.#accrue();
    if (this.#books.paused) {
      this.#comeBack(place, 1);
      return;
    }
    place.phase = 'leased';
    place.settle({ kind: 'seated', lease: new SeatLease(this, place, now) });
  }

  /** Its seats back, and it to the head of the line, with its deadline and the time already waited kept. */
  #comeBack(place: Place, seats: number, lost?: RefusalReason): void {
    const { now } = this.#books;
    const late = (place.entry.deadlineAt ?? Infinity) <= now ? 'deadline' : undefined;
    const refused = lost ?? late ?? (this.#draining ? 'drain' : undefined);
    if (refused === undefined) {
      place.phase = 'ready';
      place.readyAt = now;
      place.queuedAt = now;
      this.#books.comeBack(place);
      this.#arm(place);
    } else this.#settle(place, this.#gate.refuse(refused, this.#books.tenantOf(place), this.#books.classOf(place)));
    this.#books.hold(place, -seats);
  }

  #leave(place: Place, to: 'seat' | 'nowhere'): void {
    place.disarm?.();
    place.disarm = undefined;
    place.queuedMs += this.#books.now - place.queuedAt;
    this.#books.leave(place, to);
  }

  /** One timer for what comes first: the end of the longest wait or the request's own deadline. */
  #arm(place: Place): void {
    const deadlineIn = (place.entry.deadlineAt ?? Infinity) - this.#books.now;
    const waitIn = this.#maxWaitMs - place.queuedMs;
    const reason = deadlineIn <= waitIn ? 'deadline' : 'wait';
    place.disarm = this.#clock.after(Math.min(deadlineIn, waitIn), () => {
      this.#accrue();
      // A wait that a lost engine or slow checks made too long says nothing of predictions.
      const telling = place.phase === 'ready' && this.#books.unbroken(place);
      if (telling) this.#gate.forecast.waited(place, this.#books.classOf(place), true);
      this.#refuse(place, reason);
    });
  }

  #refuse(place: Place, reason: RefusalReason): void {
    const [tenant, of] = [this.#books.tenantOf(place), this.#books.classOf(place)];
    this.#leave(place, 'nowhere');
    this.#settle(place, this.#gate.refuse(reason, tenant, of));
  }

  #settle(place: Place, outcome: TicketOutcome): void {
    place.phase = 'over';
    place.settle(outcome);
  }
}
