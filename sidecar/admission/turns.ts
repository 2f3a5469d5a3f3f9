import { Heap } from './heap.js';
import type { Place } from './place.js';

/** The requests of one end-user label. */
type UserLine = Heap<Place>;

/**
 * Who is next among one tenant's own requests that may be seated. Its end users take turns, so that one of them with a
 * hundred requests does not hold up the others; within a user the earliest deadline goes first, then first come.
 * Requests without a label are one user's. A user with nothing to seat is forgotten, so the map is bounded by the queue.
 */
export class Turns {
  /** In the order of their turns. */
  readonly #users = new Map<string | undefined, UserLine>();

  get head(): Place | undefined {
    for (const line of this.#users.values()) return line.first;
    return undefined;
  }

  add(place: Place): void {
    const { user } = place.entry;
    let line = this.#users.get(user);
    if (line === undefined) this.#users.set(user, (line = new Heap<Place>(sooner)));
    line.add(place.turn);
  }

  /** Takes one out that is to be seated: its user's next turn comes after everybody else's. */
  serve(place: Place): void {
    const { user } = place.entry;
    const line = this.#users.get(user);
    this.#users.delete(user);
    line?.remove(place.turn);
    if (line !== undefined && line.size > 0) this.#users.set(user, line);
  }

  /** Takes one out that left; its user keeps its turn. */
  remove(place: Place): void {
    const line = this.#users.get(place.entry.user);
    line?.remove(place.turn);
    if (line?.size === 0) this.#users.delete(place.entry.user);
  }
}

function sooner(a: Place, b: Place): boolean {
  const [left, right] = [a.entry.deadlineAt ?? Infinity, b.entry.deadlineAt ?? Infinity];
  return left === right ? a.order < b.order : left < right;
}
