/**
 * One request in the queue, the session that it may be a turn of, and the two orders that requests are kept in: a linked list in the order
 * of entering, and the turns of an account's end users.
 */
import { Heap, HeapNode } from '../lib/heap.js';
import type { QueueRequest, SeatNeeds, TicketOutcome } from './types.js';

/** What a member of an {@link OrderedList} carries: its neighbours live in the member itself, so nothing is searched or allocated. */
export interface ListMember<T extends ListMember<T>> {
  /** Its rank in the list, lowest first. Changes only while it is in none. */
  readonly order: number;
  /** Written by the list alone. */
  list: OrderedList<T> | undefined;
  prev: T | undefined;
  next: T | undefined;
}

/** An intrusive doubly linked list by `order`. First and removal: O(1). Insertion: O(members with a higher order), mostly none. */
export class OrderedList<T extends ListMember<T>> {
  #head: T | undefined;
  #tail: T | undefined;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get first(): T | undefined {
    return this.#head;
  }

  get last(): T | undefined {
    return this.#tail;
  }

  /** Inserts a member of no list at its place. */
  insert(member: T): void {
    let before = this.#tail;
    while (before !== undefined && before.order > member.order) before = before.prev;
    const after = before === undefined ? this.#head : before.next;
    member.list = this;
    member.prev = before;
    member.next = after;
    if (before === undefined) this.#head = member;
    else before.next = member;
    if (after === undefined) this.#tail = member;
    else after.prev = member;
    this.#length += 1;
  }

  /** Removes a member; does nothing for a member of another list or of none. */
  remove(member: T): void {
    if (member.list !== this) return;
    if (member.prev === undefined) this.#head = member.next;
    else member.prev.next = member.next;
    if (member.next === undefined) this.#tail = member.prev;
    else member.next.prev = member.prev;
    member.list = member.prev = member.next = undefined;
    this.#length -= 1;
  }
}

/**
 * unready -> ready -> granted -> leased -> over, and from leased back to ready when its engine is lost, as often as there are
 * replicas, or between the parts of its work.
 * granted: a seat is counted for it, the outcome is not delivered yet. paused: between two parts, not ready for the next one.
 */
export type Phase = 'unready' | 'ready' | 'granted' | 'leased' | 'paused' | 'over';

/** A conversation that goes on turn by turn. Plain state: only sessions.ts changes it. Times in ms of the queue's clock. */
export interface Session {
  /** By which the engine knows it. */
  readonly id: number;
  readonly account: string;
  /** The weight of its last turn's class. */
  weight: number;
  /** `idle`: its seat is not kept; `waits`: its next turn waits for any seat. */
  phase: 'idle' | 'kept' | 'waits' | 'runs';
  replica: number;
  /** Tokens of its last prompt. */
  promptTokens: number;
  /** The last two whole chunks of its last prompt: their hashes, and the chunks of the prompt up to each. */
  chunks: readonly { readonly hash: number; readonly at: number }[];
  /** As of {@link QueueRequest.session}. */
  name: string | undefined;
  /** Of the first chunk of its prompts. */
  firstHash: number | undefined;
  /** When its last turn ended, undefined during the first one; and until when its seat is kept. */
  endedAt: number | undefined;
  keptUntil: number;
  /** Seat time of its last turn. */
  seatMs: number;
}

/** One request, from `enter` until its last outcome. Plain state: only the queue (queue.ts, state.ts) changes it. Times in ms. */
export class QueuedRequest implements ListMember<QueuedRequest> {
  readonly request: QueueRequest;
  /** In the order of entering. */
  readonly order: number;
  /** The same for requests of the same account and body; undefined if its body is not known. */
  readonly bodyKey: string | undefined;
  list: OrderedList<QueuedRequest> | undefined;
  prev: QueuedRequest | undefined;
  next: QueuedRequest | undefined;
  /** Its node among its user's requests, once it may be seated. */
  readonly turn: HeapNode<QueuedRequest> = new HeapNode<QueuedRequest>(this);
  /** The same where the newest goes first. */
  readonly recent: HeapNode<QueuedRequest> = new HeapNode<QueuedRequest>(this);
  phase: Phase = 'unready';
  /** The predicted wait when it entered; undefined if there was no prediction. */
  predictedMs: number | undefined;
  /** Set by `ready`. */
  needs: SeatNeeds | undefined;
  /** `QueueState.engineChanges` when it entered. */
  engineChanges = 0;
  enteredAt = 0;
  /** When its present stay in the queue began, checks included, and the time of its stays before that. */
  queuedAt = 0;
  inQueueMs = 0;
  /** When its present wait for a seat began, and its waiting time before that. */
  readyAt = 0;
  waitedMs = 0;
  grantedAt = 0;
  /** Seats held now, since when, and seat-milliseconds held before that. */
  seats = 0;
  seatsSince = 0;
  seatMs = 0;
  /** The replica that it was given a seat of, by its index. */
  replica = 0;
  /** How often its engine was lost before it started it, and it returned to the head of the queue. */
  returns = 0;
  /** How often it was given a seat: a lease of an earlier time has ended. */
  grants = 0;
  /** It has ended a part of its work and waits for a seat for the next one, as if it had entered so much later than it did. */
  betweenTurns = false;
  turnDelayMs = 0;
  /** It is a retry at its reserved time, or its account is owed a seat (judge.ts); it goes before its user's other requests. */
  hasReservation = false;
  /** It is admitted to find out whether patience grew. */
  explores = false;
  /** It was admitted since a kept seat may be its own (sessions.ts). */
  claims = false;
  /** Its session, once its prompt is known and it continues one, or once it has a seat; undefined if it is none's. */
  session: Session | undefined;
  /** It is a further turn of its session, and goes before its user's new sessions. */
  continues = false;
  /** It was given the seat that was kept for it. */
  hadSeat = false;
  /** Its caller's patience is recorded. */
  patienceRecorded = false;
  /** Its caller left while it had a seat, before it had what it waited for. */
  leftUnserved = false;
  /** Cancels its timer; undefined if it has none. */
  disarm: (() => void) | undefined;
  /** Asks its lease, while that has several seats, to return one; undefined if its holder did not want to know. */
  recall: (() => void) | undefined;
  outcome: Promise<TicketOutcome>;
  #settle!: (outcome: TicketOutcome) => void;

  constructor(request: QueueRequest, order: number) {
    this.request = request;
    this.order = order;
    this.bodyKey = bodyKeyOf(request);
    this.outcome = this.awaitAgain();
  }

  /** Tokens that its seat must be able to hold; 0: any seat will do, or it is not known yet. */
  get seatTokens(): number {
    return this.needs?.seatTokens ?? 0;
  }

  /** Makes a promise for its next outcome, when its place comes back from a lease. */
  awaitAgain(): Promise<TicketOutcome> {
    return (this.outcome = new Promise((resolve) => (this.#settle = resolve)));
  }

  settle(outcome: TicketOutcome): void {
    this.#settle(outcome);
  }
}

/** The same for requests of the same account and body; undefined if the body is not known. */
export function bodyKeyOf({ account, bodyDigest }: QueueRequest): string | undefined {
  return bodyDigest === undefined ? undefined : `${bodyDigest} ${account}`;
}

/** The requests of one end-user label, and the user's place in the order of turns. */
class UserRequests implements ListMember<UserRequests> {
  readonly key: string;
  readonly turns = new Heap<QueuedRequest>(isSooner);
  readonly newest = new Heap<QueuedRequest>((a, b) => a.order > b.order);
  order = 0;
  list: OrderedList<UserRequests> | undefined;
  prev: UserRequests | undefined;
  next: UserRequests | undefined;

  constructor(key: string) {
    this.key = key;
  }
}

/**
 * The order of one account's seatable requests of one class. Its end users take turns, so that one of them with a hundred
 * requests does not delay the others; within a user the turns of sessions that go on come first, then the earliest deadline, then first
 * come. Requests without a label are one user's. A user with nothing to seat is forgotten, so the users are bounded by the queue.
 */
export class UserRoundRobin {
  /** Not a Map: an account with one request at a time adds and deletes with each (lib/id-map.ts has why that matters). */
  readonly #users: Record<string, UserRequests> = {};
  /** In the order of their turns. */
  readonly #turns = new OrderedList<UserRequests>();
  #lastTurn = 0;

  get head(): QueuedRequest | undefined {
    return this.#turns.first?.turns.first;
  }

  /**
   * The next request. `newestFirst`: of one user's requests the newest, unless the first one has a reservation or a deadline from a
   * gateway, or continues a session.
   */
  next(newestFirst: boolean): QueuedRequest | undefined {
    const user = this.#turns.first;
    const first = user?.turns.first;
    if (!newestFirst || user === undefined || first === undefined) return first;
    return goesFirst(first) ? first : user.newest.first;
  }

  /**
   * How many requests have their turns before this one, which need not have been added: of its own user those that go first, and of each
   * other user as many as it has turns until then. At most MOST_COUNTED requests and users are looked at, and counted.
   */
  before(queued: Turn, newestFirst: boolean): number {
    const own = this.#users[userKeyOf(queued)];
    const isBefore = newestFirst ? isNewer : isSooner;
    const turns = own?.turns.front(MOST_COUNTED).filter((other) => isBefore(other, queued)).length ?? 0;
    let count = turns;
    let isPast = false;
    let looked = 0;
    for (let user = this.#turns.first; user !== undefined && looked < MOST_COUNTED; user = user.next) {
      looked += 1;
      if (user === own) isPast = true;
      else count += Math.min(user.turns.size, isPast ? turns : turns + 1);
    }
    return Math.min(count, MOST_COUNTED);
  }

  /** The first request in the order of turns for which `wanted` is true. O(requests). */
  first(wanted: (queued: QueuedRequest) => boolean): QueuedRequest | undefined {
    for (let user = this.#turns.first; user !== undefined; user = user.next) {
      let found: QueuedRequest | undefined;
      user.turns.each((queued) => {
        if ((found === undefined || isSooner(queued, found)) && wanted(queued)) found = queued;
      });
      if (found !== undefined) return found;
    }
    return undefined;
  }

  add(queued: QueuedRequest): void {
    const key = userKeyOf(queued);
    const user = (this.#users[key] ??= new UserRequests(key));
    if (user.list === undefined) this.#toTheEnd(user);
    user.turns.add(queued.turn);
    user.newest.add(queued.recent);
  }

  /**
   * Removes a request; does nothing if it was not added. `seated`: its user's next turn comes after those of all other users; else its user
   * keeps its turn.
   */
  remove(queued: QueuedRequest, seated: boolean): void {
    const user = this.#users[userKeyOf(queued)];
    if (user === undefined || queued.turn.at < 0) return;
    user.turns.remove(queued.turn);
    user.newest.remove(queued.recent);
    const isEmpty = user.turns.size === 0;
    if (isEmpty || seated) this.#turns.remove(user);
    if (isEmpty) Reflect.deleteProperty(this.#users, user.key);
    else if (seated) this.#toTheEnd(user);
  }

  #toTheEnd(user: UserRequests): void {
    user.order = this.#lastTurn += 1;
    this.#turns.insert(user);
  }
}

/** Begins with a letter of ours: so no label is a name that all objects have, or equals the key of requests without a label. */
function userKeyOf({ request: { user } }: Turn): string {
  return user === undefined ? '' : `u${user}`;
}

/** The most requests, end users and accounts that are looked at to find the place of one request, and the highest position named. */
export const MOST_COUNTED = 1000;

/** What decides when a request of its user has its turn. */
export type Turn = Pick<QueuedRequest, 'request' | 'order' | 'hasReservation' | 'continues'> & Delay;
type Delay = Partial<Pick<QueuedRequest, 'enteredAt' | 'turnDelayMs'>>;

/** Also where the newest goes first. */
function goesFirst({ hasReservation, continues, request }: Turn): boolean {
  return hasReservation || continues || request.urgent === true;
}

/** The order where the newest goes first. */
function isNewer(a: Turn, b: Turn): boolean {
  const isFirst = goesFirst(a);
  if (isFirst !== goesFirst(b)) return isFirst;
  return isFirst ? isSooner(a, b) : a.order > b.order;
}

const dueAt = ({ request: { deadlineAt = Infinity }, turnDelayMs = 0 }: Turn): number => deadlineAt + turnDelayMs;
const beganAt = ({ enteredAt = Infinity, turnDelayMs = 0 }: Turn): number => enteredAt + turnDelayMs;

/** The order of one user's requests: reservations, then turns of sessions that go on, then the earliest deadline, then first come. */
function isSooner(a: Turn, b: Turn): boolean {
  if (a.hasReservation !== b.hasReservation) return a.hasReservation;
  if (a.continues !== b.continues) return a.continues;
  const [due, otherDue] = [dueAt(a), dueAt(b)];
  if (due !== otherDue) return due < otherDue;
  const [began, otherBegan] = [beganAt(a), beganAt(b)];
  return began === otherBegan ? a.order < b.order : began < otherBegan;
}
