import { Heap } from '../lib/heap.js';
import { OrderedList } from './ordered-list.js';
import type { QueuedRequest } from './queued-request.js';

/** The requests of one end-user label, and the user's place in the order of turns. */
class UserRequests {
  readonly key: string;
  readonly places = new Heap<QueuedRequest>(sooner);
  readonly newest = new Heap<QueuedRequest>(newer);
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
 * requests does not delay the others; within a user the earliest deadline goes first, then first come.
 * Requests without a label are one user's. A user with nothing to seat is forgotten, so the users are bounded by the queue.
 */
export class UserRoundRobin {
  /** Not a Map: an account with one request at a time adds and deletes with each (id-map.ts has why that matters). */
  readonly #users: Record<string, UserRequests> = {};
  /** In the order of their turns. */
  readonly #turns = new OrderedList<UserRequests>();
  #lastTurn = 0;

  get head(): QueuedRequest | undefined {
    return this.#turns.first?.places.first;
  }

  /**
   * The next request. `newestFirst`: of one user's requests the newest, unless the first one has a reservation or a deadline
   * from a gateway.
   */
  next(newestFirst: boolean): QueuedRequest | undefined {
    const user = this.#turns.first;
    const first = user?.places.first;
    if (!newestFirst || user === undefined || first === undefined) return first;
    return first.hasReservation || first.request.urgent === true ? first : user.newest.first;
  }

  /** The first in the order of turns for which this is so. O(requests). */
  first(wanted: (queued: QueuedRequest) => boolean): QueuedRequest | undefined {
    for (let user = this.#turns.first; user !== undefined; user = user.next) {
      let found: QueuedRequest | undefined;
      user.places.each((queued) => {
        if ((found === undefined || sooner(queued, found)) && wanted(queued)) found = queued;
      });
      if (found !== undefined) return found;
    }
    return undefined;
  }

  add(queued: QueuedRequest): void {
    const key = keyOf(queued);
    const user = (this.#users[key] ??= new UserRequests(key));
    if (user.list === undefined) this.#toTheEnd(user);
    user.places.add(queued.turn);
    user.newest.add(queued.recent);
  }

  /** Removes a request that gets a seat: its user's next turn comes after those of all other users. */
  serve(queued: QueuedRequest): void {
    const user = this.#users[keyOf(queued)];
    if (user === undefined) return;
    user.places.remove(queued.turn);
    user.newest.remove(queued.recent);
    this.#turns.remove(user);
    if (user.places.size > 0) this.#toTheEnd(user);
    else Reflect.deleteProperty(this.#users, user.key);
  }

  /** Takes one out that left; its user keeps its turn. */
  remove(queued: QueuedRequest): void {
    const user = this.#users[keyOf(queued)];
    if (user === undefined) return;
    user.places.remove(queued.turn);
    user.newest.remove(queued.recent);
    if (user.places.size > 0) return;
    this.#turns.remove(user);
    Reflect.deleteProperty(this.#users, user.key);
  }

  #toTheEnd(user: UserRequests): void {
    user.order = this.#lastTurn += 1;
    this.#turns.insert(user);
  }
}

/** A label begins with a letter of ours, so that it is no name that objects have, and no user's label equals the one of requests without a user. */
function keyOf({ request: { user } }: QueuedRequest): string {
  return user === undefined ? '' : `u${user}`;
}

function sooner(a: QueuedRequest, b: QueuedRequest): boolean {
  if (a.hasReservation !== b.hasReservation) return a.hasReservation;
  const [left, right] = [a.request.deadlineAt ?? Infinity, b.request.deadlineAt ?? Infinity];
  return left === right ? a.order < b.order : left < right;
}

function newer(a: QueuedRequest, b: QueuedRequest): boolean {
  return a.order > b.order;
}
