import type { AccountClass } from './account-class.js';
import { Demand, roomFor } from './demand.js';
import { windowOf } from './standing-queue.js';

/**
 * Bounds of all waiting requests while the queue stands: PLACES_EACH for each class of an account, at most the larger of PLACES and
 * PLACES_A_SEAT for each seat.
 */
const PLACES_EACH = 10;
const PLACES = 32;
const PLACES_A_SEAT = 4;

/** The share of turns at which no request may be waiting, for a class that is served newest first. Its older requests are rarely served. */
const FEW_EMPTY = 0.01;

/**
 * How many requests may wait while the queue stands, from how many arrive and how many are seated. A class has as much room as is
 * needed so that one of its requests waits at almost every turn of it (demand.ts).
 */
export class Room {
  readonly #demand = new Demand();

  /** A request arrived, whether or not it is admitted. `holdMs`: the time that a request takes on a seat. */
  arrived({ demand, recentDemand }: AccountClass, now: number, holdMs: number): void {
    this.#demand.arrived(now, windowOf(holdMs));
    demand.arrived(now, windowOf(holdMs));
    recentDemand.arrived(now, holdMs);
  }

  /** A request was given a seat. */
  seated({ demand, recentDemand }: AccountClass, now: number, holdMs: number): void {
    this.#demand.seated(now, windowOf(holdMs));
    demand.seated(now, windowOf(holdMs));
    recentDemand.seated(now, holdMs);
  }

  /** Requests that come for each that is seated, where so many of all accounts wait. */
  load(waiting: number): number {
    return this.#demand.load(waiting);
  }

  /** How many requests of this class may wait. `fewer`: of one whose older requests are rarely served. */
  of({ load }: AccountClass, fewer = false): number {
    return roomFor(load, fewer ? FEW_EMPTY : undefined);
  }

  /** How many requests of all classes may wait together, where so many classes and requests do. */
  total(seats: number, waitingClasses: number, waiting: number): number {
    const most = Math.max(PLACES, PLACES_A_SEAT * seats);
    return Math.max(Math.min(PLACES_EACH * (waitingClasses + 1), most), roomFor(this.load(waiting)));
  }
}
