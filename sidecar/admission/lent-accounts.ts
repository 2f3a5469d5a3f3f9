/**
 * Who waits for lent seats and who holds them (lent.ts): requests, and their accounts with a virtual time of seats held x time. The account
 * with the lowest is given the next lent seat. One that begins to wait is lifted to the others', so that it gains nothing by having been
 * idle (state.ts has the theory), but keeps what it was owed before: all its requests may be refused at once, and return. All accounts
 * have the same weight, that of class `batch`.
 */
import { Heap, HeapNode } from '../lib/heap.js';
import { FIRST_GUESS_MS, LEFT_SHARE } from './forecast.js';
import type { HoldTime } from './measures.js';
import { MOST_COUNTED, OrderedList, type ListMember, type QueuedRequest } from './request.js';
import type { LentAccountCounts, QueuePlace, QueueRequest, SeatNeeds, Ticket, TicketOutcome } from './types.js';

/** Accounts whose first requests are tried for one seat: a request that needs a long seat delays no other account. */
export const CANDIDATES = 16;

/** The most accounts that are remembered: past it the one that has been idle longest is forgotten. */
const MAX_ACCOUNTS = 10_000;

/** The most that an account is owed while it is idle, ms of a lent seat: what it could not take for hours is not made up for at once. */
const MOST_OWED_MS = 60_000;

/** One account. Plain state: only LentShares changes it. Times in ms. */
export class LentAccount {
  readonly name: string;
  virtualMs = 0;
  /** When it became idle: by how much its virtual time was below that of each other account. It keeps that claim. */
  owedMs = 0;
  /** Time of lent seats since it was first seen. */
  seatMs = 0;
  seats = 0;
  /** Requests that wait, and those of them whose prompt is known, the first one first. */
  waiting = 0;
  readonly ready = new OrderedList<LentRequest>();
  readonly node: HeapNode<LentAccount> = new HeapNode<LentAccount>(this);

  constructor(name: string) {
    this.name = name;
  }
}

/** One request, until its last outcome. Plain state. Times in ms. */
export class LentRequest implements ListMember<LentRequest> {
  readonly request: QueueRequest;
  /** In the order of entering. */
  readonly order: number;
  readonly account: LentAccount;
  list: OrderedList<LentRequest> | undefined;
  prev: LentRequest | undefined;
  next: LentRequest | undefined;
  phase: 'unready' | 'ready' | 'moving' | 'queued' | 'granted' | 'leased' | 'recalled' | 'over' = 'unready';
  needs: SeatNeeds = { promptTokens: 0 };
  /** Until when its present wait may last, checks included; when its wait for a seat began; and its waits before that. */
  waitsUntil = 0;
  readyAt = 0;
  waitedMs = 0;
  grantedAt = 0;
  /** Seats that it was given so far, the replica of the last one, and how many were recalled. */
  grants = 0;
  replica = 0;
  recalls = 0;
  /** How often its engine was lost before it began it. */
  returns = 0;
  /** Its place in the queue, once it entered that; and itself there, once it was given a seat. */
  ticket: Ticket | undefined;
  queued: QueuedRequest | undefined;
  /** Stops its job; undefined if it has none yet. */
  stop: (() => Promise<void> | undefined) | undefined;
  /** Cancels its timer. */
  disarm: (() => void) | undefined;
  outcome: Promise<TicketOutcome>;
  settle!: (outcome: TicketOutcome) => void;

  constructor(request: QueueRequest, order: number, account: LentAccount) {
    this.request = request;
    this.order = order;
    this.account = account;
    this.outcome = this.awaitAgain();
  }

  /** Makes a promise for its next outcome, when it waits again. */
  awaitAgain(): Promise<TicketOutcome> {
    return (this.outcome = new Promise((resolve) => (this.settle = resolve)));
  }

  /** Its last outcome. */
  end(outcome: TicketOutcome): void {
    this.phase = 'over';
    this.settle(outcome);
  }
}

export class LentShares {
  /** Those that are idle in the order in which they became so. */
  readonly #accounts = new Map<string, LentAccount>();
  /** Those with a request whose prompt is known, lowest virtual time first. */
  readonly #ready = new Heap<LentAccount>((a, b) => a.virtualMs < b.virtualMs);
  /** Requests that hold seats, the youngest last. */
  readonly #running = new Set<LentRequest>();
  /** What an idle account is lifted to: the virtual time of the one whose turn it was last, or while seats are lent the lowest there is. */
  #floorMs = 0;
  #seatMs = 0;
  #waiting = 0;
  #bytes = 0;
  #entered = 0;

  /** Requests that wait, their body bytes, and requests that hold a seat. */
  get waiting(): number {
    return this.#waiting;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get running(): number {
    return this.#running.size;
  }

  /** Seat time of all accounts since the start, ms. */
  get seatMs(): number {
    return this.#seatMs;
  }

  /** Accounts with a request that could be given a seat. */
  get readyAccounts(): number {
    return this.#ready.size;
  }

  /** The `most` accounts with the most seat time. */
  report(most: number): LentAccountCounts[] {
    return [...this.#accounts.values()]
      .sort((a, b) => b.seatMs - a.seatMs || b.waiting - a.waiting)
      .slice(0, most)
      .map(({ name, seats, waiting, seatMs }) => ({ account: name, seats, waiting, seatMs }));
  }

  /** Of this name, made if it is not known. */
  account(name: string): LentAccount {
    const known = this.#accounts.get(name);
    if (known !== undefined) return known;
    if (this.#accounts.size >= MAX_ACCOUNTS) this.#forgetOne();
    const account = new LentAccount(name);
    this.#accounts.set(name, account);
    return account;
  }

  /** A request arrives and waits. */
  enter(request: QueueRequest, account: LentAccount): LentRequest {
    if (account.waiting + account.seats === 0)
      account.virtualMs = Math.max(account.virtualMs, this.#floorMs - account.owedMs);
    const lent = new LentRequest(request, (this.#entered += 1), account);
    this.waits(lent);
    return lent;
  }

  /** One request more waits, or one fewer. */
  waits({ account, request }: LentRequest, sign: 1 | -1 = 1): void {
    account.waiting += sign;
    this.#waiting += sign;
    this.#bytes += sign * request.bytes;
  }

  /** It may be given a seat: among its account's requests in the order of entering. */
  ready(lent: LentRequest): void {
    const { account } = lent;
    account.ready.insert(lent);
    if (account.node.at < 0) this.#ready.add(account.node);
  }

  stopsWaiting(lent: LentRequest): void {
    const { account } = lent;
    account.ready.remove(lent);
    if (account.ready.length === 0) this.#ready.remove(account.node);
    this.waits(lent, -1);
    this.#becomesIdle(account);
  }

  /** Whose turn it is: the first requests of the account with the lowest virtual time, and of some that follow it soon, at most `most`. */
  *next(most: number): Generator<LentRequest> {
    this.#floorMs = Math.max(this.#floorMs, this.#ready.first?.virtualMs ?? 0);
    for (const { ready } of this.#ready.front(most)) if (ready.first !== undefined) yield ready.first;
  }

  /**
   * The place of one more request of this account. Before it are as many of each other account as have their turns until then (forecast.ts);
   * it is expected to wait for as many of each, on as many seats as are lent now. `hold`: the time of lent seats that were used to a request's
   * end. O(MOST_COUNTED).
   */
  placeOf(account: LentAccount, { meanMs }: HoldTime): QueuePlace {
    const own = account.waiting;
    const each = meanMs ?? FIRST_GUESS_MS;
    const startMs = ({ virtualMs, seats }: LentAccount): number => virtualMs + LEFT_SHARE * seats * each;
    const turnMs = startMs(account) + own * each;
    let position = own;
    for (const other of this.#ready.front(MOST_COUNTED)) {
      if (other === account) continue;
      const turns = (turnMs - startMs(other)) / each;
      const before = other.node.at < account.node.at ? Math.floor(turns) + 1 : Math.ceil(turns);
      position += Math.min(other.ready.length, Math.max(0, before));
    }
    const accounts = this.readyAccounts + (account.node.at < 0 ? 1 : 0);
    const expectedWaitMs = meanMs && ((own + 1) * accounts * meanMs) / Math.max(1, this.running);
    return { position: Math.min(MOST_COUNTED, position), expectedWaitMs };
  }

  /** It is given a seat. */
  takes(lent: LentRequest): void {
    lent.account.seats += 1;
    this.#running.add(lent);
  }

  /** It holds its seat no more. */
  returns(lent: LentRequest): void {
    const { account } = lent;
    this.#running.delete(lent);
    account.seats -= 1;
    this.#becomesIdle(account);
  }

  /** The request that was given its seat last, of those on a replica; undefined if none is there. */
  youngestOn(replica: number): LentRequest | undefined {
    return [...this.#running].findLast((lent) => lent.replica === replica);
  }

  /** The account with the most requests whose prompt is known; undefined if none has any. O(accounts). */
  longest(): LentAccount | undefined {
    let longest: LentAccount | undefined;
    for (const account of this.#ready) if (account.ready.length > (longest?.ready.length ?? 0)) longest = account;
    return longest;
  }

  /** Charges the accounts for the lent seats that they held for `ms`. */
  advance(ms: number): void {
    this.#seatMs += ms * this.#running.size;
    for (const { account } of this.#running) {
      account.seatMs += ms;
      this.charge(account, ms);
    }
    if (this.#running.size > 0) this.#floorMs = Math.max(this.#floorMs, this.#lowestMs);
  }

  /** The lowest virtual time of those that hold a seat or could be given one. Infinity: there are none. */
  get #lowestMs(): number {
    const all = [...this.#running].map(({ account }) => account.virtualMs);
    return Math.min(this.#ready.first?.virtualMs ?? Infinity, ...all);
  }

  charge(account: LentAccount, ms: number): void {
    account.virtualMs += ms;
    this.#ready.movedBack(account.node);
  }

  /** To the end of those that are remembered. */
  #becomesIdle(account: LentAccount): void {
    if (account.waiting + account.seats > 0 || !this.#accounts.delete(account.name)) return;
    this.#accounts.set(account.name, account);
    const lowestMs = this.#lowestMs;
    account.owedMs = lowestMs === Infinity ? 0 : Math.min(MOST_OWED_MS, Math.max(0, lowestMs - account.virtualMs));
  }

  #forgetOne(): void {
    for (const { name, waiting, seats } of this.#accounts.values()) {
      if (waiting + seats > 0) continue;
      this.#accounts.delete(name);
      return;
    }
  }
}
