import type { SeatHolder } from '../api/seat-board.js';

/** A request in the picture of a model's seats. */
export interface PlacedHolder {
  readonly holder: SeatHolder;
  /** Its number in the picture, which no other request has had since the picture began. */
  readonly id: number;
  /** Numbers of its seats, from 0, lowest first. */
  readonly seats: readonly number[];
}

/**
 * Where requests sit in the picture of one model's seats. The sidecar counts seats and does not number them (which
 * sequence of the engine serves whom is the engine's own affair), so a request is given the lowest free numbers when it
 * is first seen and keeps them: in the picture nobody moves.
 */
export class SeatPlan {
  /** Weak: once nobody watches, nothing here keeps a request that is over. */
  #placed = new WeakMap<SeatHolder, { readonly id: number; readonly seats: number[] }>();
  #last = 0;

  /** Those who hold seats now. Those who were placed before and are not among them have left. */
  place(holders: readonly SeatHolder[]): PlacedHolder[] {
    const stay = new Map<SeatHolder, { readonly id: number; readonly seats: number[] }>();
    const taken = new Set<number>();
    for (const holder of holders) {
      const known = this.#placed.get(holder);
      if (!known) continue;
      // Of several seats the highest numbers are given back.
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
