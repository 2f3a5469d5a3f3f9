import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { Lease, Refused, ReleaseReason, Ticket, TicketOutcome } from '../../sidecar/admission/types.js';
import { FakeClock } from './fake-clock.js';

const CONFIG = { maxWaitMs: 200, waitingPerSeat: 4, waitingBytes: 150 };
/** Of one body: more than all waiting ones may have. */
const MAX_BYTES = 160;
const MAX_SEATS = 5;
const ACCOUNTS = ['a', 'b', 'c'];
const WEIGHTS = [16, 4, 1];
const REASONS: readonly ReleaseReason[] = ['done', 'cancelled', 'failed', 'engine-lost', 'deadline'];

interface Request {
  readonly ticket: Ticket;
  readonly bytes: number;
  ready: boolean;
  /** undefined while it waits. */
  lease: Lease | undefined;
  /** Of a lease with several seats: no recall is wanted, one is wanted, one was made. */
  wanted: 'untold' | 'watched' | 'asked';
}

/** Small choices derived from one random number. */
class Dice {
  #rest: number;

  constructor(value: number) {
    this.#rest = value;
  }

  roll(sides: number): number {
    const face = this.#rest % sides;
    this.#rest = Math.floor(this.#rest / sides);
    return face;
  }
}

/**
 * Drives a queue by random numbers, one event each, with its own model of what was put in and what came out. `check`
 * compares the two. Sometimes it lets the outcomes settle between two events, sometimes not.
 */
export class QueueWalk {
  readonly #clock = new FakeClock();
  readonly #queue: SeatQueue;
  readonly #waiting: Request[] = [];
  readonly #running: Request[] = [];
  #seats: number;
  #busyAtResume = 0;
  /** Places that exist now, or that existed when waiting requests arrived. */
  #places = 0;
  #returnedWaiting = 0;
  #paused = false;
  #drained = false;
  #owed = 0;
  #refusals = 0;
  #ended = 0;

  constructor(seats: number) {
    this.#seats = seats;
    this.#queue = new SeatQueue({
      clock: this.#clock,
      random: () => 0.5,
      config: CONFIG,
      seats,
      reusableTokens: (prefix) => prefix[0] ?? 0,
    });
  }

  /** Returns what to wait for, if anything: without a promise the next event comes before any outcome is delivered. */
  event(value: number): Promise<void> | undefined {
    const dice = new Dice(value);
    const settle = dice.roll(2) === 0;
    this.#act(dice);
    this.#bounds();
    return settle ? this.#settle() : undefined;
  }

  /** Lets everything end: nothing may be left in the queue or undelivered. */
  async finish(): Promise<void> {
    await this.#settle();
    this.#drain();
    await this.#settle();
    while (this.#running.length > 0) this.#release(this.#running[0]!, 'done');
    this.#same('busy at the end', this.#queue.snapshot().busy, 0);
    this.#same('outcomes owed at the end', this.#owed, 0);
    this.#same('timers at the end', this.#clock.pending, 0);
  }

  #act(dice: Dice): void {
    const what = dice.roll(100);
    if (what < 30) this.#enter(dice);
    else if (what < 50) this.#pick(this.#waiting, dice, (request) => this.#ready(request, dice));
    else if (what < 57) this.#pick(this.#waiting, dice, ({ ticket }) => ticket.cancel());
    else if (what < 75) this.#pick(this.#running, dice, (request) => this.#release(request, REASONS[dice.roll(5)]!));
    else if (what < 80) this.#pick(this.#running, dice, (request) => this.#giveBack(request));
    else if (what < 84) this.#pick(this.#running, dice, (request) => this.#grow(request));
    else if (what < 86) this.#pick(this.#running, dice, (request) => this.#shrink(request));
    else if (what < 87) this.#pick(this.#running, dice, ({ ticket }) => ticket.cancel());
    else if (what < 89) this.#pause();
    else if (what < 93) this.#resume(1 + dice.roll(MAX_SEATS));
    else if (what < 94 && dice.roll(20) === 0) this.#drain();
    else this.#clock.advance(dice.roll(60));
  }

  #enter(dice: Dice): void {
    const bytes = dice.roll(20) === 0 ? MAX_BYTES : dice.roll(20);
    const deadline = dice.roll(4);
    const ticket = this.#queue.enter({
      account: ACCOUNTS[dice.roll(3)]!,
      weight: WEIGHTS[dice.roll(3)]!,
      user: `user ${dice.roll(3)}`,
      bytes,
      seatsWanted: 1 + dice.roll(3),
      ...(deadline === 0 ? { deadlineAt: this.#clock.now() + dice.roll(300) } : {}),
    });
    if ('kind' in ticket) {
      this.#refused(ticket);
      return;
    }
    const request: Request = { ticket, bytes, ready: false, lease: undefined, wanted: 'untold' };
    this.#waiting.push(request);
    this.#expect(request, ticket.outcome, false);
  }

  #ready(request: Request, dice: Dice): void {
    request.ready = true;
    request.ticket.ready({ promptTokens: 300, prefix: Uint32Array.of(200 + dice.roll(200)) });
  }

  #grow(request: Request): void {
    const { lease } = request;
    if (lease?.takeSeat() !== true || lease.seats() > 2) return;
    request.wanted = 'watched';
    lease.whenWanted(() => {
      if (request.wanted !== 'watched') throw new Error(`asked while ${request.wanted}`);
      request.wanted = 'asked';
      const [asked, waiting] = [this.#count('asked'), this.#waiting.filter(({ ready }) => ready).length];
      if (asked > waiting) throw new Error(`${asked} are asked for a seat and ${waiting} wait`);
    });
  }

  #shrink(request: Request): void {
    const several = (request.lease?.seats() ?? 0) > 2;
    // Before the seat is freed, since the next one may be recalled at once.
    request.wanted = several && request.wanted !== 'untold' ? 'watched' : 'untold';
    request.lease?.freeSeat();
  }

  #count(wanted: Request['wanted']): number {
    return this.#running.filter((request) => request.wanted === wanted).length;
  }

  #release(request: Request, reason: ReleaseReason): void {
    this.#running.splice(this.#running.indexOf(request), 1);
    request.wanted = 'untold';
    request.lease?.release(reason);
    request.lease?.release('failed');
    this.#ended += 1;
  }

  #giveBack(request: Request): void {
    const { lease } = request;
    if (lease === undefined) return;
    this.#running.splice(this.#running.indexOf(request), 1);
    request.lease = undefined;
    request.wanted = 'untold';
    this.#waiting.push(request);
    this.#returnedWaiting += 1;
    this.#expect(request, lease.giveBack(), true);
    this.#ended += 1;
  }

  #pause(): void {
    this.#paused = true;
    this.#queue.pause();
  }

  #resume(seats: number): void {
    this.#paused = false;
    this.#seats = seats;
    this.#busyAtResume = this.#queue.snapshot().busy;
    this.#queue.resume(seats);
  }

  #drain(): void {
    this.#drained = true;
    this.#queue.drain();
  }

  #expect(request: Request, outcome: Promise<TicketOutcome>, returned: boolean): void {
    this.#owed += 1;
    void outcome.then((settled) => {
      this.#owed -= 1;
      if (returned) this.#returnedWaiting -= 1;
      this.#waiting.splice(this.#waiting.indexOf(request), 1);
      if (settled.kind === 'refused') this.#refused(settled);
      if (settled.kind !== 'seated') return;
      request.lease = settled.lease;
      this.#running.push(request);
    });
  }

  #refused({ retryAfterMs }: Refused): void {
    this.#refusals += 1;
    if (retryAfterMs < 1000 || retryAfterMs > 59_000) throw new Error(`retry after ${retryAfterMs} ms`);
  }

  #pick(from: readonly Request[], dice: Dice, then: (request: Request) => void): void {
    const request = from[dice.roll(64) % Math.max(from.length, 1)];
    if (request !== undefined) then(request);
  }

  /** True at any moment. */
  #bounds(): void {
    const { busy, waiting, waitingBy, waitingBytes, accounts } = this.#queue.snapshot();
    if (busy > Math.max(this.#seats, this.#busyAtResume)) throw new Error(`${busy} busy of ${this.#seats}`);
    // By the seats in force, or by more that existed when waiting requests arrived. A seat may be free for each
    // besides.
    const places = (CONFIG.waitingPerSeat + 1) * this.#seats;
    this.#places = waiting > places ? Math.max(this.#places, places) : places;
    // Put back, or granted and not delivered when the engine was lost.
    const most = this.#places + this.#returnedWaiting + MAX_SEATS;
    if (waiting > most) throw new Error(`${waiting} wait, more than ${most}`);
    // One may have entered an empty queue, whatever its size; those put back, at most one a lease, exceed the cap too.
    const bytes = CONFIG.waitingBytes + MAX_BYTES * (this.#returnedWaiting + 1);
    if (waitingBytes > bytes) throw new Error(`${waitingBytes} bytes wait, more than ${bytes}`);
    this.#same(
      'seats of accounts',
      sum(accounts, (account) => account.running),
      busy,
    );
    this.#same(
      'waiting of accounts',
      sum(accounts, (account) => account.waiting),
      waiting,
    );
    this.#same('waiting by class', sum(Object.values(waitingBy), Number), waiting);
    if (Math.min(...Object.values(waitingBy)) < 0) throw new Error('fewer than none of a class wait');
    this.#same('timers', this.#clock.pending, waiting);
    if (this.#drained && waiting > 0) throw new Error(`${waiting} wait in a drained queue`);
  }

  /** Lets every outcome be delivered; then the queue and this model agree. */
  async #settle(): Promise<void> {
    for (let i = 0; i < 5; i += 1) await Promise.resolve();
    const { busy, waiting, waitingBytes, refused, released } = this.#queue.snapshot();
    this.#same(
      'busy',
      busy,
      sum(this.#running, ({ lease }) => lease!.seats()),
    );
    this.#same('waiting', waiting, this.#waiting.length);
    this.#same('outcomes owed', this.#owed, this.#waiting.length);
    this.#same(
      'waiting bytes',
      waitingBytes,
      sum(this.#waiting, ({ bytes }) => bytes),
    );
    this.#same('refused', sum(Object.values(refused), Number), this.#refusals);
    this.#same('released', sum(Object.values(released), Number), this.#ended);
    const idle = !this.#paused && busy < this.#seats;
    const seatable = this.#waiting.filter(({ ready }) => ready).length;
    if (idle && seatable > 0) throw new Error('a seat is free and a request waits for it');
    if (!this.#paused && this.#count('watched') > 0 && this.#count('asked') < seatable) {
      throw new Error(`${seatable} wait, and a request with several seats was not asked for one`);
    }
  }

  #same(what: string, found: number, expected: number): void {
    if (found !== expected) throw new Error(`${what}: ${found}, not ${expected}`);
  }
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}
