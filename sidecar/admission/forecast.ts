import { HoldTime } from './hold-time.js';
import type { QueuedRequest } from './queued-request.js';
import type { ReleaseReason } from './seat-queue.js';
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';
import type { Accounts } from './accounts.js';

/** The assumed time of a request on a seat before any has ended, ms. Used for Retry-After only: no request is refused by it. */
const FIRST_GUESS_MS = 1000;

/** Ends of a lease that the caller or the work decided. */
const MEASURED: ReadonlySet<ReleaseReason> = new Set(['done', 'cancelled', 'deadline']);

/** A wait shorter than this share of the time on the seat is not the reason why a reply was late. */
const SIGNIFICANT_WAIT = 0.1;

/** How a lease ended. */
export interface Ending {
  readonly reason: ReleaseReason;
  /** From its first seat to its end, ms. */
  readonly wallMs: number;
  /** The engine was there all the time since its request entered. */
  readonly unbroken: boolean;
}

/** Whether the time of a lease that ended for this reason shows how long requests hold a seat; other leases ended early. */
export function isMeasurement(reason: ReleaseReason): boolean {
  return MEASURED.has(reason);
}

/** Predicts how long a request would wait, from the leases that ended; and computes how long it may wait. */
export class Forecast {
  readonly #accounts: Accounts;
  readonly #maxWaitMs: number;
  /** Of all accounts together; used for accounts of which no request has ended. */
  readonly #hold = new HoldTime();
  readonly #wall = new HoldTime();

  constructor(accounts: Accounts, maxWaitMs: number) {
    this.#accounts = accounts;
    this.#maxWaitMs = maxWaitMs;
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
   * A lease ended. If its deadline passed because it had waited too long for its seat, it should not have been admitted. It
   * counts as two waits that were too long, since it also used a seat that another request needed.
   */
  ended(queued: QueuedRequest, account: Account, { reason, wallMs, unbroken }: Ending): void {
    if (!isMeasurement(reason)) return;
    const accountClass = account.classFor(queued.request.weight);
    for (const { hold, wall } of [accountClass, { hold: this.#hold, wall: this.#wall }]) {
      hold.observe(queued.seatMs);
      wall.observe(wallMs);
    }
    account.observeHold(queued.seatMs);
    const waited = queued.waitedMs > 0 && queued.waitedMs >= SIGNIFICANT_WAIT * wallMs;
    if (reason !== 'deadline' || !unbroken || !waited) return;
    this.waited(queued, accountClass, true);
    this.waited(queued, accountClass, true);
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
    const rank = account.rankOf(accountClass);
    const hold = accountClass.hold.meanMs ?? account.holdMs ?? usualMs;
    // Newest first: the waiting requests of its own class are served after it.
    const before = accountClass.newestFirst ? 0 : accountClass.waiting;
    const own = before * hold;
    const turn = { at: rank + (own + hold) / accountClass.weight, hold: usualMs };
    let ahead = own + (account.waiting > accountClass.waiting ? owedTo(account, turn, accountClass) : 0);
    let running = 0;
    const { active, activeCount, holdMs, leases, waiting, weight, virtualMs, classes } = this.#accounts.columns;
    for (let i = 0; i < activeCount; i += 1) {
      const other = active[i] ?? 0;
      const known = holdMs[other] ?? NaN;
      const otherHold = Number.isNaN(known) ? usualMs : known;
      running += (leases[other] ?? 0) * otherHold;
      const waits = waiting[other] ?? 0;
      if (other === account.slot || waits === 0) continue;
      const owed = (weight[other] ?? 0) * (turn.at - Math.min(rank, virtualMs[other] ?? 0));
      const several = (classes[other] ?? 0) > 1;
      ahead += Math.min(owed, several ? owedTo(this.#accounts.at(other), turn) : waits * otherHold);
    }
    const predicted = (ahead + running / Math.max(1, held)) / Math.max(1, seats);
    const alone = this.#accounts.active.firstBut(account.active) === undefined;
    const paced = alone ? 0 : accountClass.serviceRate.waitMs(Math.min(accountClass.waiting, before + 1));
    return accountClass.calibration * Math.max(predicted, paced);
  }

  /**
   * How long a request may wait and still meet its deadline (B), ms. With `accountClass` it has to end by then, otherwise to
   * begin.
   */
  budgetMs(accountClass: AccountClass | undefined, now: number, deadlineAt = Infinity): number {
    const wallMs = accountClass === undefined ? 0 : (accountClass.wall.meanMs ?? this.#wall.meanMs ?? 0);
    const untilTooLate = deadlineAt - now - wallMs;
    return Math.max(0, Math.min(this.#maxWaitMs, untilTooLate));
  }

  /** A wait ended: with a seat, or because it was too long. A request that did not have to wait tests no prediction. */
  waited(queued: QueuedRequest, accountClass: AccountClass, tooLong: boolean): void {
    if (queued.predictedMs === undefined) return;
    if (tooLong) accountClass.waitedTooLong();
    else if (queued.waitedMs > 0) accountClass.waitedAndSeated();
  }
}

/** The rank at which a newcomer's turn comes, and the time on a seat that is assumed for unknown accounts, ms. */
interface Turn {
  readonly at: number;
  readonly hold: number;
}

/** Seat time that is due to the classes of an account before that turn, ms, without the class `but`. O(classes). */
function owedTo(account: Account, { at, hold }: Turn, but?: AccountClass): number {
  let owed = 0;
  let rank = 0;
  for (const known of account.classes) {
    rank = Math.max(rank, known.virtualMs);
    if (known === but || known.waiting === 0) continue;
    const each = known.hold.meanMs ?? account.holdMs ?? hold;
    owed += Math.min(known.waiting * each, known.weight * Math.max(0, at - rank));
  }
  return owed;
}
