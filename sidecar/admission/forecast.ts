/** Predicts how long a request would wait, from the leases that ended, and computes how long it may wait. */
import type { Account, AccountClass } from './accounts.js';
import { HoldTime } from './measures.js';
import { MOST_COUNTED, type QueuedRequest, type Turn } from './request.js';
import type { QueueState } from './state.js';
import type { QueuePlace, ReleaseReason } from './types.js';

/** The assumed time of a request on a seat before any has ended, ms. Used for Retry-After and places: no request is refused by it. */
export const FIRST_GUESS_MS = 1000;

/** Ends of a lease that the caller or the work decided. */
const MEASURED: ReadonlySet<ReleaseReason> = new Set(['done', 'cancelled', 'deadline']);

/** A wait shorter than this share of the time on the seat is not the reason why a reply was late. */
const SIGNIFICANT_WAIT = 0.1;

/** The share of their seat time that running requests still need, on average. */
export const LEFT_SHARE = 0.5;

/** Whether the time of a lease that ended for this reason shows how long requests hold a seat; other leases ended early. */
export function isMeasurement(reason: ReleaseReason): boolean {
  return MEASURED.has(reason);
}

export class Forecast {
  /** The longest wait from `enter` to a seat, ms. */
  readonly maxWaitMs: number;
  readonly #state: QueueState;
  /** Of all accounts together; used for accounts of which no request has ended. */
  readonly #hold = new HoldTime();
  readonly #duration = new HoldTime();

  constructor(state: QueueState, maxWaitMs: number) {
    this.#state = state;
    this.maxWaitMs = maxWaitMs;
  }

  /** Whether a wait can be predicted: a lease has ended. */
  get canPredict(): boolean {
    return this.#hold.meanMs !== undefined;
  }

  /** The time on a seat, ms, that is assumed for accounts of which no request has ended. */
  get usualMs(): number {
    return this.#hold.meanMs ?? FIRST_GUESS_MS;
  }

  /**
   * A lease ended that shows how long requests run. If its deadline passed because it had waited too long for its seat, it should not have
   * been admitted. It counts as two waits that were too long, since it also used a seat that another request needed.
   */
  leaseEnded(queued: QueuedRequest, reason: ReleaseReason): void {
    const accountClass = this.#state.classOf(queued);
    const durationMs = this.#state.now - queued.grantedAt;
    accountClass.duration.observe(durationMs);
    this.#duration.observe(durationMs);
    const waited = queued.waitedMs > 0 && queued.waitedMs >= SIGNIFICANT_WAIT * durationMs;
    if (reason !== 'deadline' || !this.#state.hadEngine(queued) || !waited) return;
    this.waitedTooLong(queued);
    this.waitedTooLong(queued);
  }

  /** As {@link HoldTime.observe}, of a lease of this class and the time for which its seat was kept then. */
  seatUsed(account: Account, accountClass: AccountClass, ms: number, isFreed: boolean): void {
    accountClass.hold.observe(ms, isFreed);
    this.#hold.observe(ms, isFreed);
    account.observeHold(ms, isFreed);
  }

  /**
   * The predicted wait of one more request of `account` and this class if it arrived now and no seat is free for it (Ŵ), ms.
   *
   * Before it, the seats have to serve the waiting requests of its own class, and of every other account and class as much as
   * is due before the newcomer's turn: at most what is waiting there, and at most the share of its weight during the time that
   * the newcomer's class is served. All seats work on that at once, and the first one becomes free when a running request
   * ends. The result is no shorter than the rate at which the class is given seats now implies, unless the account is
   * the only one, since requests of others will arrive meanwhile. O(active accounts).
   *
   * `seats`: those that are long enough for it; `held`: those that the running requests hold, where not all seats are long enough.
   */
  waitMs(account: Account, accountClass: AccountClass, seats: number, held = seats): number {
    const { usualMs } = this;
    const { columns } = this.#state;
    const rank = account.rankOf(accountClass);
    const hold = holdOf(account, accountClass, usualMs);
    // Newest first: the waiting requests of its own class are served after it.
    const ownBefore = accountClass.newestFirst ? 0 : accountClass.waiting;
    let beforeMs = ownBefore * hold;
    const turn = { rank: rank + (beforeMs + hold) / account.weightOf(accountClass), usualMs };
    if (account.waiting > accountClass.waiting) beforeMs += dueMs(account, turn, accountClass);
    let runningMs = 0;
    const { active: slots, holdMs, leases, waiting, weight, virtualMs, classes } = columns;
    for (let at = 0; at < slots.length; at += 1) {
      const slot = slots[at] ?? 0;
      const known = holdMs[slot] ?? NaN;
      const otherHold = Number.isNaN(known) ? usualMs : known;
      runningMs += (leases[slot] ?? 0) * otherHold;
      const waits = waiting[slot] ?? 0;
      if (slot === account.slot || waits === 0) continue;
      const share = (weight[slot] ?? 0) * (turn.rank - Math.min(rank, virtualMs[slot] ?? 0));
      const hasSeveral = (classes[slot] ?? 0) > 1;
      beforeMs += Math.min(share, hasSeveral ? dueMs(columns.accountAt(slot), turn) : waits * otherHold);
    }
    const predicted = (beforeMs + runningMs / Math.max(1, held)) / Math.max(1, seats);
    const isAlone = slots.length === (account.activeAt < 0 ? 0 : 1);
    const paced = isAlone ? 0 : accountClass.serviceRate.waitMs(Math.min(accountClass.waiting, ownBefore + 1));
    return accountClass.calibration * Math.max(predicted, paced);
  }

  /**
   * The place of a request of `account` and this class that waits, or that would wait from now on.
   *
   * Its position is the number of waiting requests that have their turns before it if none came and none left: those whose engine was lost;
   * of its own class those before it in the order of its end users; and of every other class as many as are seated until
   * the class's virtual time has passed the one at which this request is seated. That a class has at its k-th seat from now on, if each of
   * its requests takes its usual seat time, and running ones still need half of it. Equal ones: in the order of the heap. With several
   * seats the order may turn out to be another, since requests are charged as time passes and not when they are seated.
   *
   * The expected wait is the seat time of these, and of the first running one to end, on all seats at once. O(active accounts), of which
   * MOST_COUNTED are looked at closely.
   */
  place(account: Account, accountClass: AccountClass, queued: Turn & Partial<QueuedRequest>): QueuePlace {
    const { usualMs } = this;
    const { returned, replicas, columns } = this.#state;
    const { active, virtualMs, weight, holdMs, waiting, rate, classes, seatable } = columns;
    let position = 0;
    let beforeMs = 0;
    const count = (requests: number, holdMs: number): void => {
      position += requests;
      beforeMs += requests * holdMs;
    };
    if (queued.list === returned) {
      for (let other = queued.prev; other !== undefined && position < MOST_COUNTED; other = other.prev)
        count(1, usualMs);
    } else {
      count(returned.length, usualMs);
      const own = accountClass.users.before(queued, accountClass.newestFirst);
      const hold = holdOf(account, accountClass, usualMs);
      count(own, hold);
      const turnMs = startMs(account, accountClass, usualMs) + (own * hold) / account.weightOf(accountClass);
      const ownTurnMs = account.turnOf(accountClass) + (own * hold) / accountClass.weight;
      let looked = 0;
      for (const slot of active) {
        const hasOne = classes[slot] === 1 && slot !== account.slot;
        // Most accounts end here: the turn of an only class comes later than this one.
        if ((hasOne && (virtualMs[slot] ?? 0) > turnMs) || seatable[slot] !== 1) continue;
        if (position >= MOST_COUNTED || (looked += 1) > MOST_COUNTED) break;
        if (hasOne) {
          // Others here, before their objects are read.
          const each = Number.isNaN(holdMs[slot]) ? usualMs : (holdMs[slot] ?? usualMs);
          const startsMs = (virtualMs[slot] ?? 0) + (rate[slot] ?? 0) * LEFT_SHARE * each;
          const turns = ((turnMs - startsMs) * (weight[slot] ?? 0)) / each;
          if (!Number.isInteger(turns)) {
            count(Math.min(waiting[slot] ?? 0, Math.max(0, Math.ceil(turns))), each);
            continue;
          }
        }
        const other = columns.accountAt(slot);
        const isFirst = other.seatable.at < account.seatable.at;
        for (const known of other.classes) {
          if (known === accountClass || known.waiting === 0) continue;
          const each = holdOf(other, known, usualMs);
          const isOwn = other === account;
          const untilMs = isOwn
            ? (ownTurnMs - account.turnOf(known)) * known.weight
            : (turnMs - startMs(other, known, usualMs)) * other.weightOf(known);
          const turns = untilMs / each;
          const before = isOwn || !isFirst ? Math.ceil(turns) : Math.floor(turns) + 1;
          count(Math.min(known.waiting, Math.max(0, before)), each);
        }
      }
    }
    position = Math.min(position, MOST_COUNTED);
    if (!this.canPredict) return { position, expectedWaitMs: undefined };
    const { seatTokens = 0 } = queued;
    const seats = seatTokens === 0 ? this.#state.seats : replicas.seatsFor(seatTokens);
    const isFree = replicas.freeSeats > position && replicas.hasFree(seatTokens);
    return { position, expectedWaitMs: isFree ? 0 : (beforeMs + usualMs) / Math.max(1, seats) };
  }

  /** How long a request may wait and still meet its deadline (B), ms. With `accountClass` it has to end by then, otherwise to begin. */
  budgetMs(accountClass: AccountClass | undefined, deadlineAt = Infinity): number {
    const durationMs = accountClass === undefined ? 0 : (accountClass.duration.meanMs ?? this.#duration.meanMs ?? 0);
    return Math.max(0, Math.min(this.maxWaitMs, deadlineAt - this.#state.now - durationMs));
  }

  /** A wait ended because it was too long. It corrects the predictions of its class, if there was one. */
  waitedTooLong(queued: QueuedRequest): void {
    if (queued.predictedMs !== undefined) this.#state.classOf(queued).waitedTooLong();
  }

  /** A wait ended with a seat. A request that did not have to wait tests no prediction. */
  seated(queued: QueuedRequest): void {
    if (queued.predictedMs !== undefined && queued.waitedMs > 0) this.#state.classOf(queued).waitedAndSeated();
  }
}

/** The usual seat time of one request of a class, ms. */
function holdOf(account: Account, { hold }: AccountClass, usualMs: number): number {
  return hold.meanMs ?? account.holdMs ?? usualMs;
}

/** The virtual time at which a class is given its next seat. */
function startMs(account: Account, accountClass: AccountClass, usualMs: number): number {
  return account.rankOf(accountClass) + account.rate * LEFT_SHARE * (account.holdMs ?? usualMs);
}

/** Seat time that is due to the classes of an account before the rank of a newcomer's turn, ms, without the class `except`. O(classes). */
function dueMs(
  account: Account,
  turn: { readonly rank: number; readonly usualMs: number },
  except?: AccountClass,
): number {
  let due = 0;
  let rank = 0;
  for (const known of account.classes) {
    rank = Math.max(rank, known.virtualMs);
    if (known === except || known.waiting === 0) continue;
    const each = holdOf(account, known, turn.usualMs);
    due += Math.min(known.waiting * each, account.weightOf(known) * Math.max(0, turn.rank - rank));
  }
  return due;
}
