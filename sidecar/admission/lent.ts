/**
 * Lent seats: requests of class batch run on seats that no other request uses, and give each back when another request needs it.
 *
 * In the fair queue such work would take each free seat: the queue would stand for ever (overload.ts), and every other request would wait
 * until a long reply ends. So a request of class `batch` whose answer is sent whole (`QueueRequest.lent`) waits here. For all other requests
 * a lent seat is free: where free seats are counted, in predictions, in what is learned.
 *
 * **Lent** is a seat while more than `headroom` seats are idle. Accounts share lent seats by a virtual time of their own
 * (lent-accounts.ts); in an account the order is first come, first served.
 *
 * **Recalled** is the youngest lent seat of a replica when more of its seats are taken than it has: it has done the least work. Its holder
 * stops the job, and another request has the seat at once, since an engine runs a cancel before later jobs, or once the engine confirms the
 * cancel. The recalled request waits here again, before all later ones of its account. For its holder it then begins again; the engine goes
 * on after the tokens that it had (engine/scheduler/stopped-replies.ts).
 *
 *     enter -> unready --ready()--> ready --a seat--> granted --next microtask--> leased --release()--> over
 *                                    ^ |                                            | recall
 *                                    | +-- MOST_RECALLS, or no seat is lent         v
 *                                    |       -> moving -> queued (queue.ts)      recalled
 *                                    +----------------- giveBack() -----------------+
 *
 * **Queued**: a request that was recalled MOST_RECALLS times, and the next one each time that no seat could be lent for half of the longest
 * wait, enters the fair queue as class `batch`, so that it is served in the end, by a seat that is not recalled. At most QUEUED_SHARE of
 * the seats' number of them are there at once, since each may hold a seat that another request then waits for.
 *
 * Bounds: `waitingPerSeat` times seats requests wait here, and as many as could be lent seats; their bodies and those of the queue together
 * have at most `waitingBytes`; each waits for at most the longest wait, recalled ones twice that (lent-accounts.ts: accounts).
 */
import { CLASS_WEIGHTS } from '../domain/service-class.js';
import type { RefusalReason } from '../domain/refusal-reasons.js';
import type { Clock } from '../lib/clock.js';
import { place, type ReusableTokens } from './choose.js';
import type { Judge } from './judge.js';
import { CANDIDATES, LentShares, type LentAccount, type LentRequest } from './lent-accounts.js';
import { HoldTime } from './measures.js';
import type { QueuedRequest } from './request.js';
import { idleSeatsOf } from './seats.js';
import type { Sessions } from './sessions.js';
import type { QueueState } from './state.js';
import type {
  Lease,
  LentCounts,
  LentEnd,
  QueueConfig,
  QueueRequest,
  Refused,
  ReleaseReason,
  SeatNeeds,
  Ticket,
  TicketOutcome,
} from './types.js';
import { CHECKS_MS } from './waits.js';

/** After so many recalls a request enters the queue. */
const MOST_RECALLS = 3;

/** Requests in the queue at once that entered it from here, for each seat; at least one in all. */
const QUEUED_SHARE = 1 / 16;

/** While no seat is lent, a request enters the queue after each such part of the longest wait. */
const STARVED_SHARE = 1 / 2;

/** What the seats of one queue and its fair order are to this. */
export interface LendingQueue {
  enter(request: QueueRequest): Ticket | Refused;
  /** One operation: brings all state to the present, changes it, and gives free seats out. */
  turn<T>(change: () => T): T;
  /** Why a request may not wait again now; undefined if it may. */
  closedFor(deadlineAt: number | undefined): RefusalReason | undefined;
}

interface Parts {
  readonly clock: Clock;
  readonly config: QueueConfig;
  readonly state: QueueState;
  readonly judge: Judge;
  readonly sessions: Sessions;
  readonly reusableTokens: ReusableTokens | undefined;
}

export class LentSeats {
  readonly #parts: Parts;
  readonly #config: QueueConfig;
  readonly #state: QueueState;
  readonly #queue: LendingQueue;
  /** The share of the seats that stays idle; 1: no seat is lent. */
  readonly #headroom: number;
  readonly #shares = new LentShares();
  /** Requests that are to enter the queue, and those that did and have not ended. */
  readonly #due = new Set<LentRequest>();
  readonly #queued = new Map<QueueRequest, LentRequest>();
  /** Of recalled seats by replica: what settles when the engine runs nothing there any more. */
  readonly #stopping = new Map<number, Set<Promise<void>>>();
  readonly #hold = new HoldTime();
  readonly #ends: Record<LentEnd, number> = { ended: 0, recalled: 0, queued: 0 };
  #recalledMs = 0;
  /** Since when requests wait and no seat is lent, or since one of them last entered the queue. */
  #noneSince = 0;
  /** One of those that wait is to enter the queue: chosen when it can, since those before it are charged then. */
  #isStarved = false;
  /** The time up to which the accounts are charged. */
  #at = 0;

  constructor(parts: Parts, queue: LendingQueue, headroom: number) {
    this.#parts = parts;
    this.#config = parts.config;
    this.#state = parts.state;
    this.#queue = queue;
    this.#headroom = headroom;
  }

  /** Whether seats are ever lent. */
  get lends(): boolean {
    return this.#headroom < 1;
  }

  /** Requests that wait for a lent seat or hold one. */
  get present(): number {
    return this.#shares.waiting + this.#shares.running;
  }

  /** `most`: accounts that are named. */
  counts(most: number): LentCounts {
    const { running: seats, waiting, seatMs } = this.#shares;
    const [headroom, ends, recalledMs] = [this.#headroomSeats, { ...this.#ends }, this.#recalledMs];
    return { headroom, seats, waiting, ends, seatMs, recalledMs, accounts: this.#shares.report(most) };
  }

  /** Takes a place. Called inside an operation of the queue, which has not begun to drain. */
  enter(request: QueueRequest): Ticket | Refused {
    const account = this.#shares.account(request.account);
    const refused = this.#refusalOf(request, account);
    if (refused !== undefined) return this.#refusal(refused, account);
    if (this.#shares.waiting === 0) [this.#noneSince, this.#isStarved] = [this.#state.now, false];
    const lent = this.#shares.enter(request, account);
    lent.waitsUntil = this.#state.now + Math.max(this.#config.maxWaitMs, CHECKS_MS);
    this.#arm(lent);
    return {
      outcome: lent.outcome,
      // Only streams report their place to the caller, and a lent request never streams.
      place: () => undefined,
      ready: (needs) => {
        if (lent.phase === 'unready') this.#queue.turn(() => this.#becomesReady(lent, needs));
      },
      cancel: (cause) => {
        if (lent.phase === 'queued') lent.ticket?.cancel(cause);
        else this.#queue.turn(() => this.#cancel(lent));
      },
    };
  }

  /** Charges the accounts for the seats that they held until now, here and in the queue. Called first in each operation. */
  advance(): void {
    const ms = this.#state.now - this.#at;
    this.#at = this.#state.now;
    if (ms <= 0) return;
    for (const { account, queued } of this.#queued.values()) this.#shares.charge(account, ms * (queued?.seats ?? 0));
    this.#shares.advance(ms);
  }

  /** Recalls seats that other requests were given, lets requests enter the queue, and lends idle seats. Called last in each operation. */
  dispatch(): void {
    if (this.#shares.running > 0) this.#recallTaken();
    while (this.#state.bytes > 0 && this.#freeBytes < 0 && this.#dropOne());
    const mostQueued = Math.max(1, Math.floor(QUEUED_SHARE * this.#state.seats));
    for (const lent of this.#due) {
      if (this.#queued.size >= mostQueued) break;
      this.#move(lent);
    }
    while (this.#shares.readyAccounts > 0 && this.#state.replicas.idle > this.#headroomSeats && this.#lendOne());
    this.#isStarved &&= this.#shares.running === 0;
    if (this.#isStarved && this.#queued.size < mostQueued) for (const first of this.#shares.next(1)) this.#move(first);
  }

  /** A request of the queue was given a seat. Undefined if that can be used at once; else settles when a recalled job has stopped there. */
  seated(queued: QueuedRequest): Promise<void> | undefined {
    const lent = this.#queued.get(queued.request);
    if (lent !== undefined) lent.queued = queued;
    const stops = this.#stopping.get(queued.replica);
    const at = this.#state.replicas.all[queued.replica];
    if (stops === undefined || stops.size === 0 || at === undefined || idleSeatsOf(at) >= 0) return undefined;
    return Promise.race(stops);
  }

  /** A request of the queue has ended: it may be one that entered it from here. */
  ended({ request }: QueuedRequest): void {
    this.#queued.delete(request);
  }

  /** Refuses all that wait; those whose prompt is not known yet, once it is (`closedFor`). */
  refuseWaiting(reason: RefusalReason): void {
    for (let account = this.#shares.longest(); account !== undefined; account = this.#shares.longest()) {
      const { ready } = account;
      for (let lent = ready.first; lent !== undefined; lent = ready.first) this.#refuse(lent, reason);
    }
  }

  get #headroomSeats(): number {
    return Math.floor(this.#headroom * this.#state.seats);
  }

  /** Bytes that the bodies of all waiting requests, here and in the queue, may have more. */
  get #freeBytes(): number {
    return this.#config.waitingBytes - this.#state.bytes - this.#shares.bytes;
  }

  /** Why a newcomer may not wait; undefined if it may. */
  #refusalOf({ bytes, deadlineAt = Infinity }: QueueRequest, account: LentAccount): RefusalReason | undefined {
    const { now, seats, replicas } = this.#state;
    if (deadlineAt <= now) return 'deadline';
    const lendable = Math.max(0, replicas.idle - this.#headroomSeats);
    if (this.#shares.waiting < lendable) return undefined;
    const { expectedWaitMs: waitMs } = this.#shares.placeOf(account, this.#hold);
    if (waitMs !== undefined && waitMs > Math.min(this.#config.maxWaitMs, deadlineAt - now)) return 'predicted';
    // A body above the cap may wait if no other does.
    if (this.#freeBytes < bytes && this.#freeBytes < this.#config.waitingBytes) return 'bytes';
    const isFull = this.#shares.waiting >= this.#config.waitingPerSeat * seats + lendable;
    return isFull && !this.#dropOne(account) ? 'full' : undefined;
  }

  /**
   * Refuses the newest request of the account with the most waiting. Returns false if there is none, or if `account`, whose newcomer it
   * makes room for, has as many or one fewer.
   */
  #dropOne(account?: LentAccount): boolean {
    const last = this.#shares.longest()?.ready.last;
    if (last === undefined || (account !== undefined && last.account.waiting < account.waiting + 2)) return false;
    this.#refuse(last, 'dropped');
    return true;
  }

  #becomesReady(lent: LentRequest, needs: SeatNeeds): void {
    lent.needs = needs;
    lent.readyAt = this.#state.now;
    lent.waitsUntil += Math.min(0, this.#config.maxWaitMs - CHECKS_MS);
    const closed = this.#queue.closedFor(lent.request.deadlineAt);
    if (closed === undefined) this.#waits(lent);
    else this.#refuse(lent, closed);
  }

  /** It waits for a seat from now on. */
  #waits(lent: LentRequest): void {
    lent.phase = 'ready';
    this.#shares.ready(lent);
    this.#arm(lent);
  }

  /** Starts its timer anew: for the end of its wait, or to see whether no seat was lent for too long. */
  #arm(lent: LentRequest): void {
    lent.disarm?.();
    const { now } = this.#state;
    const { deadlineAt = Infinity, wantedUntil = Infinity } = lent.request;
    const looksAt = lent.phase === 'ready' ? now + STARVED_SHARE * this.#config.maxWaitMs : Infinity;
    const at = Math.min(deadlineAt, wantedUntil, lent.waitsUntil, looksAt);
    lent.disarm = this.#parts.clock.after(Math.max(0, Math.ceil(at - now)), () => {
      this.#queue.turn(() => this.#timeIsOver(lent));
    });
  }

  #timeIsOver(lent: LentRequest): void {
    const { now } = this.#state;
    const { deadlineAt = Infinity, wantedUntil = Infinity } = lent.request;
    const isOver = lent.waitsUntil <= now;
    // What was begun once has its turn in the queue before it is refused.
    const isLast = isOver && (lent.recalls === 0 || this.#due.has(lent));
    const refused = deadlineAt <= now ? 'deadline' : wantedUntil <= now ? 'hopeless' : isLast ? 'wait' : undefined;
    if (refused !== undefined) {
      this.#refuse(lent, refused);
      return;
    }
    if (isOver) {
      lent.waitsUntil = now + this.#config.maxWaitMs;
      this.#due.add(lent);
    } else if (now - this.#noneSince >= STARVED_SHARE * this.#config.maxWaitMs) this.#isStarved = true;
    this.#arm(lent);
  }

  /** Recalls the youngest leases of each replica of which more seats are taken than it has. */
  #recallTaken(): void {
    this.#state.replicas.all.forEach((replica, at) => {
      while (-idleSeatsOf(replica) > (this.#stopping.get(at)?.size ?? 0)) {
        const youngest = this.#shares.youngestOn(at);
        if (youngest === undefined) return;
        this.#recall(youngest);
      }
    });
  }

  #recall(lent: LentRequest): void {
    const { phase, replica } = lent;
    if (phase === 'granted') {
      this.#seatEnds(lent, 'recalled');
      this.#waitAgain(lent);
      return;
    }
    lent.phase = 'recalled';
    lent.recalls += 1;
    const stopped = lent.stop?.();
    this.#seatEnds(lent, 'recalled', stopped !== undefined);
    if (stopped === undefined) return;
    const stops = this.#stopping.get(replica) ?? new Set();
    this.#stopping.set(replica, stops.add(stopped));
    const isFree = (): void => {
      stops.delete(stopped);
      this.#state.replicas.count(replica, 'lent', -1);
    };
    void stopped.then(() => this.#queue.turn(isFree));
  }

  /** Lends a seat to the account with the lowest virtual time of those whose first request an idle seat is long enough for. */
  #lendOne(): boolean {
    for (const lent of this.#shares.next(CANDIDATES)) {
      const { promptTokens, seatTokens = 0, prefix } = lent.needs;
      const at = place(
        this.#state.replicas.all,
        { promptTokens, seatTokens, seats: 1 },
        (replica) => (prefix && this.#parts.reusableTokens?.(prefix, replica)) ?? 0,
        idleSeatsOf,
      );
      if (at < 0) continue;
      this.#grant(lent, at);
      return true;
    }
    return false;
  }

  #grant(lent: LentRequest, replica: number): void {
    const { now } = this.#state;
    this.#shares.takes(lent);
    this.#stopWaiting(lent);
    lent.phase = 'granted';
    lent.waitedMs += now - lent.readyAt;
    lent.grantedAt = now;
    lent.grants += 1;
    lent.replica = replica;
    lent.stop = undefined;
    this.#state.replicas.count(replica, 'lent', 1);
    this.#state.replicas.granted(replica);
    queueMicrotask(() => {
      if (lent.phase === 'granted') this.#queue.turn(() => this.#deliver(lent));
    });
  }

  #deliver(lent: LentRequest): void {
    if (this.#state.replicas.isUp(lent.replica)) {
      lent.phase = 'leased';
      lent.settle({ kind: 'seated', lease: this.#leaseOf(lent) });
    } else this.#recall(lent);
  }

  #leaseOf(lent: LentRequest): Lease {
    const { grants } = lent;
    // A recalled request may have another lease by now.
    const isHeld = (): boolean => lent.phase === 'leased' && lent.grants === grants;
    const isOwn = (): boolean => isHeld() || (lent.phase === 'recalled' && lent.grants === grants);
    let again: Promise<TicketOutcome> | undefined;
    return {
      seats: () => (isHeld() ? 1 : 0),
      replica: lent.replica,
      waitedMs: lent.waitedMs,
      lent: true,
      claims: this.#parts.sessions.claimsAt(lent.replica),
      takeSeat: () => false,
      freeSeat: () => undefined,
      whenWanted: () => undefined,
      whenRecalled: (stop) => {
        if (isHeld()) lent.stop = stop;
      },
      begun: () => undefined,
      prefilled: () => undefined,
      observeTokenMs: (ms) => {
        if (isHeld()) this.#state.replicas.observeTokenMs(lent.replica, ms);
      },
      release: (reason) => {
        if (isOwn()) this.#queue.turn(() => this.#release(lent, reason));
      },
      nextTurn: () => Promise.resolve({ kind: 'cancelled' }),
      giveBack: () => {
        if (isOwn()) again = this.#queue.turn(() => this.#giveBack(lent));
        return again ?? Promise.resolve({ kind: 'cancelled' });
      },
    };
  }

  #release(lent: LentRequest, reason: ReleaseReason): void {
    if (lent.phase === 'leased') {
      this.#seatEnds(lent, 'ended');
      if (reason === 'done') this.#hold.observe(this.#state.now - lent.grantedAt);
    }
    this.#state.countReleased(reason);
    lent.phase = 'over';
  }

  /** Its seat was recalled, or its engine was lost before it began. */
  #giveBack(lent: LentRequest): Promise<TicketOutcome> {
    const outcome = lent.awaitAgain();
    this.#state.countReleased('given-back');
    if (lent.phase === 'leased') {
      this.#seatEnds(lent, 'ended');
      lent.returns += 1;
    }
    const isLost = lent.returns > this.#state.replicas.all.length;
    const closed = isLost ? 'engine-lost' : this.#queue.closedFor(lent.request.deadlineAt);
    if (closed === undefined) this.#waitAgain(lent);
    else lent.end(this.#refusal(closed, lent.account));
    return outcome;
  }

  #waitAgain(lent: LentRequest): void {
    lent.readyAt = this.#state.now;
    lent.waitsUntil = lent.readyAt + this.#config.maxWaitMs;
    this.#shares.waits(lent);
    if (lent.recalls >= MOST_RECALLS) this.#due.add(lent);
    this.#waits(lent);
  }

  /** It holds its seat no more. `isUsed`: the engine still runs its job there. */
  #seatEnds(lent: LentRequest, how: LentEnd, isUsed = false): void {
    const { now, replicas } = this.#state;
    this.#shares.returns(lent);
    if (this.#shares.running === 0) this.#noneSince = now;
    this.#ends[how] += 1;
    if (how === 'recalled') this.#recalledMs += now - lent.grantedAt;
    if (!isUsed) replicas.count(lent.replica, 'lent', -1);
  }

  /** It enters the queue once this operation is over. */
  #move(lent: LentRequest): void {
    const request = Object.assign({}, lent.request, { lent: false, weight: CLASS_WEIGHTS.batch });
    this.#stopWaiting(lent);
    lent.waitedMs += this.#state.now - lent.readyAt;
    lent.phase = 'moving';
    [this.#noneSince, this.#isStarved] = [this.#state.now, false];
    this.#queued.set(request, lent);
    queueMicrotask(() => {
      if (lent.phase === 'moving') this.#enterQueue(lent, request);
      else this.#queued.delete(request);
    });
  }

  #enterQueue(lent: LentRequest, request: QueueRequest): void {
    const ticket = this.#queue.enter(request);
    if ('kind' in ticket) {
      this.#queued.delete(request);
      lent.end(ticket);
      return;
    }
    this.#ends.queued += 1;
    lent.phase = 'queued';
    lent.ticket = ticket;
    void ticket.outcome.then((outcome) => {
      if (outcome.kind === 'seated') {
        // The same lease, of a request that had waited here before.
        const waitedMs = { value: outcome.lease.waitedMs + lent.waitedMs };
        lent.settle({ kind: 'seated', lease: Object.create(outcome.lease, { waitedMs }) as Lease });
      } else lent.settle(outcome);
    });
    ticket.ready(lent.needs);
  }

  /** Its caller left, or a check failed. While it holds a seat that changes nothing. */
  #cancel(lent: LentRequest): void {
    const { phase } = lent;
    if (phase === 'unready' || phase === 'ready') this.#stopWaiting(lent);
    else if (phase === 'granted') this.#seatEnds(lent, 'ended');
    else if (phase !== 'moving' && phase !== 'recalled') return;
    lent.end({ kind: 'cancelled' });
  }

  #refuse(lent: LentRequest, reason: RefusalReason): void {
    this.#stopWaiting(lent);
    lent.end(this.#refusal(reason, lent.account));
  }

  #refusal(reason: RefusalReason, account: LentAccount): Refused {
    return this.#parts.judge.refuseLent(reason, this.#shares.placeOf(account, this.#hold));
  }

  #stopWaiting(lent: LentRequest): void {
    lent.disarm?.();
    lent.disarm = undefined;
    this.#due.delete(lent);
    this.#shares.stopsWaiting(lent);
  }
}
