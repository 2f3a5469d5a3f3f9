/**
 * Which waits are worth a place when more comes than the seats can serve, without a setting for it.
 *
 * Two things are learned. How long callers endure: from those who left before they had what they waited for and from those
 * who did not (patience.ts; E. Kaplan and P. Meier, 1958). And how long a queue keeps the seats busy: it shrinks while no
 * seat is ever free, since a queue that stands adds wait and no throughput (standing-queue.ts; K. Nichols and V. Jacobson,
 * 2012; B. Maurer, "Fail at Scale", ACM Queue 2015, has a short timeout for the same state). Neither plays a part while
 * seats come free by themselves: a caller who leaves a queue costs nothing, and a burst is served.
 *
 * A caller counts as having left where it left before the first token of a stream or before the end of a whole reply. One
 * that stops a stream midway does not, nor one of two requests that are alike and under way at once (a hedge), since what
 * ends it is the other's answer.
 */
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';
import type { FairQueueConfig } from './fair-queue-options.js';
import { PatienceBook, type Awaited, type Times } from './patience.js';
import type { QueuedRequest } from './queued-request.js';
import type { QueueState } from './queue-state.js';
import type { QueueRequest, RefusalReason } from './seat-queue.js';
import { StandingQueue, windowOf } from './standing-queue.js';

/** Of those whom patience alone would refuse, so many are let in all the same: else a patience that grew is never seen. */
const EXPLORED = 0.02;

/** A wait for this share of what a request takes is short, whatever the queue: accounts below their share wait no longer. */
const SHORT_HOLDS = 0.5;

/** Weight of the newest lease in what a request takes. */
const HOLD_STEP = 0.02;

/** The weights of accounts are added up after so much time. */
const WEIGH_MS = 500;

/** Weight of the newest request in the share of streams. */
const SHARE_STEP = 0.02;

/** The longest wait that is worth a place, ms, and what a wait past it is refused as. */
export interface Worth {
  readonly ms: number;
  readonly reason: RefusalReason;
}

export class Overload {
  readonly patience = new PatienceBook();
  readonly standing: StandingQueue;
  readonly #state: QueueState;
  readonly #learns: boolean;
  readonly #random: () => number;
  /** Requests under way that have a fingerprint, by that and their account. */
  readonly #alike = new Map<string, QueuedRequest[]>();
  #at: number | undefined;
  /** What a request takes; slower to follow than what predictions go by, which vary by a fifth. */
  #holdMs = 1000;
  #held = 0;
  #vainMs = 0;
  /** The share of requests that are streams. */
  #streams = 0;
  /** Of the accounts that wait or run, and when that was added up. */
  #weight = 0;
  #weighedAt = -Infinity;

  constructor(state: QueueState, { learns = false }: FairQueueConfig, random: () => number) {
    this.#state = state;
    this.#learns = learns;
    this.#random = random;
    this.standing = new StandingQueue();
  }

  /** Seat time of requests whose callers left before they had what they waited for, ms. */
  get vainMs(): number {
    return this.#vainMs;
  }

  get times(): Times {
    return { now: this.standing.fullMs, holdMs: this.#holdMs };
  }

  /** Time goes on to `now`, before anything else happens then. */
  passed(now: number): void {
    const { seats, free, paused } = this.#state;
    const holdMs = this.#holdMs;
    if (this.#at !== undefined && !paused && seats > 0 && this.#learns) {
      this.standing.passed(now - this.#at, free / seats, holdMs);
    }
    this.#at = now;
  }

  /** What a request of this account may wait for a seat. */
  worth(request: QueueRequest, account: Account, of: AccountClass, predictedMs: number): Worth {
    if (!this.#learns || !this.standing.stands) return { ms: Infinity, reason: 'predicted' };
    const { seats } = this.#state;
    const places = this.standing.places(this.#state.now, seats, this.#holdMs, (waitMs) => this.#goodAfter(waitMs));
    const shortMs = Math.max(SHORT_HOLDS, places / seats) * this.#holdMs;
    // An account or class whose requests come seldom must not find the room full of others': it is due a seat.
    if (this.#state.waiting >= places && of.waiting > 1 && predictedMs > shortMs && !this.#light(account)) {
      account.pressedAt = this.#state.now;
      return { ms: shortMs, reason: 'standing' };
    }
    const longest = this.patience.longestMs(account.patience, awaitedBy(request), this.times);
    return { ms: this.#random() < EXPLORED ? Infinity : longest, reason: 'patience' };
  }

  /** Whether an account asks for no more than its equal share of the seats: the queue is not its doing. */
  #light(account: Account): boolean {
    const { now, seats, accounts } = this.#state;
    if (now - this.#weighedAt >= WEIGH_MS) {
      this.#weighedAt = now;
      this.#weight = 0;
      accounts.active.each(({ weight }) => (this.#weight += weight));
    }
    const asked = this.#arrivalsOf(account) * (account.hold.meanMs ?? this.#holdMs);
    return asked * this.#weight < seats * account.weight;
  }

  #arrivalsOf({ arrivals, arrivalsAt }: Account): number {
    return arrivals * Math.exp((arrivalsAt - this.#state.now) / windowOf(this.#holdMs));
  }

  /** A request came. */
  came({ awaits = 'end' }: QueueRequest, account: Account): void {
    if (!this.#learns) return;
    account.arrivals = this.#arrivalsOf(account) + 1 / windowOf(this.#holdMs);
    account.arrivalsAt = this.#state.now;
    this.standing.came(this.#holdMs, this.#state.seats);
    this.#streams += SHARE_STEP * ((awaits === 'first-token' ? 1 : 0) - this.#streams);
  }

  /** How good a seat's time is after a wait, over streams and whole replies as they come. */
  #goodAfter(waitMs: number): number {
    const { times } = this;
    const streams = this.#streams > 0.01 ? this.patience.goodAfter('first-token', waitMs, times) : 0;
    const whole = this.#streams < 0.99 ? this.patience.goodAfter('end', waitMs, times) : 0;
    return this.#streams * streams + (1 - this.#streams) * whole;
  }

  /** Whether a seat would be for nothing: by what its caller says, or while more comes than can be served, by what is learned. */
  hopeless(queued: QueuedRequest, account: Account, now: number): boolean {
    if (queued.request.wantedUntil !== undefined && queued.request.wantedUntil <= now) return true;
    // The last one in line is seated whatever its chance: there is no better use of the seat.
    if (!this.#learns || !this.standing.stands || this.#state.seatable < 2) return false;
    const hopelessMs = this.patience.hopelessMs(account.patience, awaitedBy(queued.request), this.times);
    return now - queued.enteredAt > hopelessMs;
  }

  /** A lease ended that held seats for `ms`. */
  held(ms: number): void {
    this.#held += 1;
    this.#holdMs += Math.max(1 / this.#held, HOLD_STEP) * (ms - this.#holdMs);
  }

  /** A request got its place. */
  entered(queued: QueuedRequest): void {
    const key = keyOf(queued.request);
    if (key === undefined) return;
    const alike = this.#alike.get(key) ?? [];
    for (const other of alike) other.hedged = true;
    queued.hedged = alike.length > 0;
    this.#alike.set(key, [...alike, queued]);
  }

  /** A request is over, or has what its caller waited for. `left`: its caller left before that. */
  settled(queued: QueuedRequest, account: Account, left: boolean): void {
    if (queued.told) return;
    queued.told = true;
    const now = this.#state.now;
    const awaited = awaitedBy(queued.request);
    if (left && queued.phase === 'leased') this.#vainMs += queued.seatMs;
    if (!this.#learns || queued.breaks !== this.#state.breaks || (left && queued.hedged)) return;
    this.patience.observe(account.patience, awaited, { ms: now - queued.enteredAt, left }, this.times);
    if (queued.phase === 'leased') this.patience.served(awaited, { ms: now - queued.grantedAt, left }, this.times);
  }

  /** It is over. */
  over(queued: QueuedRequest): void {
    const key = keyOf(queued.request);
    if (key === undefined) return;
    const alike = (this.#alike.get(key) ?? []).filter((other) => other !== queued);
    if (alike.length === 0) this.#alike.delete(key);
    else this.#alike.set(key, alike);
  }
}

function awaitedBy({ awaits }: QueueRequest): Awaited {
  return awaits ?? 'end';
}

function keyOf({ account, fingerprint }: QueueRequest): string | undefined {
  return fingerprint === undefined ? undefined : `${fingerprint} ${account}`;
}
