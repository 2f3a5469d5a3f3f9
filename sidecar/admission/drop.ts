import type { Heap } from '../lib/heap.js';
import type { QueuedRequest } from './queued-request.js';
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';

/**
 * An only waiting request gives way to that of an account that had less seat time, by at least this part of what a request takes. With 60
 * accounts that ask for the same, 0.20 of the requests are so refused after a wait, and 0.29 with 0. Light accounts gain the same.
 */
const AHEAD = 0.5;

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
  places: number;
  bytes: number;
  /** The one whose turn comes last among those without a reservation. */
  last: QueuedRequest | undefined;
}

type Kind = keyof Shortage;

/**
 * The requests that are dropped for a newcomer: the newest one of the account with the most waiting, repeatedly until the
 * newcomer fits (longest-queue drop, fair-queue.ts). Within that account it is the newest of the class with the most waiting
 * for its weight: so a batch backlog makes room for interactive requests, and an interactive backlog leaves batch its share.
 * Returns undefined if the newcomer itself has to be refused, because its account, and within it its class, has the most
 * waiting, or one less, and where no account has more than one waiting, none had enough more seat time. Then no request is dropped.
 */
export function victims(
  accounts: Heap<Account>,
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
    const longest = longestOf(accounts, newcomer, kind, remaining);
    const from = classToDrop(longest, newcomer, kind, remaining);
    if (from === undefined) return undefined;
    const { last, ...left } = remainingOf(from, remaining);
    if (last === undefined) return undefined;
    dropped.push(last);
    const next = beforeIn(from, last, replaced);
    remaining.set(from, { places: left.places - 1, bytes: left.bytes - last.request.bytes, last: next });
    missing = { places: missing.places - 1, bytes: missing.bytes - last.request.bytes };
  }
  return dropped;
}

/**
 * The account with the most waiting: the newcomer's where no other has more than that would have with it. `accounts`: the one with
 * the most requests first. Where none has more than one, the account that had the most seat time gives way to one that has none
 * waiting: otherwise an account that asks for less than its share would be refused because there are as many accounts as places.
 * O(1) for the first request that must go for want of places while an account has several, else O(accounts).
 */
function longestOf(
  accounts: Heap<Account>,
  { account: own, class: ownClass, bytes }: Newcomer,
  kind: Kind,
  remaining: ReadonlyMap<AccountClass, Remaining>,
): Account {
  let longest = own;
  let length = -1;
  if (kind === 'places' && remaining.size === 0) {
    longest = accounts.first ?? own;
    if (longest.inRoom > own.inRoom + 1) return longest;
    return (own.inRoom === 0 ? furthestAhead(accounts, own.rankOf(ownClass)) : undefined) ?? own;
  }
  accounts.each((account) => {
    const has = remaining.size === 0 ? ownOf(account, kind) : sumOf(account, kind, remaining);
    if (has > length) [longest, length] = [account, has];
  });
  const has = remaining.size === 0 ? ownOf(own, kind) : sumOf(own, kind, remaining);
  return length <= has + (kind === 'places' ? 1 : bytes) ? own : longest;
}

/** The account with the highest virtual time, if that is above this rank by what AHEAD says. */
function furthestAhead(accounts: Heap<Account>, rank: number): Account | undefined {
  let found: Account | undefined;
  let most = rank;
  accounts.each((account) => {
    const from = account.virtualMs - (AHEAD * (account.holdMs ?? 0)) / account.weight;
    if (from <= most || !account.classes.some((known) => beforeIn(known) !== undefined)) return;
    found = account;
    most = from;
  });
  return found;
}

/** The class of `account` with the most waiting over its weight; undefined: the newcomer's own would have as much. */
function classToDrop(
  account: Account,
  newcomer: Newcomer,
  kind: Kind,
  remaining: ReadonlyMap<AccountClass, Remaining>,
): AccountClass | undefined {
  let most = 0;
  let found: AccountClass | undefined;
  for (const known of account.classes) {
    const { last, ...left } = remainingOf(known, remaining);
    const share = left[kind] / known.weight;
    if (last !== undefined && share > most) [found, most] = [known, share];
  }
  if (account !== newcomer.account) return found;
  const { class: own } = newcomer;
  const after = (remainingOf(own, remaining)[kind] + (kind === 'places' ? 1 : newcomer.bytes)) / own.weight;
  return found === own || most <= after ? undefined : found;
}

function remainingOf(accountClass: AccountClass, remaining: ReadonlyMap<AccountClass, Remaining>): Remaining {
  return (
    remaining.get(accountClass) ?? {
      places: accountClass.list.length,
      bytes: accountClass.bytes,
      last: beforeIn(accountClass),
    }
  );
}

/** What a class has without one of its requests. */
function without(accountClass: AccountClass, { request }: QueuedRequest): Remaining {
  return { places: accountClass.list.length - 1, bytes: accountClass.bytes - request.bytes, last: undefined };
}

/** The request of a class whose turn comes last, or last before `queued`; none that keeps a promise. */
function beforeIn(accountClass: AccountClass, queued?: QueuedRequest, but?: QueuedRequest): QueuedRequest | undefined {
  const { newestFirst, list } = accountClass;
  let found = queued === undefined ? (newestFirst ? list.first : list.last) : newestFirst ? queued.next : queued.prev;
  while (found !== undefined && (found.hasReservation || found === but)) found = newestFirst ? found.next : found.prev;
  return found;
}

/**
 * The `count` requests of a class that make room for newer ones, or for none: each time the last in the class's order of the user with
 * the most waiting, so that a user with many does not push out another's. Fewer where the others keep promises. O(waiting of the class).
 */
export function lastOfLongest(
  { list, newestFirst }: Pick<AccountClass, 'list' | 'newestFirst'>,
  count: number,
): QueuedRequest[] {
  const waiting = new Map<string | undefined, number>();
  /** At each place: the users that have at least so many. */
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

function sumOf({ classes }: Account, kind: Kind, remaining: ReadonlyMap<AccountClass, Remaining>): number {
  return classes.reduce((sum, known) => sum + remainingOf(known, remaining)[kind], 0);
}

function ownOf(account: Account, kind: Kind): number {
  return kind === 'places' ? account.inRoom : account.bytes;
}
