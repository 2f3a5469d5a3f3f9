/**
 * Whether the queue stands, and how long a queue is worth having then.
 *
 * A queue that never empties adds its wait to every request and no throughput (CoDel: K. Nichols and V. Jacobson, ACM Queue
 * 2012). CoDel looks at the least wait of an interval and probes for the length that empties now and then. Seats are
 * counted, so that can be computed: with S seats, an offered load of r times what they serve and room for K to wait, the
 * number present is a birth-and-death process (A. Erlang, 1917; M/M/S/K), which says how often a seat is free for want of
 * a request. How much of a seat's time is good after a wait is known from those who left. The K with the most good seat
 * time is the queue to keep: some requests a seat at 1.1 times the load, a fraction of one at ten times.
 */

import { binOf } from './survival.js';

/** The queue stands once no seat was free for so many times as long as a request takes; a free seat ends that sooner. */
const STANDING_HOLDS = 4;

/** A free seat counts so many times as much as a full one. */
const FREE_WEIGHT = 25;

/** The offered load is a moving average over the time of so many requests on one seat, and over no less than so many ms. */
const LOAD_HOLDS = 20;
const LOAD_MS = 10_000;

/** Chances are computed for no longer a queue, in requests a seat. */
const MOST_PER_SEAT = 16;

/** A queue that stands is taken to be at no less than this load: what is measured of it varies. */
const LEAST_LOAD = 1.1;

/** So much of the seats' time is given for a shorter queue. */
const SPARED = 0.004;

/** The room is worked out anew after so much time, ms. */
const FIT_MS = 500;

/** What a seat's time comes to after a wait, from 0 to 1. */
export type GoodAfter = (waitMs: number) => number;

/** Milliseconds of the queue's clock throughout. */
export class StandingQueue {
  #fullHolds = 0;
  #fullMs = 0;
  #offered = 0;
  #offeredSince = 0;
  #fittedAt = -Infinity;
  #places = Infinity;

  /** Whether more comes than the seats can serve, and has for some time. */
  get stands(): boolean {
    return this.#fullHolds >= STANDING_HOLDS;
  }

  /** Time in which no seat was free, since the beginning. */
  get fullMs(): number {
    return this.#fullMs;
  }

  /** Seat time asked for over seat time there is, lately. */
  get load(): number {
    return this.#offered;
  }

  /** For `ms` this share of the seats was free, where a request takes `holdMs`. */
  passed(ms: number, free: number, holdMs: number): void {
    if (ms <= 0) return;
    if (free === 0) this.#fullMs += ms;
    const holds = ms / Math.max(holdMs, 1);
    const full = this.#fullHolds + (free === 0 ? holds : -holds * FREE_WEIGHT * free);
    this.#fullHolds = Math.min(Math.max(full, 0), 2 * STANDING_HOLDS);
    const windowMs = windowOf(holdMs);
    this.#offeredSince = Math.min(this.#offeredSince + ms, windowMs);
    this.#offered *= Math.exp(-ms / Math.max(this.#offeredSince, windowMs / 4));
  }

  /** A request came, whether it was let in or not. */
  came(holdMs: number, seats: number): void {
    this.#offered += holdMs / (Math.max(1, seats) * Math.max(this.#offeredSince, windowOf(holdMs) / 4));
  }

  /** How many may wait to keep the seats busy; Infinity: more than are computed for. */
  places(now: number, seats: number, holdMs: number, goodAfter: GoodAfter): number {
    if (now - this.#fittedAt >= FIT_MS) {
      this.#fittedAt = now;
      this.#places = best(Math.max(this.#offered, LEAST_LOAD), seats, holdMs, goodAfter);
    }
    return this.#places;
  }
}

/** Over how long the offered load is averaged, ms, where a request takes `holdMs`. */
export function windowOf(holdMs: number): number {
  return Math.max(LOAD_MS, LOAD_HOLDS * holdMs);
}

/** The least room to wait that makes the most of the seats, but for what is spared. */
function best(load: number, seats: number, holdMs: number, goodAfter: GoodAfter): number {
  // Chances of 0 to S - 1 seats held, over that of all held and none waiting.
  let chance = 1;
  let none = 0;
  for (let held = seats; held > 0; held -= 1) {
    chance *= held / (load * seats);
    none += chance;
  }
  let all = none + 1;
  let good = none * goodAfter(0);
  const goods = [(load * good) / all];
  chance = 1;
  let bin = -1;
  let after = 1;
  const longest = MOST_PER_SEAT * seats;
  for (let waiting = 1; waiting <= longest; waiting += 1) {
    // One more place: who finds `waiting` - 1 before it takes it.
    const waitMs = (waiting * holdMs) / seats;
    if (binOf(waitMs) !== bin) [bin, after] = [binOf(waitMs), goodAfter(waitMs)];
    good += chance * after;
    chance *= load;
    all += chance;
    goods.push((load * good) / all);
    if (chance > 1e200) break;
  }
  const enough = Math.max(...goods) - SPARED;
  const places = goods.findIndex((share) => share >= enough);
  return places === longest ? Infinity : places;
}
