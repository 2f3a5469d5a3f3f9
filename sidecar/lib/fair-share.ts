/**
 * Chooses the next item of a worker that several accounts use, such as a prompt host or a vision process: start-time fair
 * queuing (P. Goyal et al., 1996) of the worker's time between accounts.
 *
 * Each account has a virtual time: the time that its items took, in ms, over its weight. The waiting account with the lowest one is next,
 * with its oldest item. An item's time is known only when it is done, so the account is charged in advance by its recent average, and the
 * difference afterwards. An account without waiting items starts at the virtual time of the last item that was taken, so that idle accounts
 * save up no time, and an account with occasional items waits only for items that are taken, however many another account has waiting.
 *
 * An idle account is removed once the others have caught up with it, and all are when no item is left.
 */
import { Heap, HeapNode } from './heap.js';

/** An account and its share of the worker's time. */
export interface WeightedAccount {
  readonly account: string;
  /** Above 0. */
  readonly weight: number;
}

/** The expected cost of an item of a new account, ms: several usual short prompts. It matters only where several items run at once. */
const NEW_MS = 0.5;

/** The share of the difference by which the expected cost falls after a cheaper item; after a more expensive one it rises at once. */
const FALL = 1 / 8;

/** Accounts that are remembered at once. Past it the idle account with the lowest virtual time is removed. */
const MAX_ACCOUNTS = 10_000;

class FairShareAccount<T> {
  readonly name: string;
  virtualMs = 0;
  /** The expected cost of an item. */
  expectedMs = NEW_MS;
  /** Its waiting items, oldest first, and the same newest first. */
  readonly oldest = new Heap<Item<T>>((a, b) => a.id < b.id);
  readonly newest = new Heap<Item<T>>((a, b) => a.id > b.id);
  taken = 0;
  /** Among the accounts with waiting items. */
  readonly ready: HeapNode<FairShareAccount<T>> = new HeapNode<FairShareAccount<T>>(this);
  /** Among those without any item. */
  readonly idle: HeapNode<FairShareAccount<T>> = new HeapNode<FairShareAccount<T>>(this);

  constructor(name: string) {
    this.name = name;
  }
}

/** One item, from {@link FairShare.add} until it is done or removed. */
export class Item<T> {
  static #made = 0;
  /** Increases with every item of this process. */
  readonly id = Item.#made++;
  readonly task: T;
  readonly owner: WeightedAccount;
  /** Where it waits or was taken from. */
  readonly share: FairShare<T>;
  /** For the queue alone. */
  readonly account: FairShareAccount<T>;
  readonly oldest: HeapNode<Item<T>> = new HeapNode<Item<T>>(this);
  readonly newest: HeapNode<Item<T>> = new HeapNode<Item<T>>(this);
  /** The amount charged in advance, in ms. */
  advanceMs = 0;
  /** The result is not needed any more. Only the owner of the queue writes and reads it. */
  abandoned = false;

  constructor(task: T, owner: WeightedAccount, share: FairShare<T>, account: FairShareAccount<T>) {
    this.share = share;
    this.task = task;
    this.owner = owner;
    this.account = account;
  }
}

/** Items of all accounts. Operations are O(log n), except {@link longest}. Reads no clock. */
export class FairShare<T> {
  readonly #accounts = new Map<string, FairShareAccount<T>>();
  readonly #ready = new Heap<FairShareAccount<T>>(isBefore);
  readonly #idle = new Heap<FairShareAccount<T>>((a, b) => a.virtualMs < b.virtualMs);
  /** Virtual time at which the last item was taken. */
  #nowMs = 0;
  #waiting = 0;
  #taken = 0;

  /** Items that wait. */
  get size(): number {
    return this.#waiting;
  }

  get accounts(): number {
    return this.#accounts.size;
  }

  /** The expected cost of the next item, in ms; undefined if none waits. */
  get expectedMs(): number | undefined {
    return this.#ready.first?.expectedMs;
  }

  /** A new item, after all others of its account. */
  add(task: T, owner: WeightedAccount): Item<T> {
    const item = new Item(task, owner, this, this.#accountOf(owner.account));
    this.#enqueue(item);
    return item;
  }

  /** The next item, now taken. Its account is charged the expected cost. */
  take(): Item<T> | undefined {
    const item = this.#ready.first?.oldest.first;
    if (item === undefined) return undefined;
    const { account } = item;
    this.#nowMs = Math.max(this.#nowMs, account.virtualMs);
    account.taken += 1;
    this.#taken += 1;
    this.#unqueue(item);
    item.advanceMs = account.expectedMs;
    this.#advance(account, item.advanceMs / item.owner.weight);
    for (let idle = this.#idle.first; idle && idle.virtualMs <= this.#nowMs; idle = this.#idle.first)
      this.#forget(idle);
    return item;
  }

  /** A taken item waits again, as if it had not been taken. */
  putBack(item: Item<T>): void {
    this.#advance(item.account, -item.advanceMs / item.owner.weight);
    this.#enqueue(item);
    this.#untake(item.account);
  }

  /** Removes a waiting item; does nothing for a taken one. */
  remove(item: Item<T>): void {
    if (item.oldest.at < 0) return;
    this.#unqueue(item);
    this.#keepOrForget(item.account);
  }

  /** Charges the time of a taken item whose worker ended while it ran. Call {@link done} or {@link putBack} besides. */
  spend(item: Item<T>, ms: number): void {
    item.account.expectedMs = Math.max(item.account.expectedMs, ms);
    this.#advance(item.account, ms / item.owner.weight);
  }

  /** Charges time to an account that may have no items here any more. */
  charge(owner: WeightedAccount, ms: number): void {
    const account = this.#accounts.get(owner.account);
    if (account) this.#advance(account, ms / owner.weight);
  }

  /** A taken item is done after `ms` of the worker's time; undefined if it never ran. */
  done(item: Item<T>, ms: number | undefined): void {
    const { account, advanceMs, owner } = item;
    if (ms !== undefined) {
      const { expectedMs } = account;
      account.expectedMs = ms > expectedMs ? ms : expectedMs + (ms - expectedMs) * FALL;
    }
    this.#advance(account, ((ms ?? 0) - advanceMs) / owner.weight);
    this.#untake(account);
  }

  /** The newest item of the account with the most waiting items, if it has more than `account`. */
  longest(account: string): Item<T> | undefined {
    let most = this.#accounts.get(account)?.oldest.size ?? 0;
    let found: Item<T> | undefined;
    for (const { oldest, newest } of this.#ready) {
      if (oldest.size <= most) continue;
      most = oldest.size;
      found = newest.first;
    }
    return found;
  }

  /** Removes all waiting items. */
  clear(): readonly Item<T>[] {
    const all = [...this.#ready].flatMap(({ oldest }) => [...oldest]);
    for (const item of all) this.remove(item);
    return all;
  }

  #accountOf(name: string): FairShareAccount<T> {
    const known = this.#accounts.get(name);
    if (known) return known;
    if (this.#accounts.size >= MAX_ACCOUNTS && this.#idle.first) this.#forget(this.#idle.first);
    const account = new FairShareAccount<T>(name);
    this.#accounts.set(name, account);
    return account;
  }

  #enqueue(item: Item<T>): void {
    const { account } = item;
    this.#idle.remove(account.idle);
    if (account.oldest.size === 0) account.virtualMs = Math.max(account.virtualMs, this.#nowMs);
    account.oldest.add(item.oldest);
    account.newest.add(item.newest);
    this.#waiting += 1;
    if (account.ready.at < 0) this.#ready.add(account.ready);
    else this.#ready.moved(account.ready);
  }

  #unqueue({ account, oldest, newest }: Item<T>): void {
    account.oldest.remove(oldest);
    account.newest.remove(newest);
    this.#waiting -= 1;
    if (account.oldest.size === 0) this.#ready.remove(account.ready);
    else this.#ready.moved(account.ready);
  }

  #advance(account: FairShareAccount<T>, ms: number): void {
    account.virtualMs += ms;
    this.#ready.moved(account.ready);
    this.#idle.moved(account.idle);
  }

  /** A taken item has ended. */
  #untake(account: FairShareAccount<T>): void {
    account.taken -= 1;
    this.#taken -= 1;
    this.#keepOrForget(account);
  }

  /** Keeps an account without items while its virtual time is ahead of the others. */
  #keepOrForget(account: FairShareAccount<T>): void {
    if (account.taken > 0 || account.oldest.size > 0) return;
    this.#idle.add(account.idle);
    if (account.virtualMs <= this.#nowMs) this.#forget(account);
    if (this.#waiting > 0 || this.#taken > 0) return;
    for (let idle = this.#idle.first; idle; idle = this.#idle.first) this.#forget(idle);
    this.#nowMs = 0;
  }

  #forget(account: FairShareAccount<T>): void {
    this.#idle.remove(account.idle);
    this.#accounts.delete(account.name);
  }
}

/** Between accounts with equal virtual times, the one with the older item is first. */
function isBefore<T>(a: FairShareAccount<T>, b: FairShareAccount<T>): boolean {
  if (a.virtualMs !== b.virtualMs) return a.virtualMs < b.virtualMs;
  return (a.oldest.first?.id ?? 0) < (b.oldest.first?.id ?? 0);
}
