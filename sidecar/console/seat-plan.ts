import type { SeatHolder } from '../api/seat-board.js';

/** A request in the display of a model's seats. */
export interface PlacedHolder {
  readonly holder: SeatHolder;
  /** Its number in the display, unique since the display began. */
  readonly id: number;
  /** Numbers of its seats, from 0, lowest first. */
  readonly seats: readonly number[];
}

/**
 * Seat numbers for the display of one model. The sidecar counts seats without numbering them (the engine chooses the
 * sequences), so each request gets the lowest free numbers when it is first seen and keeps them.
 */
export class SeatPlan {
  /** Weak, so that finished requests are not kept in memory while there are no viewers. */
  #placed = new WeakMap<SeatHolder, { readonly id: number; readonly seats: number[] }>();
  #last = 0;

  /** The current seat holders. Requests that were placed before and are not in the list have ended. */
  place(holders: readonly SeatHolder[]): PlacedHolder[] {
    const stay = new Map<SeatHolder, { readonly id: number; readonly seats: number[] }>();
    const taken = new Set<number>();
    for (const holder of holders) {
      const known = this.#placed.get(holder);
      if (!known) continue;
      // A request that returns seats loses its highest numbers.
      known.seats.length = Math.min(known.seats.length, holder.lease.seats);
      for (const seat of known.seats) taken.add(seat);
      stay.set(holder, known);
    }
    let free = 0;
    const next = (): number => {
      while (taken.has(free)) free += 1;
      taken.add(free);
      return free;
    };
    for (const holder of holders) {
      let entry = stay.get(holder);
      if (!entry) stay.set(holder, (entry = { id: ++this.#last, seats: [] }));
      while (entry.seats.length < holder.lease.seats) entry.seats.push(next());
    }
    this.#placed = new WeakMap(stay);
    return Array.from(stay, ([holder, { id, seats }]) => ({ holder, id, seats: [...seats] }));
  }
}
