import { FairnessWindow } from './fairness-window.js';
import { Heap } from '../lib/heap.js';
import type { AccountClass } from './account-class.js';
import { Account } from './account.js';
import { AccountColumns } from './account-columns.js';

/** The most accounts that are remembered. Past it the account that has been idle longest is forgotten; one that waits or runs never is. */
const MAX_ACCOUNTS = 10_000;

/** How long an account still counts as having a backlog after one of its requests was refused because the queue stands, ms. */
const PRESSED_MS = 5000;

/**
 * Which accounts are active (wait or run), and what each has been charged.
 *
 * An account gains no claim to seats while it is idle: when one of its requests can be seated, its virtual time is lifted.
 * VTC lifts to the lowest of the accounts that wait, which is undefined while none waits. This takes the highest of three
 * values: the lowest of the other active accounts; that of the account whose turn it was when a seat was last given
 * (start-time fair queuing, P. Goyal et al., 1996), below which an account with few requests would otherwise stay; and,
 * after all accounts were idle, the highest that there was, so that no difference outlives the contention that caused it. None of
 * the three is above the lowest of the accounts that wait already, so a lift never delays an account beyond its turn.
 */
export class Accounts {
  readonly #byName = new Map<string, Account>();
  /** In the order in which they became idle. */
  readonly #idle = new Heap<Account>((a, b) => a.idleOrder < b.idleOrder);
  /** In no order. */
  readonly #running = new Heap<Account>(() => false);
  #lastIdle = 0;
  readonly #window = new FairnessWindow();
  #accruedAt = 0;
  /** The least virtual time to which an account is lifted. */
  #floorMs = 0;
  /** The highest virtual time of the accounts that became idle. */
  #highestMs = 0;

  /** The numbers of all accounts that are read in one pass. */
  readonly columns = new AccountColumns();
  readonly #bySlot: Account[] = [];
  /** Those who wait or run, lowest virtual time first. */
  readonly active = new Heap<Account>(lower);
  /** The same, the one with the most requests in the queue first. */
  readonly crowds = new Heap<Account>((a, b) => a.inRoom > b.inRoom);
  /** Those with a request that can be seated, likewise. */
  readonly seatable = new Heap<Account>(lower);

  /** Accounts remembered. */
  get size(): number {
    return this.#byName.size;
  }

  /** Jain's index of the last whole window; undefined: fewer than two accounts had a backlog all through it. */
  get fairness(): number | undefined {
    return this.#window.index;
  }

  all(): Iterable<Account> {
    return this.#byName.values();
  }

  /**
   * The account of an arriving request, created if necessary. The request's class is lifted if it had no request to seat. All
   * accounts must have been charged up to now.
   */
  arriving(name: string, weight: number): Account {
    let account = this.#byName.get(name);
    if (account === undefined) {
      this.#forgetOne();
      this.#byName.set(name, (account = new Account(name, this.columns)));
      this.#bySlot[account.slot] = account;
      this.#becomeIdle(account);
    }
    const arrived = account.classFor(weight);
    if (account.active.at < 0) account.weight = arrived.weight;
    if (!arrived.hasSeatable) this.lift(account, arrived);
    return account;
  }

  /** The account with this slot in the columns; throws if no account ever had it. */
  at(slot: number): Account {
    const account = this.#bySlot[slot];
    if (account === undefined) throw new Error('no account has this slot');
    return account;
  }

  /** An account that waits or runs, which is never forgotten. */
  known(name: string): Account {
    const account = this.#byName.get(name);
    if (account === undefined) throw new Error('an account was forgotten that waits or runs');
    return account;
  }

  /** Charges all accounts for the seats that they held since the last call. Called before every decision. */
  accrue(now: number): void {
    const passed = now - this.#accruedAt;
    this.#accruedAt = now;
    if (passed <= 0) return;
    this.#running.each((account) => {
      // A charge only ever raises a rank.
      account.charge(passed);
      this.active.movedBack(account.active);
      this.seatable.movedBack(account.seatable);
    });
    this.#window.roll(now, this.active);
  }

  /**
   * A request gets a seat: no account is lifted below the one whose turn it is, though that one may be passed
   * (next-request.ts).
   */
  raiseFloor(): void {
    this.#floorMs = Math.max(this.#floorMs, this.seatable.first?.virtualMs ?? 0);
  }

  /** `account` holds so many seats more or less for requests of this class. */
  hold(account: Account, accountClass: AccountClass, seats: number): void {
    account.running += seats;
    accountClass.running += seats;
    if (account.running === 0) this.#running.remove(account.holding);
    else if (account.holding.at < 0) this.#running.add(account.holding);
    this.stir(account);
  }

  /** Who waits or runs of `account` changed. */
  stir(account: Account): void {
    account.rank();
    this.active.moved(account.active);
    this.crowds.moved(account.crowd);
    this.seatable.moved(account.seatable);
    const active = account.waiting + account.running > 0;
    if (active && account.active.at < 0) {
      this.#idle.remove(account.idle);
      this.active.add(account.active);
      this.columns.setActive(account.slot, true);
      this.crowds.add(account.crowd);
    } else if (!active && account.active.at >= 0) {
      this.active.remove(account.active);
      this.columns.setActive(account.slot, false);
      this.crowds.remove(account.crowd);
      this.#highestMs = Math.max(this.#highestMs, account.virtualMs);
      if (this.active.size === 0) this.#floorMs = this.#highestMs;
      this.#becomeIdle(account);
    }
    const seatable = account.next !== undefined;
    if (seatable && account.seatable.at < 0) {
      this.seatable.add(account.seatable);
      if (!this.#pressed(account)) account.backloggedSince = this.#accruedAt;
      account.backloggedSince ??= this.#accruedAt;
    } else if (!seatable && account.seatable.at >= 0) {
      this.seatable.remove(account.seatable);
      account.emptyAt = this.#accruedAt;
      if (!this.#pressed(account)) account.backloggedSince = undefined;
    }
  }

  /** To the others' virtual time: before one of a class begins to wait, where none of it did. */
  lift(account: Account, accountClass: AccountClass): void {
    const lowest = this.active.firstBut(account.active)?.virtualMs ?? 0;
    account.lift(accountClass, Math.max(lowest, this.#floorMs));
    this.active.moved(account.active);
    this.seatable.moved(account.seatable);
  }

  /** Whether it wants more than it is given, though nothing of it waits: it was refused, and lacked for no longer than that. */
  #pressed({ pressedAt, emptyAt }: Account): boolean {
    return this.#accruedAt - pressedAt < PRESSED_MS && this.#accruedAt - emptyAt < PRESSED_MS;
  }

  #forgetOne(): void {
    if (this.#byName.size < MAX_ACCOUNTS) return;
    const longest = this.#idle.first;
    if (longest === undefined) return;
    this.#idle.remove(longest.idle);
    this.#byName.delete(longest.name);
    this.columns.release(longest.slot);
  }

  #becomeIdle(account: Account): void {
    account.idleOrder = this.#lastIdle += 1;
    this.#idle.add(account.idle);
  }
}

/** Of two that were charged alike, the one that holds fewer seats now. */
function lower(a: Account, b: Account): boolean {
  return a.virtualMs === b.virtualMs ? a.rate < b.rate : a.virtualMs < b.virtualMs;
}
