/**
 * Whose item a prompt host works on next: start-time fair queuing (P. Goyal et al., 1996) of host time between accounts.
 *
 * Each account has a virtual time: the host time that its items took, in ms, over its weight. The waiting account with the
 * lowest one is next; within an account the oldest item is. An item's time is known only when it is done, so the account is
 * charged in advance what its items took lately, and the difference afterwards. An account that had nothing waiting begins
 * where the last item that was taken began, so that no account saves up time while it is away, and one that sends a prompt
 * now and then waits only for the items that are being worked on, however many another account has waiting.
 *
 * An account that is idle is forgotten once the others have caught up with it, and all are when no item is left.
 */
import { Heap, HeapNode } from '../lib/heap.js';

/** What an item of an account without a history is taken to cost, in ms: several times that of a usual short prompt. */
const NEW_MS = 0.5;

/** The part of the difference to a cheaper item by which the expected cost falls; to a dearer one it rises at once. */
const FALL = 1 / 8;

/** Accounts that are remembered at once. Past it the idle account that is charged least is forgotten. */
const MAX_ACCOUNTS = 10_000;

/** The account that an item is worked on for. */
export interface Payer {
  readonly account: string;
  /** The account's share beside others: above 0. */
  readonly weight: number;
}

/** One account's part. */
class Account<T> {
  readonly name: string;
  virtualMs = 0;
  /** What an item of it is expected to cost. */
  expectedMs = NEW_MS;
  /** Its waiting items, oldest first, and the same newest first. */
  readonly oldest = new Heap<Item<T>>((a, b) => a.id < b.id);
  readonly newest = new Heap<Item<T>>((a, b) => a.id > b.id);
  /** Items taken and not done. */
  taken = 0;
  /** Among the accounts with waiting items. */
  readonly ready: HeapNode<Account<T>> = new HeapNode<Account<T>>(this);
  /** Among those without any item. */
  readonly idle: HeapNode<Account<T>> = new HeapNode<Account<T>>(this);

  constructor(name: string) {
    this.name = name;
  }
}

/** One item, from {@link FairShare.add} until it is done or removed. */
export class Item<T> {
  /** Rises with every item. */
  readonly id: number;
  readonly job: T;
  readonly payer: Payer;
  /** Where it waits or was taken from. */
  readonly share: FairShare<T>;
  /** For the queue alone. */
  readonly account: Account<T>;
  readonly oldest: HeapNode<Item<T>> = new HeapNode<Item<T>>(this);
  readonly newest: HeapNode<Item<T>> = new HeapNode<Item<T>>(this);
  /** What its account was charged in advance, in ms. */
  advanceMs = 0;
  /** Set once the result is of no interest, nor its part in a death. */
  abandoned = false;

  constructor(id: number, job: T, payer: Payer, share: FairShare<T>, account: Account<T>) {
    this.id = id;
    this.share = share;
    this.job = job;
    this.payer = payer;
    this.account = account;
  }
}

/** Items of all accounts. Operations are O(log n), but for {@link longest}. Reads no clock. */
export class FairShare<T> {
  readonly #accounts = new Map<string, Account<T>>();
  readonly #ready = new Heap<Account<T>>(isBefore);
  readonly #idle = new Heap<Account<T>>((a, b) => a.virtualMs < b.virtualMs);
  /** Virtual time at which the last taken item began. */
  #nowMs = 0;
  #waiting = 0;
  #taken = 0;
  readonly #nextId: () => number;

  /** `nextId`: gives the items' ids; shares that have one source have no two items of one id. */
  constructor(nextId: () => number) {
    this.#nextId = nextId;
  }

  /** Items that wait. */
  get size(): number {
    return this.#waiting;
  }

  /** Accounts remembered. */
  get accounts(): number {
    return this.#accounts.size;
  }

  /** What the next item is expected to cost, in ms; undefined: none waits. */
  get expectedMs(): number | undefined {
    return this.#ready.first?.expectedMs;
  }

  /** A new item, which waits behind all others of its account. */
  add(job: T, payer: Payer): Item<T> {
    const item = new Item(this.#nextId(), job, payer, this, this.#accountOf(payer.account));
    this.#wait(item);
    return item;
  }

  /** The next item, which waits no more. Its account is charged what it is expected to cost. */
  take(): Item<T> | undefined {
    const item = this.#ready.first?.oldest.first;
    if (item === undefined) return undefined;
    const { account } = item;
    this.#nowMs = Math.max(this.#nowMs, account.virtualMs);
    account.taken += 1;
    this.#taken += 1;
    this.#leave(item);
    item.advanceMs = account.expectedMs;
    this.#charge(account, item.advanceMs / item.payer.weight);
    for (let idle = this.#idle.first; idle && idle.virtualMs <= this.#nowMs; idle = this.#idle.first)
      this.#forget(idle);
    return item;
  }

  /** A taken item waits again, as if it had not been taken. */
  putBack(item: Item<T>): void {
    this.#charge(item.account, -item.advanceMs / item.payer.weight);
    this.#wait(item);
    this.#release(item.account);
  }

  /** Takes a waiting item out; one that was taken is left alone. */
  remove(item: Item<T>): void {
    if (item.oldest.at < 0) return;
    this.#leave(item);
    this.#rest(item.account);
  }

  /** A taken item cost so many ms that brought it no nearer to its end: its host died. */
  spend(item: Item<T>, ms: number): void {
    item.account.expectedMs = Math.max(item.account.expectedMs, ms);
    this.#charge(item.account, ms / item.payer.weight);
  }

  /** An account that may have nothing here any more caused work of so many ms. */
  chargeLater(payer: Payer, ms: number): void {
    const account = this.#accounts.get(payer.account);
    if (account) this.#charge(account, ms / payer.weight);
  }

  /** A taken item is done after `ms` of host time; undefined: it was never begun. */
  done(item: Item<T>, ms: number | undefined): void {
    const { account, advanceMs, payer } = item;
    if (ms !== undefined) {
      const { expectedMs } = account;
      account.expectedMs = ms > expectedMs ? ms : expectedMs + (ms - expectedMs) * FALL;
    }
    this.#charge(account, ((ms ?? 0) - advanceMs) / payer.weight);
    this.#release(account);
  }

  /** The newest item of the account that has most waiting, if it has more waiting than `account`. */
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

  /** Takes all waiting items out. */
  clear(): readonly Item<T>[] {
    const all = [...this.#ready].flatMap(({ oldest }) => [...oldest]);
    for (const item of all) this.remove(item);
    return all;
  }

  #accountOf(name: string): Account<T> {
    const known = this.#accounts.get(name);
    if (known) return known;
    if (this.#accounts.size >= MAX_ACCOUNTS && this.#idle.first) this.#forget(this.#idle.first);
    const account = new Account<T>(name);
    this.#accounts.set(name, account);
    return account;
  }

  #wait(item: Item<T>): void {
    const { account } = item;
    this.#idle.remove(account.idle);
    if (account.oldest.size === 0) account.virtualMs = Math.max(account.virtualMs, this.#nowMs);
    account.oldest.add(item.oldest);
    account.newest.add(item.newest);
    this.#waiting += 1;
    if (account.ready.at < 0) this.#ready.add(account.ready);
    else this.#ready.moved(account.ready);
  }

  #leave({ account, oldest, newest }: Item<T>): void {
    account.oldest.remove(oldest);
    account.newest.remove(newest);
    this.#waiting -= 1;
    if (account.oldest.size === 0) this.#ready.remove(account.ready);
    else this.#ready.moved(account.ready);
  }

  #charge(account: Account<T>, ms: number): void {
    account.virtualMs += ms;
    this.#ready.moved(account.ready);
    this.#idle.moved(account.idle);
  }

  /** One that was taken is no more. */
  #release(account: Account<T>): void {
    account.taken -= 1;
    this.#taken -= 1;
    this.#rest(account);
  }

  /** Remembers an account without items while it is ahead of the others. */
  #rest(account: Account<T>): void {
    if (account.taken > 0 || account.oldest.size > 0) return;
    this.#idle.add(account.idle);
    if (account.virtualMs <= this.#nowMs) this.#forget(account);
    if (this.#waiting > 0 || this.#taken > 0) return;
    for (let idle = this.#idle.first; idle; idle = this.#idle.first) this.#forget(idle);
    this.#nowMs = 0;
  }

  #forget(account: Account<T>): void {
    this.#idle.remove(account.idle);
    this.#accounts.delete(account.name);
  }
}

/** Of two accounts that were charged alike, the one whose item is older. */
function isBefore<T>(a: Account<T>, b: Account<T>): boolean {
  if (a.virtualMs !== b.virtualMs) return a.virtualMs < b.virtualMs;
  return (a.oldest.first?.id ?? 0) < (b.oldest.first?.id ?? 0);
}
