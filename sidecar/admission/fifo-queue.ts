/**
 * First come, first served, bounded: the plain discipline behind the seat queue's interface.
 *
 *     enter ─> unready ──ready()──> ready ──a seat──> granted ──next microtask──> leased ──release()──> over
 *                                     ^                  │ pause()                   │
 *                                     └──── returned <───┴──────── giveBack() ───────┘  (once)
 *
 * Only ready requests stand where seats are given out, so one whose checks take long blocks nobody; once ready it stands
 * by the time it entered. Returned ones (their engine was lost) stand before all others, in their old order.
 *
 * No seat leaks between grant and delivery. State changes at once, but outcomes are told one microtask later; a cancel or
 * a lost engine in between takes the seat back and no lease ever comes to be. From delivery on, whoever awaits the
 * outcome holds the lease and must end it: await the outcome itself and never race it, since cancel() makes it settle.
 *
 * Bounds: `waitingPerSeat` times seats requests and `waitingBytes` bytes wait (returned ones, at most one a lease, may
 * pass both, for they were let in before); one timer a waiting request.
 */
import type { Clock } from '../clock.js';
import { HoldTime } from './hold-time.js';
import { Place, type Desk } from './place.js';
import { Refusals } from './refusals.js';
import { SeatLease, type Bank } from './seat-lease.js';
import type {
  Entry,
  QueueSnapshot,
  Refused,
  RefusalReason,
  ReleaseReason,
  SeatQueue,
  Ticket,
  TicketOutcome,
} from './seat-queue.js';
import { TenantCounts } from './tenant-counts.js';
import { WaitingRoom, type Standing } from './waiting-room.js';

export interface FifoQueueConfig {
  /** The longest wait from `ready` to a seat, ms. */
  readonly maxWaitMs: number;
  /** Requests that may wait, per seat. */
  readonly waitingPerSeat: number;
  /** Body bytes that all waiting requests may hold together. */
  readonly waitingBytes: number;
}

export interface FifoQueueOptions {
  readonly clock: Clock;
  /** From 0 to 1, for the spread of retries. */
  readonly random: () => number;
  readonly config: FifoQueueConfig;
  /** Seats to begin with; `pause` at once when the engine is not there yet. */
  readonly seats: number;
}

/** Makes an empty queue that serves in the order of arrival. */
export function createFifoQueue(options: FifoQueueOptions): SeatQueue {
  return new FifoQueue(options);
}

/** Leases that say how long a request holds a seat; the others ended before their time. */
const TELLING: ReadonlySet<ReleaseReason> = new Set(['done', 'cancelled', 'deadline']);

class FifoQueue implements SeatQueue, Desk, Bank {
  readonly #clock: Clock;
  readonly #config: FifoQueueConfig;
  readonly #room = new WaitingRoom();
  readonly #tenants = new TenantCounts();
  readonly #hold = new HoldTime();
  readonly #refusals: Refusals;
  readonly #released: Partial<Record<ReleaseReason | 'given-back', number>> = {};
  #seats: number;
  #busy = 0;
  #entered = 0;
  #paused = false;
  #draining = false;

  constructor({ clock, random, config, seats }: FifoQueueOptions) {
    this.#clock = clock;
    this.#refusals = new Refusals(random);
    this.#config = config;
    this.#seats = seats;
  }

  enter(entry: Entry): Ticket | Refused {
    const reason = this.#obstacle(entry);
    if (reason !== undefined) return this.#refusal(reason);
    this.#entered += 1;
    const place = new Place(this, entry, this.#entered);
    this.#admit(place, 'unready');
    this.#arm(place);
    return place;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(seats: number): void {
    this.#seats = seats;
    this.#paused = false;
    this.#dispatch();
  }

  drain(): void {
    this.#draining = true;
    for (let place = this.#room.anyone; place !== undefined; place = this.#room.anyone) this.#refuse(place, 'drain');
  }

  snapshot(): QueueSnapshot {
    return {
      seats: this.#seats,
      busy: this.#busy,
      waiting: this.#room.size,
      waitingBytes: this.#room.bytes,
      paused: this.#paused,
      tenants: this.#tenants.list(),
      refused: this.#refusals.counts,
      released: { ...this.#released },
    };
  }

  // Desk: what tickets ask for.

  ready(place: Place): void {
    if (place.phase !== 'unready') return;
    this.#leave(place);
    this.#queueUp(place, 'ready');
  }

  cancel(place: Place): void {
    if (place.phase === 'unready' || place.phase === 'ready') this.#leave(place);
    else if (place.phase === 'granted') this.#free(place, 1);
    else return;
    this.#settle(place, { kind: 'cancelled' });
    this.#dispatch();
  }

  // Bank: what leases ask for.

  take(place: Place): boolean {
    // Nobody waits for a seat that is still free: #dispatch would have given it away.
    if (this.#paused || this.#busy >= this.#seats) return false;
    this.#seat(place);
    return true;
  }

  put(place: Place): void {
    this.#free(place, 1);
    this.#dispatch();
  }

  end(place: Place, seats: number, grantedAt: number, reason: ReleaseReason): void {
    place.phase = 'over';
    this.#free(place, seats);
    this.#released[reason] = (this.#released[reason] ?? 0) + 1;
    if (TELLING.has(reason)) this.#hold.observe(this.#clock.now() - grantedAt);
    this.#dispatch();
  }

  takeBack(place: Place, seats: number): Promise<TicketOutcome> {
    const outcome = place.promise();
    this.#free(place, seats);
    this.#released['given-back'] = (this.#released['given-back'] ?? 0) + 1;
    if (place.returned) {
      this.#settle(place, this.#refusal('engine-lost'));
    } else {
      place.returned = true;
      this.#return(place);
    }
    this.#dispatch();
    return outcome;
  }

  #obstacle(entry: Entry): RefusalReason | undefined {
    if (this.#draining) return 'drain';
    // Whoever will find a free seat does not wait for one: it only passes through the room.
    const free = this.#paused ? 0 : Math.max(0, this.#seats - this.#busy);
    if (this.#room.size >= this.#config.waitingPerSeat * this.#seats + free) return 'full';
    if (this.#room.bytes + entry.bytes > this.#config.waitingBytes) return 'bytes';
    if (entry.deadlineAt !== undefined && entry.deadlineAt <= this.#clock.now()) return 'deadline';
    return undefined;
  }

  #dispatch(): void {
    while (!this.#paused && this.#busy < this.#seats) {
      const place = this.#room.next;
      if (place === undefined) return;
      this.#leave(place);
      this.#seat(place);
      place.phase = 'granted';
      place.waitedMs += this.#clock.now() - place.readyAt;
      queueMicrotask(() => this.#deliver(place));
    }
  }

  #deliver(place: Place): void {
    if (place.phase !== 'granted') return;
    if (this.#paused) {
      this.#free(place, 1);
      this.#return(place);
      return;
    }
    place.phase = 'leased';
    place.settle({ kind: 'seated', lease: new SeatLease(this, place, this.#clock.now()) });
  }

  /** Back to the head of the line, with its deadline and the time already waited kept. */
  #return(place: Place): void {
    const late = (place.entry.deadlineAt ?? Infinity) <= this.#clock.now();
    if (late || this.#draining) {
      this.#settle(place, this.#refusal(late ? 'deadline' : 'drain'));
      return;
    }
    this.#queueUp(place, 'returned');
  }

  /** Waits for a seat; the timer is spared when there is one. */
  #queueUp(place: Place, standing: Standing): void {
    place.phase = 'ready';
    place.readyAt = this.#clock.now();
    this.#admit(place, standing);
    this.#dispatch();
    if (place.line !== undefined) this.#arm(place);
  }

  #admit(place: Place, standing: Standing): void {
    this.#room.enter(place, standing);
    this.#tenants.add(place.entry.tenant, 1, 0);
  }

  #leave(place: Place): void {
    place.disarm?.();
    place.disarm = undefined;
    this.#room.leave(place);
    this.#tenants.add(place.entry.tenant, -1, 0);
  }

  #seat(place: Place): void {
    this.#busy += 1;
    this.#tenants.add(place.entry.tenant, 0, 1);
  }

  #free(place: Place, seats: number): void {
    this.#busy -= seats;
    this.#tenants.add(place.entry.tenant, 0, -seats);
  }

  /** One timer for what comes first: the end of the wait (which begins at `ready`) or the request's own deadline. */
  #arm(place: Place): void {
    place.disarm?.();
    const deadlineIn = (place.entry.deadlineAt ?? Infinity) - this.#clock.now();
    const waitIn = place.phase === 'ready' ? this.#config.maxWaitMs - place.waitedMs : Infinity;
    if (deadlineIn === Infinity && waitIn === Infinity) return;
    const reason = deadlineIn <= waitIn ? 'deadline' : 'wait';
    place.disarm = this.#clock.after(Math.min(deadlineIn, waitIn), () => this.#refuse(place, reason));
  }

  #refuse(place: Place, reason: RefusalReason): void {
    this.#leave(place);
    this.#settle(place, this.#refusal(reason));
  }

  #settle(place: Place, outcome: TicketOutcome): void {
    place.phase = 'over';
    place.settle(outcome);
  }

  #refusal(reason: RefusalReason): Refused {
    return this.#refusals.make(reason, this.#hold.waitMs(this.#room.size, this.#seats));
  }
}
