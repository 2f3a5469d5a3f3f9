/**
 * Chooses which waiting request gets the next free seat, and of which replica.
 *
 * The request: one whose engine was lost, else the first one of the account with the lowest virtual time, or of one that would take the
 * seat from it once that is kept for a session, whose prompt would be computed again. A request for which no free seat is long enough
 * keeps its turn and delays no other: the first one, among all waiting requests, for which a seat is long enough goes before it.
 *
 * The replica: only replicas with a free seat that is long enough are considered, and of these only those with the shortest seats, so
 * that the long ones stay free for the requests that need them. Of these it takes the one with the highest
 *
 *     share of the prompt that it has - share of its seats that are busy or lent - share of the wanted seats that it lacks
 *       - share of a token's time that the fastest one would save (seats.ts)
 *
 * So a conversation returns to the replica that has its previous turns. Prompts with a common beginning go to the replica that
 * has it until the others are that much less busy; then these compute it too. A replica whose tokens take twice as long as those
 * of the fastest counts as if half more of its seats were busy. Of equal replicas it takes the one of which a seat was granted
 * least recently, so that conversations spread over the saved state of all replicas.
 */
import type { Account } from './accounts.js';
import type { Overload } from './overload.js';
import type { QueuedRequest } from './request.js';
import { freeSeatsOf, type ReplicaState } from './seats.js';
import type { Sessions } from './sessions.js';
import type { QueueState } from './state.js';

/** The most accounts whose first requests are compared for one seat. */
const CANDIDATES = 16;

/** Replicas whose tokens take up to so many times as long count as equally fast: less than this may be chance. */
const SAME_SPEED_RATIO = 1.25;

/** The most that a slower replica counts as busier: a prompt of which it has nearly all then still goes to it. */
const MOST_SLOWNESS = 0.75;

/** Seats given elsewhere after which a slower replica counts as fast until it gets one: only its replies show that it is no longer slow. */
const PROBE_AFTER_GRANTS = 100;

/** Tokens of a prompt, by its chunks' hashes, that this replica can take from a free sequence or restore from a prefix cache. */
export type ReusableTokens = (prefix: Uint32Array, replica: number) => number;

export class SeatChoice {
  readonly #state: QueueState;
  readonly #overload: Overload;
  readonly #sessions: Sessions;
  readonly #reusableTokens: ReusableTokens | undefined;
  /** Whether a free seat is long enough for a request. */
  readonly #fits = ({ seatTokens }: QueuedRequest): boolean => this.#state.replicas.hasFree(seatTokens);

  /** `reusableTokens` undefined if the tokens of a prompt that a replica has are not considered. */
  constructor(state: QueueState, overload: Overload, sessions: Sessions, reusableTokens: ReusableTokens | undefined) {
    this.#state = state;
    this.#overload = overload;
    this.#sessions = sessions;
    this.#reusableTokens = reusableTokens;
  }

  /** The request that is seated next, with its replica set; undefined if no waiting request can take a free seat. */
  next(): QueuedRequest | undefined {
    const hasFree = this.#state.replicas.freeSeats > 0;
    const queued = hasFree ? (this.#state.firstReturned(this.#fits) ?? this.#inTurn()) : undefined;
    if (queued === undefined) return this.#takesKept();
    queued.replica = this.#replicaFor(queued);
    return this.#longRequestBefore(queued) ?? queued;
  }

  /** The next request of the account with the lowest virtual time, or a promised one before it, if it takes a kept seat. */
  #takesKept(): QueuedRequest | undefined {
    const again = this.#state.returned.first;
    if (again !== undefined && this.#sessions.takesCheap(again)) return again;
    const lowest = this.#state.seatable.first;
    const head = lowest?.next?.next;
    const session = lowest && head && this.#sessions.takeable(lowest, head.seatTokens);
    if (session === undefined || head === undefined) return undefined;
    this.#sessions.taken(session, head);
    return head;
  }

  /** The account with the lowest virtual time; in its place, one after another, each that would take a kept seat from the one chosen so far. */
  get #served(): Account | undefined {
    const { seatable } = this.#state;
    if (seatable.size < 2 || !this.#sessions.keepsSeats) return seatable.first;
    return seatable.front(CANDIDATES).reduce((served, other) => {
      const head = other.next?.next;
      return head !== undefined && this.#sessions.wouldTake(other, served) && this.#fits(head) ? other : served;
    });
  }

  /** The next request by the accounts' virtual times. */
  #inTurn(): QueuedRequest | undefined {
    // Its class whose turn it is, and that class's next request.
    const head = this.#served?.next?.next;
    if (!head || !this.#fits(head)) return this.#firstThatFits();
    return this.#state.seatable.size > 1 && this.#overload.isAged(head) ? (this.#fresher() ?? head) : head;
  }

  /**
   * Overload rule "aged" (overload.ts): the head of the account with the lowest virtual time whose head did not wait too long;
   * undefined if none of the first accounts has such a head.
   */
  #fresher(): QueuedRequest | undefined {
    let found: QueuedRequest | undefined;
    let lowest = Infinity;
    for (const { next, virtualMs } of this.#state.seatable.front(CANDIDATES)) {
      const queued = next?.next;
      if (queued === undefined || virtualMs >= lowest || this.#overload.isAged(queued) || !this.#fits(queued)) continue;
      found = queued;
      lowest = virtualMs;
    }
    return found;
  }

  /** The first request that a free seat is long enough for, of the account with the lowest virtual time that has one. O(waiting). */
  #firstThatFits(): QueuedRequest | undefined {
    let found: QueuedRequest | undefined;
    let lowest = Infinity;
    this.#state.seatable.each((account: Account) => {
      if (account.virtualMs >= lowest) return;
      const queued = account.first(this.#fits);
      if (queued === undefined) return;
      found = queued;
      lowest = account.virtualMs;
    });
    return found;
  }

  #replicaFor({ needs, request, seatTokens }: QueuedRequest): number {
    const wants = { seatTokens, promptTokens: needs?.promptTokens ?? 0, seats: request.seatsWanted };
    const { all } = this.#state.replicas;
    return place(all, wants, (at) => (needs?.prefix && this.#reusableTokens?.(needs.prefix, at)) ?? 0);
  }

  /**
   * If `queued` would take a seat that is longer than it needs, because the shorter ones are busy: the first request of the same
   * account that needs such a seat, with its replica set. Between accounts seat time alone decides.
   */
  #longRequestBefore(queued: QueuedRequest): QueuedRequest | undefined {
    const { replicas } = this.#state;
    const shorter = replicas.shorterThan(replicas.all[queued.replica]?.contextPerSeat ?? 0);
    if (shorter === 0 || queued.seatTokens > shorter) return undefined;
    const long = this.#state.accountOf(queued).first((other) => other.seatTokens > shorter && this.#fits(other));
    if (long !== undefined) long.replica = this.#replicaFor(long);
    return long;
  }
}

/** What decides where a request is placed. */
export interface PlacementNeeds {
  /** Tokens that its seat must be able to hold. */
  readonly seatTokens: number;
  readonly promptTokens: number;
  /** Seats that it can use at once, all of one replica. */
  readonly seats: number;
}

/**
 * The index of the replica, or -1 if no free seat is long enough. `reusableTokens`: tokens of the prompt that a replica need not evaluate;
 * it is not asked where there is no choice. `freeOf`: the seats of a replica that may be given; absent: its free ones.
 */
export function place(
  replicas: readonly ReplicaState[],
  needs: PlacementNeeds,
  reusableTokens: (replica: number) => number,
  freeOf: (replica: ReplicaState) => number = freeSeatsOf,
): number {
  let context = Infinity;
  let candidates = 0;
  let found = -1;
  for (let at = 0; at < replicas.length; at += 1) {
    const replica = replicas[at];
    if (replica === undefined || freeOf(replica) <= 0 || replica.contextPerSeat < needs.seatTokens) continue;
    if (replica.contextPerSeat > context) continue;
    candidates = replica.contextPerSeat < context ? 1 : candidates + 1;
    context = replica.contextPerSeat;
    found = at;
  }
  if (candidates <= 1) return found;
  const among = (replica: ReplicaState): boolean => freeOf(replica) > 0 && replica.contextPerSeat === context;
  return best(replicas, among, needs, reusableTokens);
}

/** The best of the replicas that are `among` the candidates. */
function best(
  replicas: readonly ReplicaState[],
  among: (replica: ReplicaState) => boolean,
  needs: PlacementNeeds,
  reusableTokens: (replica: number) => number,
): number {
  let found = -1;
  let highest = -Infinity;
  let longestAgo = Infinity;
  const fastest = lowestRatio(replicas.filter(among));
  replicas.forEach((replica, at) => {
    if (!among(replica)) return;
    const held = needs.promptTokens > 0 ? Math.min(1, reusableTokens(at) / needs.promptTokens) : 0;
    const lacking = Math.max(0, needs.seats - freeSeatsOf(replica)) / needs.seats;
    const taken = (replica.busy + replica.kept + replica.lent) / replica.seats;
    const worth = held - taken - lacking - slowness(replica, fastest);
    if (worth < highest || (worth === highest && replica.grantedLast >= longestAgo)) return;
    found = at;
    highest = worth;
    longestAgo = replica.grantedLast;
  });
  return found;
}

/** The lowest ratio of these replicas; Infinity where none is known. */
function lowestRatio(replicas: readonly ReplicaState[]): number {
  return Math.min(...replicas.map(({ tokenTimeRatio = Infinity }) => tokenTimeRatio));
}

/** The share of a token's time that the fastest replica would save; 0 where that is not known, small, or to be learned again. */
function slowness({ tokenTimeRatio = 0, passedOver }: ReplicaState, fastest: number): number {
  if (passedOver >= PROBE_AFTER_GRANTS || tokenTimeRatio <= SAME_SPEED_RATIO * fastest) return 0;
  return Math.min(1 - fastest / tokenTimeRatio, MOST_SLOWNESS);
}
