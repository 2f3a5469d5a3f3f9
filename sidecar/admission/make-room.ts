/**
 * Which waiting requests make room. Between accounts: longest-queue drop (P. McKenney, 1991). The newest request of the account with
 * the most waiting is dropped, repeatedly until the newcomer fits; within that account it is the newest of the class with the most
 * waiting for its weight, so a batch backlog makes room for interactive requests, and an interactive backlog leaves batch its share.
 * Between the end users of a class: the last request of the user with the most waiting.
 */
import type { Heap } from '../lib/heap.js';
import type { Account, AccountClass } from './accounts.js';
import type { QueuedRequest } from './request.js';

/**
 * An account with one waiting request gives way to one that had less seat time, by at least this part of what a request takes. With 60
 * accounts that ask for the same, 0.20 of the requests are so refused after a wait, and 0.29 with 0. Light accounts gain the same.
 */
const SEAT_TIME_LEAD = 0.5;

/** The places and bytes that are missing to admit a newcomer. */
export interface Shortage {
  readonly places: number;
  readonly bytes: number;
}

/** A request that arrives. */
export interface Newcomer {
  readonly account: Account;
  readonly class: AccountClass;
  readonly bytes: number;
}

/** What would remain waiting of a class of an account. */
interface Remaining {
  readonly places: number;
  readonly bytes: number;
  /** The request whose turn comes last among those that may be dropped. */
  readonly last: QueuedRequest | undefined;
}

type Kind = keyof Shortage;

/**
 * The requests that are dropped for a newcomer. `byPlaces`: the accounts, the one with the most places first; `replaced`: a request
 * of the newcomer's class that makes room for it in any case. Returns undefined if the newcomer itself has to be refused, because its
 * account, and within it its class, has the most waiting, or one less, and where no account has more than one waiting, none had enough
 * more seat time. Then no request is dropped.
 */
export function victims(
  byPlaces: Heap<Account>,
  newcomer: Newcomer,
  shortage: Shortage,
  replaced?: QueuedRequest,
): QueuedRequest[] | undefined {
  if (shortage.places <= 0 && shortage.bytes <= 0) return [];
  const remaining = new Map<AccountClass, Remaining>();
  if (replaced !== undefined) remaining.set(newcomer.class, without(newcomer.class, replaced));
  const dropped: QueuedRequest[] = [];
  let missing = shortage;
  while (missing.places > 0 || missing.bytes > 0) {
    const kind = missing.places > 0 ? 'places' : 'bytes';
    const account = accountToDropFrom(byPlaces, newcomer, kind, remaining);
    const from = classToDropFrom(account, newcomer, kind, remaining);
    if (from === undefined) return undefined;
    const { places, bytes, last } = remainingOf(from, remaining);
    if (last === undefined) return undefined;
    dropped.push(last);
    remaining.set(from, { places: places - 1, bytes: bytes - last.request.bytes, last: lastDroppable(from, last) });
    missing = { places: missing.places - 1, bytes: missing.bytes - last.request.bytes };
  }
  return dropped;
}

/**
 * The account with the most waiting: the newcomer's where no other has more than that would have with it. Where none has more than one
 * request, rule "seat time" applies.
 * O(1) for the first request that must go for want of places while an account has several, else O(accounts).
 */
function accountToDropFrom(
  byPlaces: Heap<Account>,
  { account: own, class: ownClass, bytes }: Newcomer,
  kind: Kind,
  remaining: ReadonlyMap<AccountClass, Remaining>,
): Account {
  if (kind === 'places' && remaining.size === 0) {
    const longest = byPlaces.first ?? own;
    if (longest.places > own.places + 1) return longest;
    return (own.places === 0 ? mostServed(byPlaces, own.rankOf(ownClass)) : undefined) ?? own;
  }
  let [longest, most] = [own, -1];
  byPlaces.each((account) => {
    const has = waitingOf(account, kind, remaining);
    if (has > most) [longest, most] = [account, has];
  });
  return most <= waitingOf(own, kind, remaining) + (kind === 'places' ? 1 : bytes) ? own : longest;
}

/**
 * Rule "seat time": the account that had the most seat time, if that is more than `rank` by SEAT_TIME_LEAD, gives way to one that has
 * none waiting. Otherwise an account that asks for less than its share would be refused because there are as many accounts as places.
 */
function mostServed(accounts: Heap<Account>, rank: number): Account | undefined {
  let found: Account | undefined;
  let most = rank;
  accounts.each((account) => {
    // Most accounts end here, before the rest of what they have is read.
    if (account.virtualMs <= most) return;
    const from = account.virtualMs - (SEAT_TIME_LEAD * (account.holdMs ?? 0)) / account.weight;
    if (from <= most || !account.classes.some((known) => lastDroppable(known) !== undefined)) return;
    found = account;
    most = from;
  });
  return found;
}

/** The class of `account` with the most waiting over its weight; undefined if the newcomer's own would have as much. */
function classToDropFrom(
  account: Account,
  newcomer: Newcomer,
  kind: Kind,
  remaining: ReadonlyMap<AccountClass, Remaining>,
): AccountClass | undefined {
  let most = 0;
  let found: AccountClass | undefined;
  for (const known of account.classes) {
    const has = remainingOf(known, remaining);
    const share = has[kind] / known.weight;
    if (has.last !== undefined && share > most) [found, most] = [known, share];
  }
  if (account !== newcomer.account) return found;
  const { class: own } = newcomer;
  const after = (remainingOf(own, remaining)[kind] + (kind === 'places' ? 1 : newcomer.bytes)) / own.weight;
  return found === own || most <= after ? undefined : found;
}

function waitingOf(account: Account, kind: Kind, remaining: ReadonlyMap<AccountClass, Remaining>): number {
  if (remaining.size === 0) return account[kind];
  return account.classes.reduce((sum, known) => sum + remainingOf(known, remaining)[kind], 0);
}

function remainingOf(accountClass: AccountClass, remaining: ReadonlyMap<AccountClass, Remaining>): Remaining {
  const { list, bytes } = accountClass;
  return remaining.get(accountClass) ?? { places: list.length, bytes, last: lastDroppable(accountClass) };
}

/** What a class has without one of its requests. None of it is dropped, since that one makes room already. */
function without({ list, bytes }: AccountClass, { request }: QueuedRequest): Remaining {
  return { places: list.length - 1, bytes: bytes - request.bytes, last: undefined };
}

/** The request of a class whose turn comes last, or last before that of `before`, among those without a reservation. */
function lastDroppable({ newestFirst, list }: AccountClass, before?: QueuedRequest): QueuedRequest | undefined {
  let found = before === undefined ? (newestFirst ? list.first : list.last) : newestFirst ? before.next : before.prev;
  while (found?.hasReservation === true) found = newestFirst ? found.next : found.prev;
  return found;
}

/**
 * The `count` requests of a class that make room for newer ones, or for none: each time the last in the class's order of the user with
 * the most waiting, so that a user with many does not push out another's. Fewer if the others have reservations. O(waiting of the class).
 */
export function lastOfLongest(
  { list, newestFirst }: Pick<AccountClass, 'list' | 'newestFirst'>,
  count: number,
): QueuedRequest[] {
  const waiting = new Map<string | undefined, number>();
  /** By a number of requests: the users that have at least that many. */
  const users: number[] = [];
  for (let queued = list.first; queued !== undefined; queued = queued.next) {
    if (queued.hasReservation) continue;
    const { user } = queued.request;
    const has = (waiting.get(user) ?? 0) + 1;
    waiting.set(user, has);
    users[has] = (users[has] ?? 0) + 1;
  }
  // Users with more than `most` lose their requests down to that, and some of those who then have as many one more.
  let most = users.length - 1;
  let going = 0;
  while (most > 0 && going + (users[most] ?? 0) < count) {
    going += users[most] ?? 0;
    most -= 1;
  }
  const found: QueuedRequest[] = [];
  const further: QueuedRequest[] = [];
  for (let at = newestFirst ? list.first : list.last; at !== undefined; at = newestFirst ? at.next : at.prev) {
    const { user } = at.request;
    const has = waiting.get(user) ?? 0;
    if (at.hasReservation || has < most) continue;
    (has > most ? found : further).push(at);
    waiting.set(user, has - 1);
  }
  return [...found, ...further.slice(0, Math.max(0, count - going))];
}
