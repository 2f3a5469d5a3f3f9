import type { Clock } from '../protocol/clock.js';
import type { Flight } from './flight.js';

/** A request that was sent this long ago has reached the server, ms. */
const REACHED_MS = 250;

interface Sent {
  readonly tokens: number;
  readonly sentAt: number;
  receivedAt: number;
  /** Fails its job. */
  readonly silent: () => void;
}

/** The requests that the server is to compute, with their tokens and when they were sent. At most as many as seats. */
export class InFlight {
  readonly #clock: Clock;
  readonly #silentMs: number;
  readonly #flights = new Map<Flight, Sent>();
  #tokens = 0;

  /** `silentMs`: how long a request may be without a byte from the server. */
  constructor(clock: Clock, silentMs: number) {
    this.#clock = clock;
    this.#silentMs = silentMs;
  }

  get size(): number {
    return this.#flights.size;
  }

  get tokens(): number {
    return this.#tokens;
  }

  /** Those that have reached the server. */
  get reached(): number {
    const now = this.#clock.now();
    let reached = 0;
    for (const flight of this.#flights.keys()) if (this.reachedAt(flight) <= now) reached += 1;
    return reached;
  }

  keys(): Iterable<Flight> {
    return this.#flights.keys();
  }

  /** `silent`: called when the server has sent nothing for too long. */
  add(flight: Flight, tokens: number, silent: () => void): void {
    const now = this.#clock.now();
    this.#flights.set(flight, { tokens, sentAt: now, receivedAt: now, silent });
    this.#tokens += tokens;
  }

  land(flight: Flight): void {
    this.#tokens -= this.#flights.get(flight)?.tokens ?? 0;
    this.#flights.delete(flight);
  }

  received(flight: Flight): void {
    const sent = this.#flights.get(flight);
    if (sent) sent.receivedAt = this.#clock.now();
  }

  /** Clock reading from which on the server is known to have got it. */
  reachedAt(flight: Flight): number {
    return flight.begun ? 0 : (this.#flights.get(flight)?.sentAt ?? 0) + REACHED_MS;
  }

  /** Ends the requests that received no byte for too long. */
  endSilent(): void {
    const before = this.#clock.now() - this.#silentMs;
    for (const { receivedAt, silent } of [...this.#flights.values()]) if (receivedAt < before) silent();
  }
}
