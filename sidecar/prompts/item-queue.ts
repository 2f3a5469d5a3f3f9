import { FairShare, type Item, type WeightedAccount } from '../lib/fair-share.js';

/**
 * Expected host time of the items, running ones included, that are sent to a host's own thread before it has answered, in ms. The
 * threads of a pool are sent nothing ahead: they would begin the next item before the answer to the last one has left the process,
 * and if that item ends the process, the answer would be lost.
 */
export const AHEAD_MS = 2;

/** Items sent beyond the running ones, however little they cost. */
const MAX_AHEAD = 16;

/**
 * Chooses the next item of the prompt host, and finds the item that ended it. Pure: no process, no timers.
 *
 * Items wait by account (lib/fair-share.ts). At most `width` run, one per worker, in the order in which they were sent. A
 * few more may be sent ahead, so that no worker waits for a round trip, but only as many as are expected to be done within
 * `aheadMs`, since sent items precede those of other accounts.
 *
 * Items that compile wait on their own and run one at a time, beside the others, in the host's compiler thread.
 *
 * If the host ends while one item runs, that item is the cause and fails. If several ran, any may be the cause: each is
 * tried once more with nothing else running, so at the next end one item alone can have caused it, and the others are
 * answered. If the client ended the host because one item hung, that item fails at once, and those beside it are tried
 * once more likewise. So an item runs twice at most, and no item fails for what another did unless the host cannot be started at all.
 */
export class ItemQueue<T> {
  readonly #width: number;
  readonly #maxQueued: number;
  readonly #aheadMs: number;
  readonly #fresh = new FairShare<T>();
  readonly #compiles = new FairShare<T>();
  /** Those that ran when a host ended; they run alone, before any fresh one. */
  readonly #again: Item<T>[] = [];
  /** Sent items without an answer, in order; bounded by `width` and {@link MAX_AHEAD}. */
  readonly #sent: Item<T>[] = [];
  #compiling: Item<T> | undefined;
  /** The running item that runs alone, for the second time. */
  #alone: Item<T> | undefined;

  /** `width`: running items; `maxQueued`: waiting items; `aheadMs`: {@link AHEAD_MS}, or 0 if no item is sent ahead. */
  constructor(width: number, maxQueued: number, aheadMs: number) {
    this.#width = width;
    this.#aheadMs = aheadMs;
    this.#maxQueued = maxQueued;
  }

  get queued(): number {
    return this.#fresh.size + this.#compiles.size + this.#again.length;
  }

  get running(): number {
    return Math.min(this.#sent.length, this.#width) + (this.#compiling ? 1 : 0);
  }

  /** The running items, first sent first. */
  runs(): readonly Item<T>[] {
    return [...this.#sent.slice(0, this.#width), ...(this.#compiling ? [this.#compiling] : [])];
  }

  /**
   * Adds an item. When the queue is full, the newest item of the account that has most waiting is dropped for it; the new
   * one is `full` when no account has more waiting than its own. `compiles`: it is worked on by the compiler thread.
   */
  add(task: T, owner: WeightedAccount, compiles = false): Added<T> {
    const share = compiles ? this.#compiles : this.#fresh;
    const dropped = share.size < this.#maxQueued ? undefined : share.longest(owner.account);
    if (share.size >= this.#maxQueued && dropped === undefined) return { kind: 'full' };
    if (dropped) share.remove(dropped);
    return { kind: 'added', item: share.add(task, owner), dropped };
  }

  /** The next item to send, now counted as sent; undefined if none may be sent. */
  next(): Item<T> | undefined {
    if (this.#alone !== undefined) return undefined;
    const [again] = this.#again;
    if (again !== undefined) {
      if (this.#sent.length > 0 || this.#compiling) return undefined;
      this.#again.shift();
      this.#alone = again;
      if (again.share === this.#compiles) this.#compiling = again;
      else this.#sent.push(again);
      return again;
    }
    if (!this.#compiling) {
      this.#compiling = this.#compiles.take();
      if (this.#compiling) return this.#compiling;
    }
    const expectedMs = this.#fresh.expectedMs;
    if (expectedMs === undefined || !this.#mayGo(expectedMs)) return undefined;
    const item = this.#fresh.take();
    if (item) this.#sent.push(item);
    return item;
  }

  #mayGo(expectedMs: number): boolean {
    const { length } = this.#sent;
    if (length < this.#width) return true;
    if (length >= this.#width + MAX_AHEAD) return false;
    return this.#sent.reduce((sum, { advanceMs }) => sum + advanceMs, expectedMs) <= this.#aheadMs * this.#width;
  }

  /** A sent item was answered after `ms` of host time; undefined if it was never started. Returns undefined if there is no such item. */
  finish(id: number, ms: number | undefined): Item<T> | undefined {
    const item = this.#compiling?.id === id ? this.#compiling : this.#sent.find((each) => each.id === id);
    if (item === undefined) return undefined;
    if (item === this.#compiling) this.#compiling = undefined;
    else this.#sent.splice(this.#sent.indexOf(item), 1);
    if (this.#alone === item) this.#alone = undefined;
    item.share.done(item, ms);
    return item;
  }

  /** The result is not needed. A waiting item is removed, a sent one continues. True: it may not have begun; ask the host to skip it. */
  abandon(item: Item<T>): boolean {
    if (item.abandoned) return false;
    item.abandoned = true;
    const at = this.#again.indexOf(item);
    if (at >= 0) {
      this.#again.splice(at, 1);
      item.share.done(item, undefined);
    } else item.share.remove(item);
    return this.#sent.indexOf(item) >= this.#width;
  }

  /**
   * The host has ended. `ranMs` is how long an item ran, which its account is charged. Returns the item that caused it,
   * which has ended; the other sent ones are queued again. `hung`: the item that did not end in time, if the host was ended for it.
   */
  lost(ranMs: (task: T) => number, hung?: Item<T>): Item<T> | undefined {
    const ran = new Set(this.runs());
    const cause = hung ?? (ran.size === 1 ? [...ran][0] : undefined);
    for (const item of this.#takeSent()) {
      if (ran.has(item)) item.share.spend(item, ranMs(item.task));
      if (item === cause || item.abandoned) item.share.done(item, undefined);
      else if (ran.has(item)) this.#again.push(item);
      // Those sent ahead had not begun: they are as they were.
      else item.share.putBack(item);
    }
    return cause;
  }

  /** All that were sent, which run no more. */
  #takeSent(): readonly Item<T>[] {
    const sent = [...this.#sent.splice(0), ...(this.#compiling ? [this.#compiling] : [])];
    this.#compiling = undefined;
    this.#alone = undefined;
    return sent;
  }

  /** Charges the account of an item that is over with what it cost besides, in ms. */
  charge(owner: WeightedAccount, ms: number): void {
    this.#fresh.charge(owner, ms);
  }

  /** Removes all items, sent or not, and returns those whose results are needed. */
  clear(): readonly Item<T>[] {
    const taken = [...this.#takeSent(), ...this.#again.splice(0)];
    for (const item of taken) item.share.done(item, undefined);
    const all = [...taken, ...this.#fresh.clear(), ...this.#compiles.clear()].filter(({ abandoned }) => !abandoned);
    for (const item of all) item.abandoned = true;
    return all;
  }
}

export type Added<T> =
  { readonly kind: 'added'; readonly item: Item<T>; readonly dropped: Item<T> | undefined } | { readonly kind: 'full' };
