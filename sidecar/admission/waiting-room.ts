import { Line } from './line.js';
import type { Place } from './place.js';

/** Where a waiting request stands: not to be seated yet, in turn, or ahead of all because its engine was lost. */
export type Standing = 'unready' | 'ready' | 'returned';

/** Everyone who waits, and the body bytes that they hold. Who is next: the returned, then the ready, each by entry. */
export class WaitingRoom {
  readonly #lines: Readonly<Record<Standing, Line<Place>>> = {
    unready: new Line<Place>(),
    ready: new Line<Place>(),
    returned: new Line<Place>(),
  };
  #bytes = 0;

  get size(): number {
    return this.#lines.unready.length + this.#lines.ready.length + this.#lines.returned.length;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get next(): Place | undefined {
    return this.#lines.returned.first ?? this.#lines.ready.first;
  }

  /** Someone who waits, seatable or not; undefined once all are gone. */
  get anyone(): Place | undefined {
    return this.next ?? this.#lines.unready.first;
  }

  enter(place: Place, standing: Standing): void {
    this.#lines[standing].insert(place);
    this.#bytes += place.entry.bytes;
  }

  leave(place: Place): void {
    place.line?.remove(place);
    this.#bytes -= place.entry.bytes;
  }
}
