import { HoldTime } from './hold-time.js';
import type { QueuedRequest } from './queued-request.js';
import type { ReleaseReason } from './seat-queue.js';
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';
import type { Accounts } from './accounts.js';

/** What a request is taken to need before any has ended, ms. Only for Retry-After: no request is refused by it. */
const FIRST_GUESS_MS = 1000;

/** Ends of a lease that the caller or the work decided. */
const MEASURED: ReadonlySet<ReleaseReason> = new Set(['done', 'cancelled', 'deadline']);

/** A wait shorter than this share of the time on the seat is not the reason why a reply was late. */
const SIGNIFICANT_WAIT = 0.1;

/** How a lease ended. */
export interface Ending {
  readonly reason: ReleaseReason;
  /** From its first seat to its end, ms. */
  readonly heldMs: number;
  /** The engine was there all the time since its request entered. */
  readonly unbroken: boolean;
}

/** Whether the time of a lease that ended for this reason shows how long requests hold a seat; other leases were cut short. */
export function isMeasurement(reason: ReleaseReason): boolean {
  return MEASURED.has(reason);
}

/** Predicts how long a request would wait, from the leases that ended; and computes how long it may wait. */
export class Forecast {
  readonly #accounts: Accounts;
  readonly #maxWaitMs: number;
  /** Of all accounts together, for those that are not known yet. */
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

  /** What a request takes of an account that is not known yet, ms. */
  get usualMs(): number {
    return this.#hold.meanMs ?? FIRST_GUESS_MS;
  }

  /**
   * A lease ended. If its deadline passed because it had waited too long for its seat, it should not have been admitted. It
   * counts as two waits that were too long, since it also used a seat that another request needed.
   */
  ended(queued: QueuedRequest, account: Account, { reason, heldMs, unbroken }: Ending): void {
    if (!isMeasurement(reason)) return;
    const accountClass = account.classFor(queued.request.weight);
    for (const { hold, wall } of [accountClass, { hold: this.#hold, wall: this.#wall }]) {
      hold.observe(queued.seatMs);
      wall.observe(heldMs);
    }
    account.observeHold(queued.seatMs);
    const waited = queued.waitedMs > 0 && queued.waitedMs >= SIGNIFICANT_WAIT * heldMs;
    if (reason !== 'deadline' || !unbroken || !waited) return;
    this.waited(queued, accountClass, true);
    this.waited(queued, accountClass, true);
  }

  /**
   * How long one more request of `account` and of the class `of` would wait were it to come now, ms, where no seat is free
   * for it (Ŵ).
   *
   * Before it come its own class's requests and, of every other account and class, what that is owed until then: no more
   * than it has waiting, and no more than its weight's share while the newcomer's class is served its own. All that is
   * worked off by the seats at once, the first of which comes free when one of those who run ends. But no less than the
   * pace at which its class is given seats now, unless its account is alone: others will come who do not wait yet.
   * O(active accounts).
   */
  waitMs(account: Account, accountClass: AccountClass, seats: number): number {
    const { usualMs } = this;
    const rank = account.rankOf(accountClass);
    const hold = accountClass.hold.meanMs ?? account.holdMs ?? usualMs;
    // Newest first: its own class's requests wait behind it.
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
    const atOnce = Math.max(1, seats);
    const predicted = (ahead + running / atOnce) / atOnce;
    const alone = this.#accounts.active.firstBut(account.active) === undefined;
    const paced = alone ? 0 : accountClass.serviceRate.waitMs(Math.min(accountClass.waiting, before + 1));
    return accountClass.calibration * Math.max(predicted, paced);
  }

  /** How long a request may wait and still be of use, ms (B): of this class where it is to end by then, else just to begin. */
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

/** When a newcomer's turn comes, as a rank, and what a request takes of an account that is not known yet, ms. */
interface Turn {
  readonly at: number;
  readonly hold: number;
}

/** Seat time that the classes of an account, but for one of them, are given before that turn, ms. O(classes). */
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
